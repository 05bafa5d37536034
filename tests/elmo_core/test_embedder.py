"""Vectors that depend on the sentence and the bundle alone, held against the reference implementations."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import make_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_core import BundleError, ConfigError, Embedder, load_embedder
from elmo_core.charids import encode_tokens
from elmo_core.embedder import Precision, plan_batches
from elmo_core.lanes import LanePlan
from elmo_core.recurrence import LaneLstm

STATELESS = [
    "base",
    "cell_clip_only",
    "clip_active",
    "highway0",
    "layers1",
    "layers3",
    "maxchars20",
    "nchar261",
    "noclip",
    "noproj_lstm",
    "noskip",
    "tanh",
    "wide7",
]
SENTENCES = [["The", "cat", "sat", "."], [], ["好", "的"], ["one"], ["a"] * 30, ["The", "cat", "sat", "."], ["<S>", "x" * 80]]
EMBEDDER = Embedder(make_bundle(), device="cpu")
WORDS = st.text(st.sampled_from("abcé好"), max_size=60)
SENTENCES_OF_WORDS = st.lists(st.lists(WORDS, max_size=30), max_size=8)


@pytest.mark.golden
@pytest.mark.parametrize("case", STATELESS)
def test_vectors_equal_the_reference(golden: Path, case: str) -> None:
    folder = golden / "stateless" / case
    sentences = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))
    expected = np.load(folder / "expected.npz")
    actual = load_embedder(folder, device="cpu").embed(sentences)
    assert len(actual) == len(sentences) == len(expected)
    for i, vectors in enumerate(actual):
        np.testing.assert_allclose(vectors, expected[str(i)], rtol=0, atol=1e-5)


def test_each_sentence_gets_its_own_shape() -> None:
    shapes = [vectors.shape for vectors in Embedder(make_bundle(), device="cpu").embed(SENTENCES)]
    assert shapes == [(3, len(tokens), 16) for tokens in SENTENCES]


@pytest.mark.parametrize("initial_state", ["zero", "warm"])
def test_vectors_do_not_depend_on_the_batch(initial_state: str) -> None:
    embedder = Embedder(make_bundle(warm=True), device="cpu", initial_state=initial_state)
    together = embedder.embed(SENTENCES)
    for tokens, vectors in zip(SENTENCES, together, strict=True):
        np.testing.assert_allclose(embedder.embed([tokens])[0], vectors, rtol=0, atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(len(SENTENCES))))
def test_any_order_gives_the_same_vectors(order: list[int]) -> None:
    expected = EMBEDDER.embed(SENTENCES)
    for i, vectors in zip(order, EMBEDDER.embed([SENTENCES[i] for i in order]), strict=True):
        np.testing.assert_allclose(vectors, expected[i], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("embedder.BATCH_TOKENS", {"cpu": 3}),
        ("embedder.MAX_LANES", {"cpu": 1}),
        ("embedder.MAX_LANES", {"cpu": 2}),
        ("embedder.TABLE_BYTES", 4 * 8 * 5),
        ("recurrence.BLOCK_ROWS", 1),
        ("recurrence.BLOCK_ROWS", 7),
        ("recurrence.FREQUENT_TOKENS", 0),
        ("recurrence.FREQUENT_TOKENS", 1),
    ],
)
def test_limits_change_no_vector(monkeypatch: pytest.MonkeyPatch, limit: str, value: object) -> None:
    expected = EMBEDDER.embed(SENTENCES)
    monkeypatch.setattr(f"elmo_core.{limit}", value)
    embedder = Embedder(make_bundle(), device="cpu")
    for _ in range(2):
        for actual, want in zip(embedder.embed(SENTENCES), expected, strict=True):
            np.testing.assert_allclose(actual, want, rtol=0, atol=1e-6)


def test_compiling_the_cell_on_the_way_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmo_core.embedder.FUSE_CELL_SIZE", 24)
    monkeypatch.setattr("elmo_core.embedder.FUSE_AFTER_TOKENS", 1)
    embedder = Embedder(make_bundle(), device="cpu")
    before, after = embedder.embed(SENTENCES), embedder.embed(SENTENCES)
    for actual, want in zip(after, before, strict=True):
        np.testing.assert_array_equal(actual, want)


def test_a_cold_and_a_warm_table_give_the_same_bits() -> None:
    embedder = Embedder(make_bundle(), device="cpu")
    cold = embedder.embed(SENTENCES)
    embedder.embed([[f"w{i}" for i in range(500)], ["cat", "."]])
    for actual, want in zip(embedder.embed(SENTENCES), cold, strict=True):
        np.testing.assert_array_equal(actual, want)


@settings(max_examples=20, deadline=None)
@given(before=SENTENCES_OF_WORDS, beside=SENTENCES_OF_WORDS, tokens=st.lists(WORDS, min_size=1, max_size=12))
def test_a_vector_depends_on_its_sentence_alone(before: list[list[str]], beside: list[list[str]], tokens: list[str]) -> None:
    embedder = Embedder(make_bundle(), device="cpu")
    alone = embedder.embed([tokens])[0]
    embedder.embed(before)
    np.testing.assert_allclose(embedder.embed([*beside, tokens])[-1], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("sentences", [[], [[]], [[], []]])
def test_nothing_to_embed_gives_nothing(sentences: list[list[str]]) -> None:
    assert [vectors.shape for vectors in EMBEDDER.embed(sentences)] == [(3, 0, 16)] * len(sentences)


def test_the_embedder_equals_the_bilm_between_boundary_tokens() -> None:
    tokens = ["The", "cat", "sat"]
    ids = torch.from_numpy(encode_tokens(["<S>", *tokens, "</S>"], 50))[None]
    expected = make_bundle().build_bilm()(ids, [5]).layers[:, 0, 1:-1].numpy()
    np.testing.assert_allclose(EMBEDDER.embed([tokens])[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("sentences", [["Hello world"], "Hello", [["a"], [1]]])
def test_a_string_is_no_sentence(sentences: list[list[str]]) -> None:
    with pytest.raises(TypeError, match=r"sentence \d is .*; a sentence is a list of strings"):
        EMBEDDER.embed(sentences)


def test_layer_0_is_the_token_vector_twice() -> None:
    layer = EMBEDDER.embed([["The", "cat"]])[0][0]
    np.testing.assert_array_equal(layer[:, :8], layer[:, 8:])


def test_tokens_past_the_byte_limit_are_counted() -> None:
    assert EMBEDDER.n_cut(["x" * 48, "x" * 49, "好" * 16, "好" * 17, ""]) == 2


def test_warm_state_changes_vectors_but_not_layer_0() -> None:
    bundle = make_bundle(warm=True)
    zero, warm = (Embedder(bundle, device="cpu", initial_state=s).embed([["a", "b"]])[0] for s in ("zero", "warm"))
    np.testing.assert_array_equal(zero[0], warm[0])
    assert np.abs(zero[1:] - warm[1:]).max() > 1e-3


def test_warm_state_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no warm state"):
        Embedder(make_bundle(), device="cpu", initial_state="warm")


def test_bfloat16_stays_near_float32() -> None:
    exact, near = (
        np.concatenate(Embedder(make_bundle(), device="cpu", precision=p).embed(SENTENCES), axis=1)[1:]
        for p in ("float32", "bfloat16")
    )
    cosine = (exact * near).sum(-1) / np.linalg.norm(exact, axis=-1) / np.linalg.norm(near, axis=-1)
    assert cosine.min() > 0.999
    assert np.abs(exact - near).max() > 0


def test_missing_folder_is_named() -> None:
    with pytest.raises(BundleError, match="/no/such/bundle: does not exist"):
        load_embedder("/no/such/bundle")


@pytest.mark.parametrize("option", ["device", "precision", "initial_state"])
def test_unknown_choice_is_named_with_the_legal_ones(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} is 'quantum'; it must be one of"):
        Embedder(make_bundle(), **{option: "quantum"})


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 50))
def test_batches_hold_every_sentence_once_within_the_limit(lengths: list[int], max_tokens: int) -> None:
    batches = list(plan_batches(lengths, max_tokens))
    assert [i for batch in batches for i in batch] == list(range(len(lengths)))
    assert all(sum(lengths[i] > 0 for i in batch) <= 1 or sum(lengths[i] for i in batch) <= max_tokens for batch in batches)


def test_batches_are_about_the_same_size() -> None:
    sizes = [5 * len(batch) for batch in plan_batches([5] * 21, 100)]
    assert sizes == [55, 50]


def test_counts_say_what_was_done() -> None:
    embedder = Embedder(make_bundle(), device="cpu")
    embedder.embed([["a", "b", "a"], ["b", "c"]])
    first = embedder.counts.copy()
    embedder.embed([["a", "d"], []])
    assert (first.n_tokens, first.n_rows, first.n_lookups, first.n_hits) == (5, 7, 5, 0)  # <S> and </S> are looked up too
    second = embedder.counts.since(first)
    assert (second.n_tokens, second.n_rows, second.n_lookups, second.n_hits) == (2, 3, 4, 3)
    assert (second.n_steps, second.n_lane_steps, second.n_halvings) == (3, 3, 0)


def test_products_are_counted_as_they_are_computed() -> None:
    embedder = Embedder(make_bundle(), device="cpu")
    embedder.embed([["a"] * 9])
    # 10 rows, 2 directions, 2 layers, D = 8, 4H = 96; the first layer multiplies each direction's two distinct tokens once.
    assert embedder.counts.n_flops == 2 * 2 * (8 * 96 * (2 + 10) + (8 * 96 + 24 * 8) * 20)


def test_embedding_in_batches_gives_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [SENTENCES[:3], [], SENTENCES[3:]]
    found = [vectors.sentence(i) for vectors in EMBEDDER.embed_batches(batches) for i in range(len(vectors.offsets) - 1)]
    for actual, want in zip(found, EMBEDDER.embed(SENTENCES), strict=True):
        np.testing.assert_allclose(actual, want, rtol=0, atol=1e-6)


def test_out_of_memory_halves_the_lanes_and_goes_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    embedder = Embedder(make_bundle(), device="cpu")
    whole = LaneLstm.run

    def run(self: LaneLstm, table: torch.Tensor, rows: torch.Tensor, plan: LanePlan, *rest: Any) -> int:
        if plan.n_lanes > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self, table, rows, plan, *rest)

    monkeypatch.setattr(LaneLstm, "run", run)
    sentences = [["a", "b"]] * 400
    found = embedder.embed(sentences)
    np.testing.assert_allclose(found[150], EMBEDDER.embed([["a", "b"]])[0], rtol=0, atol=1e-6)
    assert embedder.counts.n_halvings == 7  # 256 lanes to 2
    assert "out of memory on cpu; going on with 2 lanes" in caplog.text


def test_too_little_memory_for_one_lane_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> int:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(LaneLstm, "run", run)
    with pytest.raises(ConfigError, match="too little memory for this model, even with one lane"):
        Embedder(make_bundle(), device="cpu").embed([["a"]])


def test_a_long_sentence_is_exact_beside_short_ones() -> None:
    embedder = Embedder(make_bundle(), device="cpu")
    long = [f"w{i % 97}" for i in range(3000)]
    alone = embedder.embed([long])[0]
    np.testing.assert_allclose(embedder.embed([["a"], long, ["b", "c"]])[1], alone, rtol=0, atol=1e-5)


def test_threads_share_an_embedder() -> None:
    embedder = Embedder(make_bundle(), device="cpu")
    expected = embedder.embed(SENTENCES)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: embedder.embed(SENTENCES), range(8)):
            for actual, want in zip(vectors, expected, strict=True):
                np.testing.assert_array_equal(actual, want)


def test_cuda_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device 'cuda' was asked for, but torch finds no CUDA device here"):
        Embedder(make_bundle(), device="cuda")


@pytest.mark.parametrize(
    ("capability", "precision", "warns"), [("AVX2", "bfloat16", 1), ("AVX512", "bfloat16", 0), ("AVX2", "float32", 0)]
)
def test_a_precision_that_a_processor_lacks_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capability: str, precision: Precision, warns: int
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
    Embedder(make_bundle(), device="cpu", precision=precision)
    assert len(caplog.records) == warns
