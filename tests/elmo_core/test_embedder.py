"""Vectors that depend on the sentence and the bundle alone, held against the reference implementations."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import make_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_core import BundleError, ConfigError, Embedder, load_embedder
from elmo_core.charids import encode_tokens
from elmo_core.embedder import plan_batches

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


@pytest.mark.parametrize(("limit", "value"), [("BATCH_TOKENS", 3), ("MAX_LANES", 1), ("MAX_LANES", 2), ("CNN_TOKENS", 1)])
def test_limits_change_no_vector(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    expected = EMBEDDER.embed(SENTENCES)
    monkeypatch.setattr(f"elmo_core.embedder.{limit}", value)
    for actual, want in zip(EMBEDDER.embed(SENTENCES), expected, strict=True):
        np.testing.assert_allclose(actual, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("sentences", [[], [[]], [[], []]])
def test_nothing_to_embed_gives_nothing(sentences: list[list[str]]) -> None:
    assert [vectors.shape for vectors in EMBEDDER.embed(sentences)] == [(3, 0, 16)] * len(sentences)


def test_the_embedder_equals_the_bilm_between_boundary_tokens() -> None:
    tokens = ["The", "cat", "sat"]
    ids = torch.from_numpy(encode_tokens(["<S>", *tokens, "</S>"], 50))[None]
    expected = make_bundle().build_bilm()(ids, [5]).layers[:, 0, 1:-1].numpy()
    np.testing.assert_allclose(EMBEDDER.embed([tokens])[0], expected, rtol=0, atol=1e-6)


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


def test_batches_hold_every_sentence_once_within_the_limit() -> None:
    batches = list(plan_batches([5, 5, 5, 30, 0, 1], 10))
    assert batches == [range(0, 2), range(2, 3), range(3, 4), range(4, 6)]


def test_distinct_tokens_go_through_the_char_cnn_once() -> None:
    embedder = Embedder(make_bundle(), device="cpu")
    n_rows: list[int] = []
    embedder._bilm.char_cnn.register_forward_hook(lambda _, inputs, output: n_rows.append(len(output)))
    embedder.embed([["a", "b", "a"], ["b", "c"]])
    assert sum(n_rows) == 3 + 2  # and the two boundary tokens


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
