"""Folders from which training goes on: written aside, then renamed, so that one that is there is whole."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import torch

from elmo_core.errors import BundleError, ConfigError

KEPT: Final = 2
"""Checkpoints that stay when a new one is whole."""
SHARED_FILE: Final = "model.pt"
BEST_FILE: Final = "best.pt"
_DELETE_IT: Final = "delete its folder to go on from the one before"
_NAME: Final = re.compile(r"step-(\d{8})")

State = dict[str, Any]
"""Tensors and plain values: loaded without running code."""


class Checkpoints:
    """Checkpoints of one run.

    Args:
        folder: Where they are; made when the first is written.
        rank: This process, from 0.
    """

    def __init__(self, folder: Path, *, rank: int = 0) -> None:
        self._folder = folder
        self._rank = rank

    def latest(self) -> int | None:
        """The step of the newest checkpoint; None where there is none."""
        steps = self._steps()
        return steps[-1] if steps else None

    def begin(self, step: int) -> None:
        """Make room for a checkpoint; what a run left half written goes."""
        scratch = self._scratch(step)
        with self._writing(scratch):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._clear()
            scratch.mkdir()

    def write(self, step: int, shared: State | None, own: State) -> None:
        """Write this process's part, and what all share if it is given.

        Raises:
            BundleError: It can't be written, as on a full disk; earlier checkpoints are as they were.
        """
        if shared is not None:
            self._save(shared, self._scratch(step) / SHARED_FILE)
        self._save(own, self._scratch(step) / _own_file(self._rank))

    def publish(self, step: int) -> None:
        """Let the checkpoint count, and delete all but the newest ones."""
        with self._writing(self._path(step)):
            os.replace(self._scratch(step), self._path(step))
            for old in self._steps()[:-KEPT]:
                shutil.rmtree(self._path(old))

    def load_shared(self, step: int) -> State:
        """What all processes share.

        Raises:
            BundleError: It is missing or damaged.
        """
        return _load(self._path(step) / SHARED_FILE, _DELETE_IT)

    def load_own(self, step: int) -> State:
        """What is this process's.

        Raises:
            BundleError: It is missing or damaged.
        """
        return _load(self._path(step) / _own_file(self._rank), _DELETE_IT)

    def save_best(self, state: State) -> None:
        """Keep the weights that did best on the held-out text."""
        path = self._folder / BEST_FILE
        with self._writing(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(f"{BEST_FILE}.tmp")
            self._save(state, scratch)
            os.replace(scratch, path)

    def load_best(self) -> State:
        """The weights that did best.

        Raises:
            BundleError: They are missing or damaged.
        """
        return _load(self._folder / BEST_FILE, "put back a copy of it")

    def _save(self, state: State, path: Path) -> None:
        with self._writing(path), path.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Tell what can't be written and where to go on, and make the room that a half-written checkpoint takes."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            self._clear()
            last = self.latest()
            kept = "no checkpoint was written before" if last is None else f"the checkpoint of step {last} is whole"
            raise BundleError(
                f"checkpoint can't be written ({_reason(error)}); {kept}: make room and go on with --resume", str(path)
            ) from error

    def _clear(self) -> None:
        for left in self._folder.glob("*.tmp"):
            with suppress(OSError):
                shutil.rmtree(left) if left.is_dir() else left.unlink()

    def _steps(self) -> list[int]:
        names = [path.name for path in self._folder.iterdir()] if self._folder.is_dir() else []
        return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}"

    def _scratch(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}.tmp"


def check_same(name: str, then: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Hold what a checkpoint was made with against what is asked for now.

    Raises:
        ConfigError: They differ; the message names the first difference.
    """
    for key in sorted(then.keys() | now.keys()):
        if then.get(key) != now.get(key):
            raise ConfigError(
                f"'{key}' was {then.get(key)!r} when the checkpoint was written and is {now.get(key)!r} now; "
                "give the same options to resume, or name a new --output",
                name,
            )


def _own_file(rank: int) -> str:
    return f"rank-{rank}.pt"


def _reason(error: BaseException) -> str:
    """In a few words, the system's own where torch has wrapped them."""
    cause = error if isinstance(error, OSError) else error.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(error).partition("\n")[0].partition(". ")[0]


def _load(path: Path, remedy: str) -> State:
    try:
        with zipfile.ZipFile(path) as archive:  # torch holds no checksum against what it reads
            changed = archive.testzip()
        if changed is not None:
            raise zipfile.BadZipFile(f"the checksum of '{changed}' differs")
        state: State = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise BundleError(f"is missing; {remedy}", str(path)) from error
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise BundleError(f"is damaged ({_reason(error)}); {remedy}", str(path)) from error
    return state
