"""Passages of text to windows of training: lanes of sentences one after another, a few steps of each at a time.

Both directions read the same sentences, each from its own end (bilm-tf `data.py`, class BidirectionalLMDataset): forward
reads `<S> a b` and predicts `a b </S>`; backward reads `</S> b a` and predicts `b a <S>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo_core import charids
from elmo_core.charids import BOS, EOS
from elmo_core.vocabulary import Vocabulary

IGNORED: Final = -1
"""Target of a position that is past the end of the text; as in torch's `ignore_index`, it counts for nothing."""

Passage = list[list[str]]
"""Sentences of tokens that follow each other in a text."""


class Passages(Protocol):
    """Text to train on, passage by passage."""

    @property
    def progress(self) -> float:
        """Share of the whole training that was given out, from 0 to 1."""

    def next(self) -> Passage | None:
        """The next passage; None at the end of training."""

    def state_dict(self) -> dict[str, object]:
        """Where it stands, in plain values."""

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go where another stood; what follows is the same."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Window:
    """A few steps of all lanes.

    Args:
        characters: Character ids of the window's distinct tokens. Shape: (N, C).
        inputs: For each direction the token, as a row of `characters`, that is read. Shape: (2, T, B).
        targets: For each direction the id of the token to predict, or `IGNORED`. Shape: (2, T, B).
        keep: 0.0 where a lane starts from zeros, 1.0 where its state goes on; None for 1.0 everywhere. Shape: (T * B, 1).
        n_targets: Positions in each direction that are not ignored.
        progress: Share of the whole training that was read with this window.
    """

    characters: Tensor
    inputs: Tensor
    targets: Tensor
    keep: Tensor | None
    n_targets: int
    progress: float

    def to(self, device: torch.device) -> Window:
        """The same window on another device."""
        keep = None if self.keep is None else self.keep.to(device, non_blocking=True)
        return replace(
            self,
            characters=self.characters.to(device, non_blocking=True),
            inputs=self.inputs.to(device, non_blocking=True),
            targets=self.targets.to(device, non_blocking=True),
            keep=keep,
        )


@dataclass(slots=True)
class _Lane:
    """What a lane has to read: sentences of a passage, the first of them from `position` on."""

    sentences: Passage
    position: int = 0


class Windows:
    """Cut passages into windows. What follows a state is the same whether or not it was saved and loaded.

    Args:
        passages: The text.
        vocabulary: Of the targets.
        n_lanes: B.
        n_steps: T, steps through which gradients flow.
        max_characters_per_token: C.
        reset_probability: Share of sentences that start from zeros instead of their lane's state, so that the biLM
            learns to start as it will when features are made.
        seed: For the draw of those sentences.
    """

    def __init__(
        self,
        passages: Passages,
        vocabulary: Vocabulary,
        *,
        n_lanes: int,
        n_steps: int,
        max_characters_per_token: int,
        reset_probability: float,
        seed: int,
    ) -> None:
        self._passages = passages
        self._vocabulary = vocabulary
        self.n_lanes, self._n_steps = n_lanes, n_steps
        self._max_characters = max_characters_per_token
        self._reset_probability = reset_probability
        self._seed = seed
        self._n_windows = 0
        self._n_given = 0  # positions of the passages that the lanes were given
        self._n_read = 0  # positions
        self._lanes = [_Lane([]) for _ in range(n_lanes)]

    def next(self) -> Window | None:
        """The next window; None when no lane has anything left to read."""
        shape = (2, self._n_steps, self.n_lanes)
        inputs, targets = np.zeros(shape, dtype=np.int64), np.full(shape, IGNORED, dtype=np.int64)
        starts = np.zeros(shape[1:], dtype=bool)
        rows: dict[str, int] = {}
        for number, lane in enumerate(self._lanes):
            self._fill_lane(lane, number, rows, inputs, targets, starts)
        n_targets = int((targets[0] != IGNORED).sum())
        if not n_targets:
            return None
        self._n_windows += 1
        self._n_read += n_targets
        return Window(
            characters=torch.from_numpy(charids.encode_tokens(list(rows), self._max_characters)),
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            keep=self._draw_keep(starts),
            n_targets=n_targets,
            progress=self._passages.progress * self._n_read / self._n_given,
        )

    def empty(self) -> Window:
        """A window with nothing to predict, for a process whose text ended before the others'."""
        shape = (2, self._n_steps, self.n_lanes)
        return Window(
            characters=torch.from_numpy(charids.encode_tokens([BOS], self._max_characters)),
            inputs=torch.zeros(shape, dtype=torch.int64),
            targets=torch.full(shape, IGNORED),
            keep=None,
            n_targets=0,
            progress=1.0,
        )

    def state_dict(self) -> dict[str, object]:
        """Where it stands, in plain values."""
        lanes = [(lane.sentences, lane.position) for lane in self._lanes]
        return {
            "passages": self._passages.state_dict(),
            "n_windows": self._n_windows,
            "n_given": self._n_given,
            "n_read": self._n_read,
            "lanes": lanes,
        }

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go where another stood."""
        self._passages.load_state_dict(state["passages"])  # type: ignore[arg-type]
        self._n_windows = state["n_windows"]  # type: ignore[assignment]
        self._n_given, self._n_read = state["n_given"], state["n_read"]  # type: ignore[assignment]
        self._lanes = [_Lane(sentences, position) for sentences, position in state["lanes"]]  # type: ignore[attr-defined]

    def _fill_lane(
        self,
        lane: _Lane,
        number: int,
        rows: dict[str, int],
        inputs: npt.NDArray[np.int64],
        targets: npt.NDArray[np.int64],
        starts: npt.NDArray[np.bool_],
    ) -> None:
        step = 0
        while step < self._n_steps:
            if not lane.sentences:
                passage = self._passages.next()
                if passage is None:
                    return
                lane.sentences = list(passage)
                self._n_given += measure_passage(passage)
            sentence = lane.sentences[0]
            start, stop = lane.position, min(lane.position + self._n_steps - step, len(sentence) + 1)
            steps = slice(step, step + stop - start)
            for way, (first, tokens, last) in enumerate(((BOS, sentence, EOS), (EOS, sentence[::-1], BOS))):
                read = [first, *tokens][start:stop]
                inputs[way, steps, number] = [rows.setdefault(token, len(rows)) for token in read]
                targets[way, steps, number] = self._vocabulary.ids([*tokens, last][start:stop])
            starts[step, number] = start == 0
            step, lane.position = steps.stop, stop
            if stop > len(sentence):
                lane.sentences, lane.position = lane.sentences[1:], 0

    def _draw_keep(self, starts: npt.NDArray[np.bool_]) -> Tensor | None:
        if not self._reset_probability:
            return None
        draws = np.random.default_rng((self._seed, self._n_windows)).random(starts.shape)
        keep = ~(starts & (draws < self._reset_probability))
        return torch.from_numpy(keep.astype(np.float32).reshape(-1, 1))


def measure_passage(passage: Sequence[Sequence[str]]) -> int:
    """Positions that a lane reads of a passage: its tokens and one boundary token a sentence."""
    return sum(len(sentence) + 1 for sentence in passage)
