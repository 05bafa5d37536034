"""Which steps are taken."""

from __future__ import annotations

import math

import pytest

from elmo_core.training.guard import MAX_SKIPPED, Guard


def _settled() -> Guard:
    guard = Guard()
    for _ in range(100):
        assert guard.judge(5.0, 1.0) == "good"
    return guard


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (5.0, math.inf), (8.0, 1.0), (5.0, 100.0)])
def test_spikes_are_skipped_and_do_not_move_the_means(loss: float, norm: float) -> None:
    guard = _settled()
    assert guard.judge(loss, norm) == "skip"
    assert (guard.loss, guard.norm, guard.n_skipped) == (pytest.approx(5.0), pytest.approx(1.0), 1)


def test_several_bad_steps_in_a_row_roll_back() -> None:
    guard = _settled()
    verdicts = [guard.judge(math.nan, 1.0) for _ in range(MAX_SKIPPED + 2)]
    assert verdicts == ["skip"] * MAX_SKIPPED + ["roll back", "skip"]


def test_a_good_step_between_bad_ones_starts_the_count_anew() -> None:
    guard = _settled()
    verdicts = [guard.judge(loss, 1.0) for loss in [math.nan, math.nan, 5.0, math.nan, math.nan]]
    assert "roll back" not in verdicts


def test_a_fall_in_loss_is_no_spike() -> None:
    guard = _settled()
    assert guard.judge(1.0, 1.0) == "good"


def test_its_state_is_plain_and_whole() -> None:
    guard = _settled()
    assert Guard(**guard.state_dict()) == guard  # type: ignore[arg-type]
