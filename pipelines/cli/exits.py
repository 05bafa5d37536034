"""Errors to exit codes: the one place where that happens."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Final

import click

from elmo_core import ConfigError, ElmoError

DONE: Final = 0
FAILED: Final = 1
WRONG_CALL: Final = 2
TOO_MANY_REJECTS: Final = 3

_logger = logging.getLogger("elmo")


def run_command(command: Callable[[], object]) -> int:
    """Call a click command; the one place where errors become exit codes."""
    try:
        command()
        return DONE
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else FAILED
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return WRONG_CALL
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        click.echo("elmo: interrupted; what was finished is kept: run again to go on, a training with --resume", err=True)
        return FAILED
    except ElmoError as error:
        _logger.debug("traceback:", exc_info=True)
        click.echo(f"elmo: {error}", err=True)
        return WRONG_CALL if isinstance(error, ConfigError) else FAILED
    except Exception as error:  # a fault of ours, or of a machine in a state nobody thought of
        _logger.debug("traceback:", exc_info=True)
        click.echo(f"elmo: {type(error).__name__}: {error}; elmo -v shows where", err=True)
        return FAILED
