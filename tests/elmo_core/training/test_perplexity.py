"""Perplexity: the formula, whatever the batches; and the warm state."""

from __future__ import annotations

import math

import pytest
import torch
from builders import make_config

from elmo_core import BiLM, BiLMState, LstmState, charids, initialize_bilm
from elmo_core.training import perplexity
from elmo_core.training.objective import Softmax
from elmo_core.training.perplexity import make_warm_state, measure_perplexity
from elmo_core.vocabulary import Vocabulary

VOCABULARY = Vocabulary(("</S>", "<S>", "<UNK>", "a", "b", "c"))
SENTENCES = [["a", "b"], ["c"], [], ["b", "zebra", "a", "a", "c"], ["zebra"]] * 3


def _bilm() -> BiLM:
    return initialize_bilm(make_config(), 1).requires_grad_(False)


def _softmax() -> Softmax:
    softmax = Softmax(len(VOCABULARY), 8)
    softmax.initialize(0)
    return softmax.requires_grad_(False)


def _nats_by_the_reference_path(sentences: list[list[str]], start: BiLMState | None = None) -> tuple[float, float]:
    """Through `BiLM.forward`, which golden outputs hold, sentence by sentence."""
    bilm, softmax = _bilm(), _softmax()
    forward = backward = 0.0
    for sentence in sentences:
        if sentence:
            ids = charids.encode_tokens(["<S>", *sentence, "</S>"], 50)
            layers = bilm(torch.from_numpy(ids)[None], [len(ids)], start).layers[-1, 0]
            targets = torch.tensor(VOCABULARY.ids(["<S>", *sentence, "</S>"]))
            forward += float(softmax.losses(layers[:-1, :8], targets[1:]).sum())
            backward += float(softmax.losses(layers[1:, 8:], targets[:-1]).sum())
    return forward, backward


def test_it_is_the_likelihood_of_every_token_and_the_end() -> None:
    measured = measure_perplexity(_bilm(), _softmax(), VOCABULARY, SENTENCES)
    forward, backward = _nats_by_the_reference_path(SENTENCES)
    assert measured.n_targets == 39
    assert measured.forward == pytest.approx(math.exp(forward / 39), rel=1e-5)
    assert measured.backward == pytest.approx(math.exp(backward / 39), rel=1e-5)
    assert measured.average == pytest.approx(math.sqrt(measured.forward * measured.backward))


def test_unknown_words_are_counted() -> None:
    measured = measure_perplexity(_bilm(), _softmax(), VOCABULARY, SENTENCES)
    assert (measured.n_tokens, measured.n_unknown, measured.n_sentences) == (27, 6, 12)


@pytest.mark.parametrize("batch_positions", [1, 20, 1000])
def test_batches_and_order_change_nothing(monkeypatch: pytest.MonkeyPatch, batch_positions: int) -> None:
    expected = measure_perplexity(_bilm(), _softmax(), VOCABULARY, SENTENCES)
    monkeypatch.setattr(perplexity, "BATCH_POSITIONS", batch_positions)
    actual = measure_perplexity(_bilm(), _softmax(), VOCABULARY, SENTENCES[::-1])
    assert actual.forward_nats == pytest.approx(expected.forward_nats, rel=1e-6)
    assert actual.backward_nats == pytest.approx(expected.backward_nats, rel=1e-6)


def test_every_sentence_starts_from_the_state_given() -> None:
    generator = torch.Generator().manual_seed(0)
    ways = (LstmState(torch.rand(2, 1, 8, generator=generator), torch.rand(2, 1, 24, generator=generator)) for _ in range(2))
    start = BiLMState(*ways)
    measured = measure_perplexity(_bilm(), _softmax(), VOCABULARY, SENTENCES, start=start)
    forward, backward = _nats_by_the_reference_path(SENTENCES, start)
    assert (measured.forward_nats, measured.backward_nats) == (
        pytest.approx(forward, rel=1e-5),
        pytest.approx(backward, rel=1e-5),
    )


def test_the_warm_state_of_one_lane_is_where_its_sentences_end() -> None:
    bilm = _bilm()
    vectors = bilm.char_cnn(torch.from_numpy(charids.encode_tokens(["<S>", "a", "b", "<S>", "c"], 50)))
    _, expected = bilm.forward_lstm(vectors, [1] * 5, bilm.forward_lstm.zero_state(1))
    actual = make_warm_state(bilm, [["a", "b"], [], ["c"]]).forward
    torch.testing.assert_close(actual.hidden, expected.hidden)
    torch.testing.assert_close(actual.cell, expected.cell)


def test_the_warm_state_does_not_change_from_call_to_call() -> None:
    text = [["a"] * (i % 5 + 1) for i in range(200)]
    first, second = (make_warm_state(_bilm(), text) for _ in range(2))
    assert torch.equal(first.backward.cell, second.backward.cell)
