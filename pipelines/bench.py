"""Text to sentences for a measurement of speed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from elmo_core import CorpusError, load_embedder
from elmo_core.embedder import Device, Precision
from elmo_core.speed import SpeedReport, measure_speed
from pipelines import storage
from pipelines.corpus import Format
from pipelines.textunits import TextOptions, plan_units

SAMPLE: Final = str(Path(__file__).parent / "samples" / "english.txt")


def bench(
    inputs: Sequence[str], *, model: str, format: Format, tokenizer: str, precision: Precision, device: Device, max_tokens: int
) -> SpeedReport:
    """Measure the speed of a model on the beginning of a text.

    Args:
        inputs: Files or globs.
        model: Folder of the bundle.
        format: `lines` or `text`.
        tokenizer: `whitespace`, `characters` or `spacy:LANG`.
        precision: `float32` or `bfloat16`.
        device: `auto`, `cpu` or `cuda`.
        max_tokens: Sentences are read until there are so many tokens.

    Raises:
        ConfigError: An option or an input is wrong.
        CorpusError: A source can't be read, or there is no token in any.
        BundleError: The model can't be used.
    """
    source = TextOptions(format=format, tokenizer=tokenizer).source()
    sentences: list[Sequence[str]] = []
    n_tokens = 0
    for tokens in (s for unit in plan_units(inputs) for found in source.sentences(unit.text_range) for s in found):
        sentences.append(tokens)
        n_tokens += len(tokens)
        if n_tokens >= max_tokens:
            break
    if not n_tokens:
        raise CorpusError("holds no token", ", ".join(inputs))
    with storage.local_folder(model) as folder:
        embedder = load_embedder(folder, device=device, precision=precision)
    return measure_speed(embedder, sentences)
