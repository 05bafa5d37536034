"""What is seen of a long run."""

from __future__ import annotations

import logging

import pytest

from pipelines import progress
from pipelines.progress import ProgressView, show_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_now_and_then(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with ProgressView("training", live=False) as view:
        for tenth in range(10):
            view.show(tenth / 10, f"step {tenth}")
            clock[0] += 10
    assert [record.message for record in caplog.records] == [
        "training 0.0 %: step 0, ? left",
        "training 30.0 %: step 3, 1 min 10 s left",
        "training 60.0 %: step 6, 0 min 40 s left",
        "training 90.0 %: step 9, 0 min 10 s left",
    ]


def test_a_terminal_shows_a_bar(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressView("training", live=True) as view:
        view.show(0.5, "loss 4.2")
    assert "loss 4.2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "shown"), [(3.6, "0 min 04 s"), (119.7, "2 min 00 s"), (7260, "2 h 01 min"), (float("inf"), "?")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert show_seconds(seconds) == shown
