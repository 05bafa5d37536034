"""Text to sentences for a measurement of speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from elmo_core import CorpusError, load_embedder, load_tokenizer
from elmo_core.embedder import Device, Precision
from elmo_core.speed import SpeedReport, measure_speed
from pipelines import storage
from pipelines.corpus import Format, decode_record, plan_ranges, read_ranges
from pipelines.rejects import Reject

SAMPLE: Final = str(Path(__file__).parent / "samples" / "english.txt")
_STRIDE: Final = 2**20


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
    sentences: list[Sequence[str]] = []
    n_tokens = 0
    for tokens in _read_sentences(inputs, format, tokenizer):
        sentences.append(tokens)
        n_tokens += len(tokens)
        if n_tokens >= max_tokens:
            break
    if not n_tokens:
        raise CorpusError("holds no token", ", ".join(inputs))
    with storage.local_folder(model) as folder:
        embedder = load_embedder(folder, device=device, precision=precision)
    return measure_speed(embedder, sentences)


def _read_sentences(inputs: Sequence[str], format: Format, tokenizer_name: str) -> Iterator[Sequence[str]]:
    tokenizer = load_tokenizer(tokenizer_name)
    for file in (file for pattern in inputs for file in storage.expand(pattern)):
        for text_range in plan_ranges(file, _STRIDE):
            for owned in read_ranges(text_range):
                for record in owned.records:
                    text = decode_record(record, file.uri, "utf-8")
                    if not isinstance(text, Reject):
                        yield from (s.tokens for s in tokenizer.tokenize(text, is_prose=format == "text") if s.tokens)
