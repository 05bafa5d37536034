"""Bundles: saved and loaded without a change, refused when they are not whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from builders import make_bundle
from safetensors.torch import load_file, save_file

from elmo_core import DEFAULT_BUNDLE, Bundle, BundleError, load_bundle
from elmo_core.legacy import allenai
from elmo_core.training.objective import Softmax
from elmo_core.training.perplexity import measure_perplexity

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("warm", "trained"), [(True, True), (False, False)])
def test_what_is_saved_is_loaded(tmp_path: Path, warm: bool, trained: bool) -> None:
    bundle = make_bundle(warm=warm, trained=trained)
    bundle.save(tmp_path / "b")
    loaded = load_bundle(tmp_path / "b")
    assert (loaded.config, loaded.trained, loaded.hash) == (bundle.config, trained, bundle.hash)
    for name, tensor in bundle.tensors.items():
        torch.testing.assert_close(loaded.tensors[name], tensor, rtol=0, atol=0)
    if bundle.warm_state is None:
        assert loaded.warm_state is None
    else:
        assert loaded.warm_state is not None
        for way in ("forward", "backward"):
            for part in ("hidden", "cell"):
                actual, expected = (getattr(getattr(b.warm_state, way), part) for b in (loaded, bundle))
                torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_every_weight_and_the_warm_state_change_the_hash() -> None:
    hashes = {make_bundle().hash, make_bundle(seed=1).hash, make_bundle(warm=True).hash, make_bundle(cell_clip=2.0).hash}
    assert len(hashes) == 4


def test_the_hash_is_the_same_in_another_process_and_release() -> None:
    assert load_bundle(DEFAULT_BUNDLE).hash == json.loads((DEFAULT_BUNDLE / "config.json").read_text(encoding="utf-8"))["hash"]


@pytest.mark.parametrize("name", [*make_bundle().tensors])
def test_one_value_of_any_weight_changes_the_hash(name: str) -> None:
    bundle = make_bundle()
    changed = bundle.tensors[name].clone()
    changed.view(-1)[-1] += 1
    assert Bundle(config=bundle.config, tensors={**bundle.tensors, name: changed}).hash != bundle.hash


def test_an_allenai_pair_and_the_bundle_made_of_it_have_one_hash(tmp_path: Path) -> None:
    bundle = make_bundle()
    allenai.write_pair(tmp_path / "pair", bundle.config, {"n_train_tokens": 5}, bundle.tensors)
    load_bundle(tmp_path / "pair").save(tmp_path / "ours")
    assert load_bundle(tmp_path / "ours").hash == load_bundle(tmp_path / "pair").hash == bundle.hash


def test_training_options_are_kept(tmp_path: Path) -> None:
    bundle = make_bundle()
    extended = Bundle(config=bundle.config, tensors=bundle.tensors, options={"n_train_tokens": 768648884, "dropout": 0.1})
    extended.save(tmp_path / "b")
    options = load_bundle(tmp_path / "b").options
    assert (options["n_train_tokens"], options["dropout"]) == (768648884, 0.1)


def test_files_are_readable_alike(tmp_path: Path) -> None:
    make_bundle().save(tmp_path / "b")
    assert len({(tmp_path / "b" / name).stat().st_mode for name in ("config.json", "model.safetensors")}) == 1


def test_a_folder_with_files_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(BundleError, match="is not empty; name a new folder"):
        make_bundle().save(tmp_path)


def test_a_crash_while_saving_leaves_no_bundle_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("elmo_core.bundle.os.replace", crash)
    with pytest.raises(BundleError, match="can't be written: no space left"):
        make_bundle().save(tmp_path / "b")
    with pytest.raises(BundleError, match="is no bundle"):
        load_bundle(tmp_path / "b")


def _edit_card(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        card = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(card | changes), encoding="utf-8")

    return edit


def _edit_tensor(name: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        changed = change(tensors.pop(name, torch.zeros(1)))
        save_file(tensors | ({} if changed is None else {name: changed}), folder / "model.safetensors")

    return edit


def _flip_a_bit(folder: Path) -> None:
    raw = bytearray((folder / "model.safetensors").read_bytes())
    raw[-5] ^= 1
    (folder / "model.safetensors").write_bytes(raw)


def _truncate(folder: Path) -> None:
    raw = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(raw[: len(raw) // 2])


BIAS = "forward_lstm.layers.0.bias"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncate, r"model\.safetensors: can't be read as safetensors"),
        (_flip_a_bit, r"model\.safetensors: differs from the hash in config\.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors: can't be read"),
        (lambda folder: (folder / "config.json").unlink(), "is no bundle: it has neither"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config\.json: can't be read as JSON"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), r"model\.safetensors: can't be read as safetensors"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff"), r"config\.json: can't be read as JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), r"config\.json: holds a JSON list, not an object"),
        (_edit_card(format="elmo-bundle-9"), r"config\.json: 'format' is 'elmo-bundle-9'; this release reads"),
        (_edit_card(options=None), r"config\.json: has no object 'options'"),
        (_edit_card(options={}), r"config\.json: has no 'char_cnn'"),
        (_edit_card(hash="0"), "differs from the hash"),
        (_edit_tensor(BIAS, lambda _: None), rf"model\.safetensors: has no tensor '{BIAS}'"),
        (_edit_tensor("surplus", lambda t: t), r"model\.safetensors: has tensor 'surplus', which the options do not know"),
        (_edit_tensor(BIAS, lambda t: t[1:].clone()), rf"'{BIAS}' has shape \[95\]; the options ask for \[96\]"),
        (_edit_tensor(BIAS, lambda t: t.half()), rf"'{BIAS}' is torch.float16; weights are stored as float32"),
        (_edit_tensor(BIAS, lambda t: t * torch.nan), rf"'{BIAS}' holds NaN or infinite values"),
        (_edit_tensor("warm_state.forward.cell", lambda _: None), "must hold all of 'warm_state"),
        (_edit_tensor("warm_state.forward.cell", lambda t: t[:1].clone()), "'warm_state.forward.cell' has shape"),
    ],
)
def test_a_broken_bundle_is_refused_by_file_and_key(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    make_bundle(warm=True).save(tmp_path / "b")
    damage(tmp_path / "b")
    with pytest.raises(BundleError, match=message):
        load_bundle(tmp_path / "b")


def test_an_empty_folder_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=f"^{re.escape(str(tmp_path))}: is no bundle: it has neither config.json and"):
        load_bundle(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=f"^{re.escape(str(tmp_path / 'none'))}: does not exist"):
        load_bundle(tmp_path / "none")


def test_a_file_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "weights").touch()
    with pytest.raises(BundleError, match="weights: is not a folder"):
        load_bundle(tmp_path / "weights")


def test_the_default_bundle_is_a_trained_language_model_of_at_most_10_mb() -> None:
    bundle = load_bundle(DEFAULT_BUNDLE, with_head=True)
    assert bundle.trained
    assert bundle.warm_state is not None
    assert sum(path.stat().st_size for path in DEFAULT_BUNDLE.iterdir()) <= 10_000_000
    assert bundle.hash in (DEFAULT_BUNDLE / "README.md").read_text(encoding="utf-8")


def test_the_default_bundle_tells_english_from_words_in_disorder() -> None:
    bundle = load_bundle(DEFAULT_BUNDLE, with_head=True)
    assert bundle.head is not None
    softmax = Softmax(*bundle.head.weight.shape)
    softmax.load_state_dict({"weight": bundle.head.weight, "bias": bundle.head.bias})
    sentence = [
        "I",
        "do",
        "not",
        "think",
        "that",
        "there",
        "will",
        "be",
        "time",
        "enough",
        "for",
        "all",
        "of",
        "us",
        "to",
        "see",
        "him",
        "before",
        "he",
        "goes",
        ".",
    ]
    in_order, disordered = (
        measure_perplexity(bundle.build_bilm(), softmax, bundle.head.vocabulary, [tokens])
        for tokens in (sentence, sorted(sentence))
    )
    assert in_order.average < 100
    assert disordered.average > 10 * in_order.average
