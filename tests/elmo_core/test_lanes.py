"""Laws of the lanes: nothing is left out, done twice, padded or torn."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_core.lanes import LanePlan, plan_lanes, plan_one_lane_each

LENGTHS = st.lists(st.integers(0, 30), max_size=40)


def _lanes(plan: LanePlan) -> list[list[tuple[int, int]]]:
    """Each lane's (sentence, position), step by step."""
    lanes: list[list[tuple[int, int]]] = [[] for _ in range(plan.n_lanes)]
    row = 0
    for n_lanes in plan.active:
        for lane in range(n_lanes):
            lanes[lane].append((int(plan.sentence[row]), int(plan.position[row])))
            row += 1
    assert row == len(plan.sentence)
    return lanes


@given(LENGTHS, st.integers(1, 10))
def test_every_position_stands_exactly_once(lengths: list[int], max_lanes: int) -> None:
    plan = plan_lanes(lengths, max_lanes)
    cells = sorted(zip(plan.sentence.tolist(), plan.position.tolist(), strict=True))
    assert cells == [(i, position) for i, length in enumerate(lengths) for position in range(length)]


@given(LENGTHS, st.integers(1, 10))
def test_a_sentence_stands_whole_in_one_lane(lengths: list[int], max_lanes: int) -> None:
    for lane in _lanes(plan_lanes(lengths, max_lanes)):
        for (before, at), (sentence, position) in pairwise(lane):
            assert (sentence, position) == (before, at + 1) or (position == 0 and at == lengths[before] - 1)


@given(LENGTHS, st.integers(1, 10))
def test_lanes_are_bounded_and_never_come_back(lengths: list[int], max_lanes: int) -> None:
    plan = plan_lanes(lengths, max_lanes)
    assert plan.n_lanes <= max_lanes
    assert list(plan.active) == sorted(plan.active, reverse=True)
    assert all(n > 0 for n in plan.active)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 10))
def test_longest_first_is_near_the_best(lengths: list[int], max_lanes: int) -> None:
    plan = plan_lanes(lengths, max_lanes)
    best = max(max(lengths), -(-sum(lengths) // plan.n_lanes))
    assert best <= len(plan.active) <= best + max(lengths)  # Graham 1969 bounds it tighter still


def test_real_lengths_fill_the_lanes() -> None:
    lengths = np.random.default_rng(0).integers(2, 60, 300).tolist()
    assert plan_lanes(lengths, 64).fill > 0.9


@pytest.mark.parametrize(
    ("lengths", "max_lanes", "active", "fill"),
    [
        ([4], 1, (1, 1, 1, 1), 1.0),
        ([4, 2], 2, (2, 2, 1, 1), 0.75),
        ([4, 0, 2, 2], 2, (2, 2, 2, 2), 1.0),
        ([3, 1], 1, (1,) * 4, 1.0),
    ],
)
def test_fill_is_the_share_of_rows_at_work(lengths: list[int], max_lanes: int, active: tuple[int, ...], fill: float) -> None:
    plan = plan_lanes(lengths, max_lanes)
    assert (plan.active, plan.fill) == (active, fill)


@given(LENGTHS, st.integers(1, 10), st.integers(1, 30))
def test_blocks_hold_every_row_once_with_the_same_lanes(lengths: list[int], max_lanes: int, max_rows: int) -> None:
    plan = plan_lanes(lengths, max_lanes)
    blocks = list(plan.blocks(max_rows))
    assert [row for b in blocks for row in range(b.rows.start, b.rows.stop)] == list(range(len(plan.sentence)))
    steps = [b.n_lanes for b in blocks for _ in range((b.rows.stop - b.rows.start) // b.n_lanes)]
    assert steps == list(plan.active)
    assert all(b.rows.stop - b.rows.start <= max(max_rows, b.n_lanes) for b in blocks)


@given(LENGTHS, st.integers(1, 10))
def test_starts_are_the_first_positions(lengths: list[int], max_lanes: int) -> None:
    plan = plan_lanes(lengths, max_lanes)
    starts = [(step, int(lane)) for b in plan.blocks(50) for step, lanes in enumerate(plan.starts(b)) for lane in lanes]
    assert len(starts) == sum(length > 0 for length in lengths)
    for block in plan.blocks(50):
        for step, lanes in enumerate(plan.starts(block)):
            assert all(plan.position[block.rows.start + step * block.n_lanes + lane] == 0 for lane in lanes)


def test_no_sentence_makes_no_lane() -> None:
    plan = plan_lanes([0, 0], 4)
    assert (plan.n_lanes, plan.active, len(plan.sentence)) == (0, (), 0)


def test_less_than_one_lane_is_refused() -> None:
    with pytest.raises(ValueError, match="max_lanes is 0"):
        plan_lanes([1], 0)


@given(st.lists(st.integers(1, 30), max_size=20))
def test_one_lane_each_says_which_sentence_is_where(lengths: list[int]) -> None:
    plan, order = plan_one_lane_each(lengths)
    expected = [[(int(i), position) for position in range(lengths[i])] for i in order]
    assert _lanes(plan) == expected
