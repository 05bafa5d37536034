"""The `elmo` command: parse, call one function, print."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from pipelines.cli import features, models, training
from pipelines.cli.exits import run_command
from pipelines.cli.group import elmo

__all__ = ["elmo", "features", "main", "models", "run_command", "training"]


def main() -> NoReturn:
    """Run the command and turn errors into one line and an exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's request to stop is an interrupt
    sys.exit(run_command(lambda: elmo(standalone_mode=False)))
