"""The whole biLM with state carried from batch to batch, as the reference runs it."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from builders import make_config

from elmo_core import initialize_bilm, load_bundle
from elmo_core.charids import BOS, EOS, encode_tokens


def _encode(sentences: list[list[str]]) -> tuple[torch.Tensor, list[int]]:
    lengths = [len(tokens) for tokens in sentences]
    ids = torch.zeros(len(sentences), max(lengths), 50, dtype=torch.long)
    for row, tokens in zip(ids, sentences, strict=True):
        row[: len(tokens)] = torch.from_numpy(encode_tokens(tokens, 50))
    return ids, lengths


@pytest.mark.golden
@pytest.mark.parametrize(
    ("case", "file"),
    [("bilm_tf_stateful", "lm_embeddings_sentences.json"), ("allennlp_stateful", "sentences.json")],
)
def test_three_streams_with_carried_state_equal_the_reference(golden: Path, case: str, file: str) -> None:
    folder = golden / case
    bilm, state = load_bundle(folder).build_bilm(), None
    streams = json.loads((folder / file).read_text(encoding="utf-8"))
    expected = [h5py.File(folder / f"lm_embeddings_{k}.hdf5") for k in range(3)]
    for i in range(10):
        sentences = [[BOS, *stream[i].split(), EOS] for stream in streams]
        output = bilm(*_encode(sentences), state)
        state = output.state
        for k, tokens in enumerate(sentences):
            top = output.layers[-1, k, 1 : len(tokens) - 1].numpy()
            want = np.concatenate(np.asarray(expected[k][str(i)]), axis=1)
            np.testing.assert_allclose(top, want, rtol=0, atol=1e-5)


@pytest.mark.golden
def test_token_vectors_equal_the_reference(golden: Path) -> None:
    folder = golden / "allennlp_stateful"
    bilm = load_bundle(folder).build_bilm()
    tokens = (folder / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        expected = np.asarray(file["embedding"])
    actual = bilm.char_cnn(torch.from_numpy(encode_tokens(tokens, 50))).numpy()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


def test_a_batch_is_its_sentences() -> None:
    bilm = initialize_bilm(make_config(), 0).requires_grad_(False)
    sentences = [["a", "b", "c"], ["d"], ["e", "f", "g", "h"]]
    together = bilm(*_encode(sentences))
    for i, tokens in enumerate(sentences):
        alone = bilm(*_encode([tokens]))
        torch.testing.assert_close(together.layers[:, i : i + 1, : len(tokens)], alone.layers)
        torch.testing.assert_close(together.state.backward.cell[:, i : i + 1], alone.state.backward.cell)
        assert not together.layers[:, i, len(tokens) :].any()


def test_a_sentence_in_two_parts_with_carried_state_is_the_whole_to_the_forward_direction() -> None:
    bilm = initialize_bilm(make_config(), 0).requires_grad_(False)
    whole = bilm(*_encode([["a", "b", "c", "d", "e"]]))
    first = bilm(*_encode([["a", "b"]]))
    second = bilm(*_encode([["c", "d", "e"]]), first.state)
    torch.testing.assert_close(torch.cat([first.layers, second.layers], dim=2)[..., :8], whole.layers[..., :8])
    torch.testing.assert_close(second.state.forward.cell, whole.state.forward.cell)


def test_the_backward_direction_reads_the_parts_from_the_end() -> None:
    bilm = initialize_bilm(make_config(), 0).requires_grad_(False)
    whole = bilm(*_encode([["a", "b", "c", "d", "e"]]))
    second = bilm(*_encode([["c", "d", "e"]]))
    first = bilm(*_encode([["a", "b"]]), second.state)
    torch.testing.assert_close(torch.cat([first.layers, second.layers], dim=2)[..., 8:], whole.layers[..., 8:])
    torch.testing.assert_close(first.state.backward.cell, whole.state.backward.cell)


def test_the_state_passed_in_is_left_alone_and_matters() -> None:
    bilm = initialize_bilm(make_config(), 0).requires_grad_(False)
    ids, lengths = _encode([["a", "b"], ["c", "d"]])
    state = bilm(ids, lengths).state
    before = [tensor.clone() for way in (state.forward, state.backward) for tensor in (way.hidden, way.cell)]
    first, second = bilm(ids, lengths, state), bilm(ids, lengths, state)
    torch.testing.assert_close(first.layers, second.layers)
    after = [tensor for way in (state.forward, state.backward) for tensor in (way.hidden, way.cell)]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert not torch.allclose(first.layers, bilm(ids, lengths).layers)


def test_what_lies_past_a_sentence_does_not_matter() -> None:
    bilm = initialize_bilm(make_config(), 0).requires_grad_(False)
    ids, lengths = _encode([["a", "b", "c"], ["d"]])
    expected = bilm(ids, lengths)
    ids[1, 1:] = 77
    actual = bilm(ids, lengths)
    torch.testing.assert_close(actual.layers, expected.layers, rtol=0, atol=0)
    torch.testing.assert_close(actual.state.backward.cell, expected.state.backward.cell, rtol=0, atol=0)
