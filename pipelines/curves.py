"""The course of a training run: lines of JSON, TensorBoard's events, and a picture of both curves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from elmo_core import BundleError

HISTORY_FILE: Final = "history.jsonl"
CURVES_FILE: Final = "curves.png"


class Curves:
    """Values by step, kept as they come.

    Args:
        folder: Of the run; made if it isn't there.
        step: From which the run goes on; what was written for later steps is dropped.
    """

    def __init__(self, folder: Path, *, step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter  # an extra

        self._folder = folder
        self._history = [entry for entry in read_history(folder) if entry["step"] <= step]
        lines = "".join(f"{json.dumps(entry)}\n" for entry in self._history)
        self._event_folder = folder / "tensorboard"
        with _writing(folder / HISTORY_FILE):
            folder.mkdir(parents=True, exist_ok=True)
            scratch = folder / f".{HISTORY_FILE}.tmp"
            scratch.write_text(lines, encoding="utf-8")
            os.replace(scratch, folder / HISTORY_FILE)
        with _writing(self._event_folder):
            self._event_folder.mkdir(exist_ok=True)
            # SummaryWriter writes in a thread: on a full disk that ends, and the run waits for it for ever
            self._events = EventsWriter(str(self._event_folder / "events"))
        self._write_event(step + 1, session_log={"status": "START"})

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Keep values of a step.

        Raises:
            BundleError: They can't be written, as on a full disk.
        """
        entry = {"step": step, **values}
        self._history.append(entry)
        path = self._folder / HISTORY_FILE
        with _writing(path), path.open("a", encoding="utf-8") as stream:
            stream.write(f"{json.dumps(entry)}\n")
        self._write_event(step, summary={"value": [{"tag": name, "simple_value": value} for name, value in values.items()]})

    def close(self) -> None:
        """Finish the files and draw the picture.

        Raises:
            BundleError: They can't be written.
        """
        with _writing(self._event_folder):
            self._events.close()
        with _writing(self._folder / CURVES_FILE):
            draw_curves(self._history, self._folder / CURVES_FILE)

    def _write_event(self, step: int, **what: object) -> None:
        from tensorboardX.proto.event_pb2 import Event  # an extra

        with _writing(self._event_folder):
            self._events.write_event(Event(step=step, wall_time=time.time(), **what))
            self._events.flush()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BundleError(f"can't be written ({error.strerror}); make room and go on with --resume", str(path)) from error


def read_history(folder: Path) -> list[dict[str, Any]]:
    """What was kept of a run so far; a line that a crash cut short is left out."""
    path = folder / HISTORY_FILE
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [cast("dict[str, Any]", json.loads(line)) for line in lines]


def draw_curves(history: list[dict[str, Any]], path: Path) -> None:
    """Draw training loss and held-out perplexity over the steps, as PNG."""
    import matplotlib as mpl  # an extra

    mpl.use("agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    losses = [entry for entry in history if "loss/forward" in entry]
    looks = [entry for entry in history if "heldout/perplexity" in entry]
    for way in ("forward", "backward"):
        left.plot([e["step"] for e in losses], [e[f"loss/{way}"] for e in losses], label=way, linewidth=1)
    left.set(xlabel="step", ylabel="training loss, nats a token")
    right.plot([e["step"] for e in looks], [e["heldout/perplexity"] for e in looks], marker="o", markersize=3)
    right.set(xlabel="step", ylabel="held-out perplexity", yscale="log")
    if losses:
        left.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
