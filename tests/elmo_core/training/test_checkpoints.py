"""Checkpoints: whole or not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from elmo_core import BundleError, ConfigError
from elmo_core.training.checkpoints import Checkpoints, check_same


def _save(checkpoints: Checkpoints, step: int) -> None:
    checkpoints.begin(step)
    checkpoints.write(step, {"weights": torch.full((3,), float(step))}, {"lanes": [[["a", "b"]], 1]})
    checkpoints.publish(step)


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    _save(checkpoints, 5)
    assert checkpoints.load_shared(5)["weights"].tolist() == [5.0] * 3
    assert checkpoints.load_own(5) == {"lanes": [[["a", "b"]], 1]}


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 20, 300):
        _save(checkpoints, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000020", "step-00000300"]
    assert checkpoints.latest() == 300


def test_one_that_was_not_published_does_not_count_and_goes(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    _save(checkpoints, 1)
    checkpoints.begin(2)
    checkpoints.write(2, {"weights": torch.zeros(3)}, {})
    assert Checkpoints(tmp_path).latest() == 1
    _save(checkpoints, 3)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_disk_that_fills_leaves_the_last_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    _save(checkpoints, 1)
    checkpoints.begin(2)
    (tmp_path / "step-00000002.tmp" / "model.pt").symlink_to("/dev/full")
    message = r"\(No space left on device\); the checkpoint of step 1 is whole: make room and go on with --resume"
    with pytest.raises(BundleError, match=message):
        checkpoints.write(2, {"weights": torch.zeros(100_000)}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole[:100], lambda whole: whole.replace(b"@@", b"@A")])
def test_a_damaged_one_is_told(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.begin(1)
    checkpoints.write(1, {"weights": torch.full((3,), 3.003173828125)}, {})  # 0x40403400
    checkpoints.publish(1)
    path = tmp_path / "step-00000001" / "model.pt"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BundleError, match=r"is damaged \(.*\); delete its folder to go on from the one before") as caught:
        checkpoints.load_shared(1)
    assert caught.value.where == str(path)


def test_a_part_that_is_missing_is_told(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    _save(checkpoints, 1)
    with pytest.raises(BundleError, match=r"rank-1\.pt: is missing; delete its folder to go on from the one before"):
        Checkpoints(tmp_path, rank=1).load_own(1)
    with pytest.raises(BundleError, match=r"best\.pt: is missing; put back a copy of it"):
        checkpoints.load_best()


def test_other_options_are_told() -> None:
    with pytest.raises(ConfigError, match=r"'training\.seed' was 1 when the checkpoint was written and is 2 now"):
        check_same("checkpoint", {"training.seed": 1, "tokenizer": "x"}, {"training.seed": 2, "tokenizer": "x"})
