"""AllenAI's files: read and written back to the bit, refused when they are not whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from builders import make_bundle

from elmo_core import BundleError, load_bundle
from elmo_core.legacy import allenai

CELL = "RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell"


def _datasets(path: Path) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, node: found.update({name: np.asarray(node)}) if isinstance(node, h5py.Dataset) else None)
    return found


def _assert_same_pair(first: Path, second: Path) -> None:
    a, b = (allenai.find_pair(folder) for folder in (first, second))
    assert a is not None
    assert b is not None
    old, new = (json.loads(pair.options.read_text(encoding="utf-8")) for pair in (a, b))
    assert new == old
    old_weights, new_weights = _datasets(a.weights), _datasets(b.weights)
    assert old_weights.keys() == new_weights.keys()
    for key, array in old_weights.items():
        assert (array.dtype, array.tobytes()) == (new_weights[key].dtype, new_weights[key].tobytes()), key


@pytest.mark.golden
def test_every_reference_goes_to_our_bundle_and_back_to_the_bit(golden: Path, tmp_path: Path) -> None:
    folders = [path.parent for path in golden.rglob("options.json")]
    assert len(folders) == 15
    for number, folder in enumerate(folders):
        load_bundle(folder).save(tmp_path / f"{number}")
        bundle = load_bundle(tmp_path / f"{number}")
        allenai.write_pair(tmp_path / f"back{number}", bundle.config, bundle.options, bundle.tensors)
        _assert_same_pair(folder, tmp_path / f"back{number}")
        assert bundle.hash == load_bundle(folder).hash


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_highway": 0},
        {"n_highway": 2},
        {"n_layers": 1},
        {"n_layers": 3},
        {"cell_size": 8},
        {"filters": ((1, 3), (2, 5))},
        {"filters": ((1, 3), (2, 5)), "cell_size": 8, "n_highway": 0, "n_layers": 1},
        {"n_characters": 261, "max_characters_per_token": 20},
        {"cell_clip": None, "proj_clip": None, "use_skip_connections": False, "activation": "tanh"},
    ],
)
def test_every_legal_kind_goes_there_and_back(tmp_path: Path, changes: dict[str, object]) -> None:
    bundle = make_bundle(**changes)
    allenai.write_pair(tmp_path / "pair", bundle.config, {"n_train_tokens": 5}, bundle.tensors)
    loaded = load_bundle(tmp_path / "pair")
    assert (loaded.hash, loaded.config, loaded.options["n_train_tokens"]) == (bundle.hash, bundle.config, 5)
    loaded.save(tmp_path / "ours")
    ours = load_bundle(tmp_path / "ours")
    allenai.write_pair(tmp_path / "back", ours.config, ours.options, ours.tensors)
    _assert_same_pair(tmp_path / "pair", tmp_path / "back")


def test_entries_inside_a_section_of_the_options_are_kept(tmp_path: Path) -> None:
    bundle = make_bundle()
    allenai.write_pair(tmp_path / "pair", bundle.config, {}, bundle.tensors)
    options = json.loads((tmp_path / "pair" / "options.json").read_text(encoding="utf-8"))
    options["char_cnn"]["note"] = "trained on news"
    (tmp_path / "pair" / "options.json").write_text(json.dumps(options), encoding="utf-8")
    load_bundle(tmp_path / "pair").save(tmp_path / "ours")
    ours = load_bundle(tmp_path / "ours")
    allenai.write_pair(tmp_path / "back", ours.config, ours.options, ours.tensors)
    _assert_same_pair(tmp_path / "pair", tmp_path / "back")


def test_the_file_has_the_reference_gates_and_rows(tmp_path: Path) -> None:
    bundle = make_bundle()
    allenai.write_pair(tmp_path, bundle.config, {}, bundle.tensors)
    weights, ours = _datasets(tmp_path / "weights.hdf5"), "forward_lstm.layers.1"
    np.testing.assert_array_equal(weights[f"{CELL}/W_0"][:8], bundle.tensors[f"{ours}.input_weight"].numpy().T)
    np.testing.assert_array_equal(weights[f"{CELL}/W_0"][8:], bundle.tensors[f"{ours}.recurrent_weight"].numpy().T)
    assert weights["CNN/W_cnn_2"].shape == (1, 3, 4, 8)
    assert weights["CNN/W_cnn_2"][0, 2, 1, 5] == bundle.tensors["char_cnn.filters.2.weight"][5, 1, 2]


def test_a_folder_with_files_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    bundle = make_bundle()
    with pytest.raises(BundleError, match="is not empty; name a new folder"):
        allenai.write_pair(tmp_path, bundle.config, {}, bundle.tensors)


def test_the_names_that_models_are_downloaded_under_are_found(tmp_path: Path) -> None:
    bundle = make_bundle()
    allenai.write_pair(tmp_path, bundle.config, {}, bundle.tensors)
    (tmp_path / "options.json").rename(tmp_path / "elmo_2x4096_options.json")
    (tmp_path / "weights.hdf5").rename(tmp_path / "elmo_2x4096_weights.hdf5")
    assert load_bundle(tmp_path).hash == bundle.hash


def _edit(change: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        with h5py.File(folder / "weights.hdf5", "r+") as file:
            change(file)

    return edit


def _replace(key: str, array: np.ndarray) -> Callable[[Path], None]:
    def change(file: h5py.File) -> None:
        del file[key]
        file[key] = array

    return _edit(change)


def _drop_half(folder: Path) -> None:
    raw = (folder / "weights.hdf5").read_bytes()
    (folder / "weights.hdf5").write_bytes(raw[: len(raw) // 2])


def _one_layer_less(folder: Path) -> None:
    options = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    options["lstm"]["n_layers"] = 1
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_drop_half, r"weights\.hdf5: can't be read as HDF5"),
        (lambda folder: (folder / "weights.hdf5").unlink(), r"has options\.json but no \*weights\*\.hdf5"),
        (lambda folder: (folder / "options.json").unlink(), r"has weights\.hdf5 but no \*options\*\.json"),
        (lambda folder: (folder / "options.json").write_text("nothing"), r"options\.json: can't be read as JSON"),
        (lambda folder: (folder / "my_options.json").touch(), r"has both my_options\.json and options\.json"),
        (_edit(lambda file: file.pop(f"{CELL}/W_P_0")), rf"weights\.hdf5: has no '{CELL}/W_P_0'"),
        (_edit(lambda file: file.create_dataset("softmax/W", data=[1.0])), "has 'softmax/W', which the options do not know"),
        (_one_layer_less, rf"has '{CELL}/B', which the options do not know"),
        (_replace("char_embed", np.zeros((262, 4), np.float32)), r"'char_embed' has shape \[262, 4\]"),
        (_replace("char_embed", np.zeros(261, np.float32)), r"'char_embed' has shape \[261\]"),
        (_replace("CNN/W_cnn_0", np.zeros((2, 1, 4, 4), np.float32)), r"'CNN/W_cnn_0' has shape \[2, 1, 4, 4\]"),
        (_replace(f"{CELL}/W_0", np.zeros((15, 96), np.float32)), rf"'{CELL}/W_0' has shape \[15, 96\]"),
        (_replace(f"{CELL}/B", np.zeros(96)), rf"'{CELL}/B' is float64; weights are float32"),
        (_replace(f"{CELL}/B", np.full(96, np.nan, np.float32)), "holds NaN or infinite values"),
    ],
)
def test_a_broken_pair_is_refused_by_file_and_key(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    bundle = make_bundle()
    allenai.write_pair(tmp_path, bundle.config, {}, bundle.tensors)
    damage(tmp_path)
    with pytest.raises(BundleError, match=message):
        load_bundle(tmp_path)


@pytest.mark.parametrize(
    ("key", "array"),
    [
        ("char_embed", np.zeros((262, 4), np.float32)),
        ("CNN/W_cnn_0", np.zeros((1, 2, 4, 4), np.float32)),
        ("CNN_proj/W_proj", np.zeros((8, 16), np.float32)),
        (f"{CELL}/W_0", np.zeros((16, 95), np.float32)),
        (f"{CELL}/B", np.full(96, np.nan, np.float32)),
        (f"{CELL}/W_P_0", np.full((24, 8), np.inf, np.float32)),
    ],
)
def test_a_broken_data_set_is_named_as_the_file_names_it(tmp_path: Path, key: str, array: np.ndarray) -> None:
    bundle = make_bundle()
    allenai.write_pair(tmp_path, bundle.config, {}, bundle.tensors)
    _replace(key, array)(tmp_path)
    with pytest.raises(BundleError, match=rf"weights\.hdf5: .*'{key}'"):
        load_bundle(tmp_path)


@pytest.mark.parametrize("marker", [b"SNOD", b"HEAP", b"TREE"])
def test_a_file_damaged_inside_is_refused_by_name(tmp_path: Path, marker: bytes) -> None:
    bundle = make_bundle()
    allenai.write_pair(tmp_path, bundle.config, {}, bundle.tensors)
    raw = (tmp_path / "weights.hdf5").read_bytes()
    assert marker in raw
    (tmp_path / "weights.hdf5").write_bytes(raw.replace(marker, b"XXXX"))
    with pytest.raises(BundleError, match=r"weights\.hdf5: can't be read as HDF5"):
        load_bundle(tmp_path)
