"""How a long run shows itself: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS: Final = 30.0
"""Between two lines where there is no terminal."""
RECENT_SHOWS: Final = 200
"""Calls of `show` from whose pace the time left is judged."""

_logger = logging.getLogger(__name__)


class ProgressView:
    """Show a share done, some figures, and the time left. To be used as a context.

    Args:
        title: What is being done.
        live: Whether a bar is drawn; lines otherwise.
    """

    def __init__(self, title: str, *, live: bool | None = None) -> None:
        self._title = title
        self._live = sys.stderr.isatty() if live is None else live
        self._last_line = time.monotonic() - LINE_SECONDS
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_SHOWS)
        self._bar: Progress | None = None

    def __enter__(self) -> ProgressView:
        if self._live:
            from rich.console import Console  # an extra
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}% {task.fields[figures]}"),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=1.0, figures="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, share: float, figures: str) -> None:
        """Show where the run is.

        Args:
            share: Of the whole, from 0 to 1.
            figures: As people read them.
        """
        now = time.monotonic()
        self._recent.append((now, share))
        text = f"{figures}, {show_seconds(self._seconds_left(share))} left"
        if self._bar is not None:
            self._bar.update(self._task, completed=share, figures=text)
        elif now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            _logger.info("%s %.1f %%: %s", self._title, 100 * share, text)

    def _seconds_left(self, share: float) -> float:
        (then, before), (now, _) = self._recent[0], self._recent[-1]
        return (now - then) / (share - before) * (1 - share) if share > before else float("inf")


def show_seconds(seconds: float) -> str:
    """A duration in hours and minutes, or minutes and seconds."""
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
