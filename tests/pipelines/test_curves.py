"""What is kept of a run's course."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmo_core import BundleError
from pipelines.curves import Curves, read_history


def _course(folder: Path, steps: range, *, after: int = 0) -> None:
    curves = Curves(folder, step=after)
    for step in steps:
        curves.add(step, {"loss/forward": 9.0 - step, "loss/backward": 9.5 - step})
    curves.add(steps[-1], {"heldout/perplexity": 100.0})
    curves.close()


def test_values_and_a_picture_are_kept(tmp_path: Path) -> None:
    _course(tmp_path, range(1, 4))
    assert [entry["step"] for entry in read_history(tmp_path)] == [1, 2, 3, 3]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_a_resumed_run_has_one_history(tmp_path: Path) -> None:
    _course(tmp_path, range(1, 6))
    with (tmp_path / "history.jsonl").open("a") as stream:
        stream.write('{"step": 6, "loss')  # as a crash leaves it
    _course(tmp_path, range(4, 7), after=3)
    assert [entry["step"] for entry in read_history(tmp_path)] == [1, 2, 3, 4, 5, 6, 6]


@pytest.mark.parametrize("name", ["history.jsonl", "tensorboard"])
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fill() -> None:
        raise OSError(28, "No space left on device")

    curves = Curves(tmp_path, step=0)
    with monkeypatch.context() as patched:
        if name == "tensorboard":
            patched.setattr(curves._events, "flush", fill)
        else:
            (tmp_path / name).unlink()
            (tmp_path / name).symlink_to("/dev/full")
        with pytest.raises(BundleError, match=r"\(No space left on device\); make room and go on with --resume") as caught:
            curves.add(1, {"loss/forward": 9.0, "loss/backward": 9.5})
    assert caught.value.where == str(tmp_path / name)
    curves.close()


def test_a_run_without_a_step_has_a_picture_too(tmp_path: Path) -> None:
    Curves(tmp_path, step=0).close()
    assert (tmp_path / "curves.png").exists()
