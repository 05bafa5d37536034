"""Sources to passages of text for training: in an order drawn anew each epoch, in bounded memory, and resumable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, cast

import numpy as np

from elmo_core.training.windows import Passage, measure_passage
from pipelines.textunits import TextSource, TextUnit

PASSAGE_POSITIONS: Final = 1000
"""Positions after which a passage ends with its sentence: long against a window, short against a range."""
BUFFER_PASSAGES: Final = 256
"""Passages among which the next one is drawn: some 20 MB, and about 16 ranges of text."""


class SourcePassages:
    """Passages of this process's share of the units, epoch after epoch.

    The units' order is drawn for each epoch; passages go through a buffer from which the next one is drawn, so that
    neighbours in a source part. Both draws follow from the seed and from how many came before.

    Args:
        units: Of all processes together.
        source: How they are read.
        epochs: Times that everything is read.
        seed: For the draws.
        rank: This process, from 0.
        n_ranks: Processes.
    """

    def __init__(
        self, units: Sequence[TextUnit], source: TextSource, *, epochs: int, seed: int, rank: int = 0, n_ranks: int = 1
    ) -> None:
        self._units, self._source = units, source
        self._epochs, self._seed, self._rank, self._n_ranks = epochs, seed, rank, n_ranks
        self._epoch = 0
        self._unit = 0  # place in this process's share of the epoch
        self._range = 0  # ranges of the unit that were given out
        self._passage = 0  # passages of the range that were given out
        self._n_drawn = 0
        self._buffer: list[Passage] = []
        self._bytes_done = 0
        self._n_given = 0  # positions
        self._n_buffered = 0  # positions
        self._order = self._draw_order()
        self._reading = self._read()

    @property
    def progress(self) -> float:
        """Share of all epochs' bytes that was read, less what waits in the buffer."""
        n_bytes = sum(unit.n_bytes for unit in self._units) * self._epochs / self._n_ranks
        read = min(1.0, self._bytes_done / max(1.0, n_bytes))
        return read * self._n_given / max(1, self._n_given + self._n_buffered)

    def next(self) -> Passage | None:
        """The next passage; None at the end.

        Raises:
            CorpusError: A source can't be read.
        """
        while len(self._buffer) < BUFFER_PASSAGES and (read := next(self._reading, None)) is not None:
            self._buffer.append(read)
            self._n_buffered += measure_passage(read)
        if not self._buffer:
            return None
        drawn = int(np.random.default_rng((self._seed, self._rank, self._n_drawn)).integers(len(self._buffer)))
        self._n_drawn += 1
        self._buffer[drawn], self._buffer[-1] = self._buffer[-1], self._buffer[drawn]
        passage = self._buffer.pop()
        self._n_buffered -= measure_passage(passage)
        self._n_given += measure_passage(passage)
        return passage

    def state_dict(self) -> dict[str, object]:
        """Where it stands; the buffer's text is in it."""
        return {
            "epoch": self._epoch,
            "unit": self._unit,
            "range": self._range,
            "passage": self._passage,
            "n_drawn": self._n_drawn,
            "bytes_done": self._bytes_done,
            "n_given": self._n_given,
            "buffer": list(self._buffer),
        }

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go where another stood: at once in plain sources, past what was read in a compressed one."""
        self._epoch, self._unit, self._range, self._passage = (
            cast(int, state[name]) for name in ("epoch", "unit", "range", "passage")
        )
        self._n_drawn, self._bytes_done, self._n_given = (cast(int, state[name]) for name in ("n_drawn", "bytes_done", "n_given"))
        self._buffer = list(cast("list[Passage]", state["buffer"]))
        self._n_buffered = sum(measure_passage(passage) for passage in self._buffer)
        self._order = self._draw_order()
        self._reading = self._read()

    def _draw_order(self) -> list[TextUnit]:
        order = np.random.default_rng((self._seed, self._epoch)).permutation(len(self._units))
        return [self._units[i] for i in order[self._rank :: self._n_ranks]]

    def _read(self) -> Iterator[Passage]:
        while self._epoch < self._epochs:
            while self._unit < len(self._order):
                unit = self._order[self._unit]
                for sentences in self._source.sentences(unit.text_range, skip_ranges=self._range):
                    for passage in islice(cut_passages(sentences), self._passage, None):
                        self._passage += 1
                        yield passage
                    self._range, self._passage = self._range + 1, 0
                self._bytes_done += unit.n_bytes
                self._unit, self._range = self._unit + 1, 0
            self._epoch, self._unit = self._epoch + 1, 0
            self._order = self._draw_order()


def cut_passages(sentences: Sequence[list[str]]) -> Iterator[Passage]:
    """Cut the sentences of a range into passages of about `PASSAGE_POSITIONS` positions."""
    passage: Passage = []
    n_positions = 0
    for sentence in sentences:
        passage.append(sentence)
        n_positions += measure_passage([sentence])
        if n_positions >= PASSAGE_POSITIONS:
            yield passage
            passage, n_positions = [], 0
    if passage:
        yield passage
