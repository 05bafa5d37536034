"""The `elmo` command: its group, and what its commands share."""

from __future__ import annotations

import json
import logging
import sys
from typing import get_args

import click


def choice(values: object) -> click.Choice[str]:
    """An option's legal values, from a Literal type."""
    return click.Choice(get_args(values))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100})
@click.version_option(package_name="elmo-corpus")
@click.option("-v", "--verbose", is_flag=True, help="Log more, Beam's own messages and tracebacks included.")
def elmo(verbose: bool) -> None:
    """ELMo features for whole corpora: text in, per-layer token embeddings in Parquet out."""
    logging.basicConfig(
        level=logging.WARNING if verbose else logging.CRITICAL,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    for name in ("elmo", "elmo_core", "pipelines"):
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("apache_beam").setLevel(logging.INFO if verbose else logging.CRITICAL)


def print_facts(facts: dict[str, object], as_json: bool) -> None:
    """Print a command's result: a line a fact, or one JSON value."""
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {_show(value)}")


def _show(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value[:5]) + (f" and {len(value) - 5} more" if len(value) > 5 else "")
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
