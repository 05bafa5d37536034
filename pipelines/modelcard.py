"""What a trained bundle says of itself: for machines in its `config.json`, for people in its `README.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any, Final

from elmo_core import Bundle
from elmo_core.training.config import TrainingConfig
from elmo_core.training.perplexity import Perplexity
from pipelines.textunits import TextSource, TextUnit

CARD_FILE: Final = "README.md"


def describe_training(
    units: Sequence[TextUnit],
    source: TextSource,
    config: TrainingConfig,
    *,
    licence: str | None,
    zero: Perplexity,
    warm: Perplexity,
    facts: Mapping[str, object],
) -> dict[str, object]:
    """How a bundle was trained, in plain values.

    Args:
        units: Read in an epoch.
        source: How they were read.
        config: Values of the run.
        licence: Of the corpus.
        zero: On the held-out text, each sentence from zeros.
        warm: The same from the warm state.
        facts: What else is known.
    """
    corpus: dict[str, int] = {}
    for unit in units:
        name = unit.text_range.source.rsplit("/", 1)[-1]
        corpus[name] = corpus.get(name, 0) + unit.n_bytes
    return {
        **facts,
        "corpus_bytes": corpus,
        "licence": licence,
        "heldout": {
            "tokens": zero.n_tokens,
            "unknown_share": round(zero.unknown_share, 5),
            "perplexity_from_zeros": round(zero.average, 3),
            "perplexity_from_warm_state": round(warm.average, 3),
        },
        "format": source.format,
        "tokenizer": f"{source.tokenizer.name} ({source.tokenizer.version})",
        "configuration": asdict(config),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {package: version(package) for package in ("elmo-corpus", "torch", "lightning-fabric")},
    }


def render_card(bundle: Bundle) -> str:
    """The same for people, as Markdown."""
    training: Mapping[str, Any] = bundle.training
    lstm, n_filters = bundle.config.lstm, bundle.config.char_cnn.n_filters
    heldout, corpus = training["heldout"], training["corpus_bytes"]
    versions = ", ".join(f"{name} {release}" for name, release in training["versions"].items())
    values = ", ".join(f"{name} {value}" for name, value in training["configuration"].items())
    n_draws = training["negative_samples"]
    draws = f"with {n_draws:,} negative draws a window" if n_draws else "whole"
    lines = [
        "# A biLM",
        "",
        f"{bundle.config.n_layers} layers of width {bundle.config.width}: a character CNN of {n_filters} filters, then",
        f"{lstm.n_layers} LSTM layers of {lstm.cell_size} cells projected to {lstm.projection_size} in each direction.",
        f"Hash `{bundle.hash}`.",
        "",
        f"- Trained for {training['steps']:,} steps on {training['tokens']:,} tokens in each direction; the weights are",
        f"  those of step {training['best_step']:,}, the best on the held-out text.",
        f"- Softmax of {training['vocabulary']:,} words: {training['softmax']}; trained {draws}.",
        "- Held-out perplexity, mean of both directions, each sentence alone:",
        f"  {heldout['perplexity_from_zeros']} from zeros, {heldout['perplexity_from_warm_state']} from the warm state,",
        f"  on {heldout['tokens']:,} tokens of which {heldout['unknown_share']:.2%} are unknown words.",
        f"- Text format `{training['format']}`, tokenizer `{training['tokenizer']}`.",
        f"- Licence of the corpus: {training['licence'] or 'not stated'}.",
        f"- Made {training['created']} with {versions}.",
        "",
        f"Configuration: {values}.",
        "",
        "| corpus | MB an epoch |",
        "| --- | --- |",
        *(f"| {name} | {n_bytes / 1e6:.2f} |" for name, n_bytes in corpus.items()),
    ]
    return "\n".join(lines) + "\n"
