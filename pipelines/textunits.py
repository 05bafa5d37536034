"""Text to train on or to measure with: inputs to units, units to sentences."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from elmo_core import ConfigError, CorpusError, Tokenizer, load_tokenizer
from pipelines import storage
from pipelines.corpus import Format, TextRange, check_encoding, decode_record, plan_ranges, read_ranges
from pipelines.rejects import Reject

RANGE_BYTES: Final = 2**17
"""Bytes of text that are read and tokenized at once."""


@dataclass(frozen=True, slots=True)
class TextUnit:
    """A part of a source that is read from its beginning.

    Args:
        text_range: What is read.
        n_bytes: Of it, as stored.
        repeat: Which time of the epoch; inputs that are named twice are read twice.
    """

    text_range: TextRange
    n_bytes: int
    repeat: int


@dataclass(frozen=True, slots=True)
class TextSource:
    """How text is read.

    Args:
        format: `lines` or `text`.
        tokenizer: Cuts it.
        encoding: Of the bytes.
    """

    format: Format
    tokenizer: Tokenizer
    encoding: str

    def sentences(self, text_range: TextRange, *, skip_ranges: int = 0) -> Iterator[list[list[str]]]:
        """The sentences of each range of a unit.

        Args:
            text_range: A range of a plain source, or a compressed one whole.
            skip_ranges: Ranges that are passed over untokenized.

        Raises:
            CorpusError: The source can't be read, or a record isn't valid in the encoding.
        """
        for texts in self.texts(text_range, skip_ranges=skip_ranges):
            cut = (s for text in texts for s in self.tokenizer.tokenize(text, is_prose=self.format == "text"))
            yield [list(sentence.tokens) for sentence in cut if sentence.tokens]

    def texts(self, text_range: TextRange, *, skip_ranges: int = 0) -> Iterator[list[str]]:
        """The decoded records of each range of a unit; arguments and errors as for `sentences`."""
        for owned in islice(read_ranges(text_range), skip_ranges, None):
            decoded = [decode_record(record, text_range.source, self.encoding) for record in owned.records]
            for text in decoded:
                if isinstance(text, Reject):
                    problem = f"byte {text.offset}: {text.reason} ({text.detail})"
                    raise CorpusError(f"{problem}; name its encoding with --encoding, or mend it", text_range.source)
            yield [text for text in decoded if isinstance(text, str)]


def plan_units(inputs: Sequence[str]) -> list[TextUnit]:
    """Cut inputs into units; an input that is named more than once is read so often in an epoch.

    Args:
        inputs: Files or globs.

    Raises:
        ConfigError: One matches nothing.
        CorpusError: A file can't be read or is empty.
    """
    if not inputs:
        raise ConfigError("no input was given; name files or globs")
    n_seen: dict[str, int] = {}
    units: list[TextUnit] = []
    for file in (file for pattern in inputs for file in storage.expand(pattern)):
        if not file.n_bytes:
            raise CorpusError("is empty; leave it out", file.uri)
        repeat = n_seen.get(file.uri, 0)
        n_seen[file.uri] = repeat + 1
        for text_range in plan_ranges(file, RANGE_BYTES):
            n_bytes = file.n_bytes if text_range.stop is None else text_range.stop - text_range.start
            units.append(TextUnit(text_range, n_bytes, repeat))
    return units


def show_size(units: Sequence[TextUnit]) -> str:
    """How much text units hold, for people; a source that is read twice counts twice."""
    n_files = len({unit.text_range.source for unit in units})
    return f"{sum(unit.n_bytes for unit in units) / 1e6:.1f} MB of {n_files} {'file' if n_files == 1 else 'files'}"


def digest_units(units: Sequence[TextUnit]) -> str:
    """SHA-256 of what is to be read: sources, ranges and versions."""
    digest = hashlib.sha256()
    for unit in units:
        digest.update(f"{unit.text_range} {unit.repeat}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def split_heldout(units: Sequence[TextUnit], every: int) -> tuple[list[TextUnit], list[TextUnit]]:
    """Set aside every so many units of plain text, each time that their source is named.

    Returns:
        Units to train on, and units held out, each of these once.

    Raises:
        ConfigError: There is too little plain text for that.
    """
    plain = sorted({unit.text_range for unit in units if unit.text_range.stop is not None}, key=lambda r: (r.source, r.start))
    held = set(plain[every // 2 :: every] or plain[1:2])
    if not held:
        raise ConfigError(
            f"less than {2 * RANGE_BYTES // 1024} kB of plain text, so none can be held out; name a text with --heldout"
        )
    heldout = [unit for unit in units if unit.text_range in held and unit.repeat == 0]
    return [unit for unit in units if unit.text_range not in held], heldout


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How text is read. Each field is an option of the training commands.

    Args:
        format: `lines` or `text`.
        tokenizer: None takes `whitespace` for lines, `spacy:en` for text.
        encoding: Of the text.
    """

    format: Format = "text"
    tokenizer: str | None = None
    encoding: str = "utf-8"

    def source(self) -> TextSource:
        """The reader that they describe.

        Raises:
            ConfigError: One is wrong.
        """
        name = self.tokenizer or ("spacy:en" if self.format == "text" else "whitespace")
        return TextSource(self.format, load_tokenizer(name), check_encoding(self.encoding))


def check_units(units: Sequence[TextUnit], source: TextSource) -> None:
    """Read every unit once, untokenized.

    Raises:
        CorpusError: One is damaged, or not valid in the encoding.
    """
    for text_range in {unit.text_range: None for unit in units}:
        for _ in source.texts(text_range):
            pass


def check_apart(units: Sequence[TextUnit], heldout: Sequence[TextUnit]) -> None:
    """Hold the held-out sources against the others.

    Raises:
        ConfigError: One is among the inputs.
    """
    sources = {unit.text_range.source for unit in units}
    if both := sorted({unit.text_range.source for unit in heldout} & sources):
        raise ConfigError("is an input and held out; what a model was trained on doesn't measure it", both[0])


def sample_sentences(units: Sequence[TextUnit], source: TextSource, n_tokens: int) -> list[list[str]]:
    """Sentences from the beginning of each unit, so many tokens of all together."""
    share = -(-n_tokens // max(1, len(units)))
    sample: list[list[str]] = []
    for unit in units:
        n_left = share
        for sentence in (s for found in source.sentences(unit.text_range) for s in found):
            sample.append(sentence)
            n_left -= len(sentence)
            if n_left <= 0:
                break
    return sample


def spread_sentences(units: Sequence[TextUnit], source: TextSource, n_places: int, n_sentences: int) -> list[list[str]]:
    """Sentences that follow each other in places spread evenly over the text, those that are read twice twice.

    Args:
        units: In any order; the sentences don't depend on it.
        source: How they are read.
        n_places: Units at most.
        n_sentences: Of each, from its beginning.
    """
    ordered = sorted(units, key=lambda unit: (unit.repeat, unit.text_range.source, unit.text_range.start))
    places = [ordered[i * len(ordered) // n_places] for i in range(n_places)] if len(ordered) > n_places else ordered
    share = n_sentences * n_places // len(places)
    found = ((s for cut in source.sentences(unit.text_range) for s in cut) for unit in places)
    return [sentence for sentences in found for sentence in islice(sentences, share)]


def measure_density(units: Sequence[TextUnit], source: TextSource) -> tuple[int, int]:
    """Positions of a unit and its bytes, from the middle of the text."""
    unit = sorted(units, key=lambda unit: (unit.text_range.source, unit.text_range.start))[len(units) // 2]
    sentences = [s for found in source.sentences(unit.text_range) for s in found]
    return sum(len(sentence) + 1 for sentence in sentences), unit.n_bytes
