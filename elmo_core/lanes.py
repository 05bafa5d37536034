"""Which sentence is computed where: whole sentences end to end in lanes, without padding. Integers only.

A *lane* is a row of the LSTMs' batch. It holds whole sentences one after another, and its state is reset where a
sentence starts. Lanes are sorted by length, so that the lanes still at work at a step are always the first ones and
a step multiplies exactly the rows that are needed. The *packed* order lists the rows step by step.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """Steps that the same lanes work at.

    Args:
        rows: Packed rows, step by step: n_steps times n_lanes of them.
        n_lanes: Lanes at work.
    """

    rows: slice
    n_lanes: int


@dataclass(frozen=True, slots=True, eq=False)
class LanePlan:
    """Sentences in lanes, as packed rows.

    Args:
        active: Lanes at work at each step; never grows. Shape: (steps,).
        sentence: Each packed row's sentence. Shape: (rows,), rows = sum of `active`.
        position: Each packed row's position inside its sentence; 0 where a sentence starts. Shape: (rows,).
    """

    active: tuple[int, ...]
    sentence: Integers
    position: Integers

    @property
    def n_lanes(self) -> int:
        """Lanes in all."""
        return self.active[0] if self.active else 0

    @property
    def fill(self) -> float:
        """Rows computed as a share of lanes times steps: 1.0 when all lanes are equally long."""
        return len(self.sentence) / max(1, self.n_lanes * len(self.active))

    def blocks(self, max_rows: int) -> Iterator[Block]:
        """Cut all steps into blocks of at most `max_rows` rows, or one step."""
        row = 0
        for n_lanes, steps in groupby(self.active):
            stop = row + n_lanes * sum(1 for _ in steps)
            n_rows = max(1, max_rows // n_lanes) * n_lanes
            for start in range(row, stop, n_rows):
                yield Block(slice(start, min(stop, start + n_rows)), n_lanes)
            row = stop

    def starts(self, block: Block) -> list[Integers]:
        """For each step of a block the lanes in which a sentence starts."""
        return [step.nonzero()[0] for step in self.position[block.rows].reshape(-1, block.n_lanes) == 0]


def plan_lanes(lengths: Sequence[int], max_lanes: int) -> LanePlan:
    """Lay sentences into lanes: longest first, each onto the shortest lane.

    Args:
        lengths: Positions of each sentence; a sentence of length 0 takes part in nothing.
        max_lanes: No more lanes than this; fewer when the longest sentence bounds the steps anyway.

    Returns:
        A plan in which each position of each sentence stands exactly once.

    Raises:
        ValueError: `max_lanes` is less than 1.
    """
    if max_lanes < 1:
        raise ValueError(f"max_lanes is {max_lanes}; it must be at least 1")
    order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    lanes: list[list[int]] = [[] for _ in range(_count_lanes([lengths[i] for i in order], max_lanes))]
    heap = [(0, lane) for lane in range(len(lanes))]
    for i in order:
        n_steps, lane = heapq.heappop(heap)
        lanes[lane].append(i)
        heapq.heappush(heap, (n_steps + lengths[i], lane))
    n_steps_of = {lane: n_steps for n_steps, lane in heap}
    longest_first = sorted(n_steps_of, key=lambda lane: (-n_steps_of[lane], lane))
    return _pack([lanes[lane] for lane in longest_first], lengths)


def plan_one_lane_each(lengths: Sequence[int]) -> tuple[LanePlan, Integers]:
    """Give each sentence a lane of its own, for state that is carried from batch to batch.

    Args:
        lengths: Positions of each sentence.

    Returns:
        The plan, and the sentence in each lane. Shape: (n sentences,).
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    return _pack([[i] for i in order], lengths), np.array(order, dtype=np.int64)


def _count_lanes(longest_first: Sequence[int], max_lanes: int) -> int:
    if not longest_first:
        return 0
    total = sum(longest_first)
    n_steps = max(longest_first[0], -(-total // max_lanes))
    return min(max_lanes, -(-total // n_steps))


def _pack(lanes: Sequence[Sequence[int]], lengths: Sequence[int]) -> LanePlan:
    lane_lengths = np.array([sum(lengths[i] for i in lane) for lane in lanes], dtype=np.int64)
    n_steps = int(lane_lengths[0]) if len(lanes) else 0
    # lane_lengths falls, so the lanes longer than t are found by counting from the end.
    active = np.searchsorted(-lane_lengths, -np.arange(n_steps), side="left")
    first_row = np.concatenate([[0], np.cumsum(active)]).astype(np.int64)
    sentence = np.empty(first_row[-1], dtype=np.int64)
    position = np.empty(first_row[-1], dtype=np.int64)
    for number, lane in enumerate(lanes):
        rows = first_row[: lane_lengths[number]] + number
        lane_counts = np.array([lengths[i] for i in lane], dtype=np.int64)
        sentence[rows] = np.repeat(np.asarray(lane, dtype=np.int64), lane_counts)
        position[rows] = np.concatenate([np.arange(count) for count in lane_counts])
    return LanePlan(tuple(active.tolist()), sentence, position)
