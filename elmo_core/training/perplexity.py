"""How well a language model predicts text it wasn't trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from elmo_core import charids
from elmo_core.bilm import BiLM, BiLMState
from elmo_core.charids import BOS, EOS
from elmo_core.lanes import plan_one_lane_each
from elmo_core.lstm import LstmState
from elmo_core.training.objective import Softmax
from elmo_core.vocabulary import Vocabulary

BUFFER_POSITIONS: Final = 65_536
"""Positions of sentences that are sorted by length at a time, so that those of one batch are about equally long."""
BATCH_POSITIONS: Final = 4096
"""Positions of a batch at most, or one longer sentence: about as much memory as a window of training takes."""
SOFTMAX_ROWS: Final = 1024
"""Rows whose logits are computed at once: 64 MB for 16,000 words."""
WARM_SENTENCES: Final = 16
WARM_LANES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Perplexity:
    """Likelihood of a text, each sentence alone, its end told too (bilm-tf `training.py`, `test`).

    Args:
        forward_nats: Negative log-likelihood of the forward direction, of all targets together.
        backward_nats: The same of the backward direction.
        n_targets: Predictions in each direction: the tokens, and one boundary token a sentence.
        n_tokens: The tokens alone.
        n_unknown: Tokens that the vocabulary doesn't have; the model predicts `<UNK>` for them, which is easier.
        n_sentences: Sentences with a token.
    """

    forward_nats: float
    backward_nats: float
    n_targets: int
    n_tokens: int
    n_unknown: int
    n_sentences: int

    @property
    def forward(self) -> float:
        """Perplexity of the forward direction."""
        return _exponential(self.forward_nats, self.n_targets)

    @property
    def backward(self) -> float:
        """Perplexity of the backward direction."""
        return _exponential(self.backward_nats, self.n_targets)

    @property
    def average(self) -> float:
        """Exponential of both directions' mean loss: the reference's number."""
        return _exponential(self.forward_nats + self.backward_nats, 2 * self.n_targets)

    @property
    def unknown_share(self) -> float:
        """Tokens that the vocabulary doesn't have, as a share of all."""
        return self.n_unknown / max(1, self.n_tokens)


def measure_perplexity(
    bilm: BiLM, softmax: Softmax, vocabulary: Vocabulary, sentences: Iterable[Sequence[str]], *, start: BiLMState | None = None
) -> Perplexity:
    """Measure perplexity under the whole softmax.

    Each sentence is read from the same state, so the figures depend neither on the order of the sentences nor on how
    they are batched, but for rounding.

    Args:
        bilm: On the device where it is to run.
        softmax: On the same device.
        vocabulary: The softmax's.
        sentences: Any number; those without tokens are passed over.
        start: For one lane; zeros when None.
    """
    nats, n_targets, n_tokens, n_unknown, n_sentences = [0.0, 0.0], 0, 0, 0, 0
    with torch.inference_mode():
        for batch in _batches(sentences):
            targets = [vocabulary.ids(sentence) for sentence in batch]
            n_tokens += sum(len(ids) for ids in targets)
            n_unknown += sum(ids.count(vocabulary.unknown_id) for ids in targets)
            n_sentences += len(batch)
            n_targets += sum(len(ids) + 1 for ids in targets)
            bos, eos = vocabulary.ids([BOS, EOS])
            states = (start or bilm.zero_state(1)).repeat(len(batch))
            run = run_sentences(bilm, batch, states)
            for way, last in ((0, eos), (1, bos)):
                nats[way] += _sum_losses(softmax, run.tops[way], _targets_in_order(run, targets, last, is_backward=way == 1))
    return Perplexity(
        forward_nats=nats[0],
        backward_nats=nats[1],
        n_targets=n_targets,
        n_tokens=n_tokens,
        n_unknown=n_unknown,
        n_sentences=n_sentences,
    )


def make_warm_state(bilm: BiLM, sentences: Sequence[Sequence[str]]) -> BiLMState:
    """The state that a biLM is in where a sentence starts, on average over a fixed text.

    The text's sentences are read in lanes, each from the state that the one before left; what the lanes end in is
    averaged.

    Args:
        bilm: The biLM.
        sentences: A text, in order; about a thousand sentences are read.

    Returns:
        For one lane, on the biLM's device.
    """
    told = [sentence for sentence in sentences if sentence]
    n_lanes = max(1, min(WARM_LANES, len(told) // WARM_SENTENCES))
    n_rounds = min(WARM_SENTENCES, len(told) // n_lanes)
    state = bilm.zero_state(n_lanes)
    with torch.inference_mode():
        for number in range(n_rounds):
            state = run_sentences(bilm, [told[lane * n_rounds + number] for lane in range(n_lanes)], state).state
    ways = (state.forward, state.backward)
    return BiLMState(*(LstmState(way.hidden.mean(1, keepdim=True), way.cell.mean(1, keepdim=True)) for way in ways))


@dataclass(frozen=True, slots=True, eq=False)
class SentenceRun:
    """Sentences as both directions read them.

    Args:
        tops: Top layer's outputs in packed order, forward and backward. Shape: (2, rows, D).
        sentence: Each row's sentence. Shape: (rows,).
        position: Each row's place in the order in which its direction reads. Shape: (rows,).
        state: Each sentence's last state.
    """

    tops: Tensor
    sentence: Tensor
    position: Tensor
    state: BiLMState


def run_sentences(bilm: BiLM, sentences: Sequence[Sequence[str]], state: BiLMState) -> SentenceRun:
    """Read sentences as training does: each direction its boundary token first, and not the other one.

    Args:
        bilm: The biLM.
        sentences: Token lists.
        state: Where each sentence starts.
    """
    device = next(bilm.parameters()).device
    plan, order = plan_one_lane_each([len(sentence) + 1 for sentence in sentences])
    lanes = torch.from_numpy(order).to(device)
    rows: dict[str, int] = {BOS: 0, EOS: 1}
    read = [[rows.setdefault(token, len(rows)) for token in sentence] for sentence in sentences]
    ids = charids.encode_tokens(list(rows), bilm.config.char_cnn.max_characters_per_token)
    vectors = bilm.char_cnn(torch.from_numpy(ids).to(device))
    ways = ([[0, *tokens] for tokens in read], [[1, *reversed(tokens)] for tokens in read])
    tops, states = [], []
    places = list(zip(plan.sentence.tolist(), plan.position.tolist(), strict=True))
    for way, lstm, before in ((0, bilm.forward_lstm, state.forward), (1, bilm.backward_lstm, state.backward)):
        inputs = torch.tensor([ways[way][sentence][position] for sentence, position in places], device=device)
        outputs, after = lstm(vectors[inputs], plan.active, before.select(lanes))
        tops.append(outputs[-1])
        states.append(after.select(lanes.argsort()))
    return SentenceRun(torch.stack(tops), torch.from_numpy(plan.sentence), torch.from_numpy(plan.position), BiLMState(*states))


def _targets_in_order(run: SentenceRun, targets: list[list[int]], last: int, *, is_backward: bool) -> Tensor:
    ways = [[*(reversed(ids) if is_backward else ids), last] for ids in targets]
    places = zip(run.sentence.tolist(), run.position.tolist(), strict=True)
    return torch.tensor([ways[sentence][position] for sentence, position in places], device=run.tops.device)


def _sum_losses(softmax: Softmax, hidden: Tensor, targets: Tensor) -> float:
    cuts = [slice(start, start + SOFTMAX_ROWS) for start in range(0, len(targets), SOFTMAX_ROWS)]
    return sum(float(softmax.losses(hidden[cut], targets[cut]).double().sum()) for cut in cuts)


def _batches(sentences: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    buffer: list[Sequence[str]] = []
    n_positions = 0
    for sentence in sentences:
        if not sentence:
            continue
        buffer.append(sentence)
        n_positions += len(sentence) + 1
        if n_positions >= BUFFER_POSITIONS:
            yield from _cut_sorted(buffer)
            buffer, n_positions = [], 0
    yield from _cut_sorted(buffer)


def _cut_sorted(buffer: list[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    batch: list[Sequence[str]] = []
    n_positions = 0
    for sentence in sorted(buffer, key=len):
        if batch and n_positions + len(sentence) + 1 > BATCH_POSITIONS:
            yield batch
            batch, n_positions = [], 0
        batch.append(sentence)
        n_positions += len(sentence) + 1
    if batch:
        yield batch


def _exponential(nats: float, n_targets: int) -> float:
    return math.exp(min(700.0, nats / max(1, n_targets)))
