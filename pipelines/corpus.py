"""Sources to ranges, ranges to records: which bytes belong to whom.

A record ends at a line feed, or where the source ends. A range owns the records whose first byte lies in it. Ranges
are cut at fixed multiples of bytes of the decompressed text, so lines appended to a source change its last range only.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Literal, cast

from backports.zstd import ZstdError, ZstdFile

from elmo_core import ConfigError, CorpusError
from pipelines import storage
from pipelines.rejects import Reject, show_bytes

Format = Literal["lines", "text"]
SourceCompression = Literal["gzip", "bzip2", "xz", "zstd"]

_MAGIC: Final[tuple[tuple[re.Pattern[bytes], SourceCompression], ...]] = (
    (re.compile(rb"\x1f\x8b\x08"), "gzip"),
    (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), "bzip2"),
    (re.compile(rb"\xfd7zXZ\x00"), "xz"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "zstd"),
)
_MAGIC_BYTES: Final = 10
_READ_BYTES: Final = 2**18


@dataclass(frozen=True, slots=True)
class TextRange:
    """A unit of work.

    Args:
        source: URI of the file.
        start: First byte of the range.
        stop: The byte after its last, or None for all the ranges of a compressed source, which is read in order.
        compression: How the source is compressed, None for plain.
        stride: Bytes of a range; the last one of a source may be shorter.
        version: What tells this content of the file from another, from `storage.version`.
    """

    source: str
    start: int
    stop: int | None
    compression: SourceCompression | None
    stride: int
    version: str


@dataclass(frozen=True, slots=True)
class Record:
    """One line as it stands in the source.

    Args:
        offset: Its first byte, in the decompressed text.
        raw: Its bytes, line feed included.
    """

    offset: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class RangeRecords:
    """The records that a range owns."""

    start: int
    stop: int
    records: tuple[Record, ...]


def plan_ranges(file: storage.StoredFile, stride: int) -> Iterator[TextRange]:
    """Cut a source into ranges.

    Args:
        file: The source.
        stride: Bytes of a range.

    Yields:
        At least one range, an empty one for an empty file; exactly one for a compressed source.

    Raises:
        CorpusError: The source can't be read.
    """
    compression = _find_compression(file.uri)
    version = storage.version(file.uri)
    if compression is not None:
        yield TextRange(file.uri, 0, None, compression, stride, version)
        return
    for start in range(0, max(1, file.n_bytes), stride):
        yield TextRange(file.uri, start, min(start + stride, file.n_bytes), None, stride, version)


def read_ranges(text_range: TextRange) -> Iterator[RangeRecords]:
    """Read what a unit of work owns: one range of a plain source, every range of a compressed one.

    Raises:
        CorpusError: The source is gone, unreadable, damaged, or not what it was when the run began.
    """
    for owned in _read_ranges(text_range):
        if storage.version(text_range.source) != text_range.version:
            raise CorpusError("was changed while the run read it; run again", text_range.source)
        yield owned


def _read_ranges(text_range: TextRange) -> Iterator[RangeRecords]:
    with storage.open_input(text_range.source) as stored:
        if text_range.stop is not None:
            records = tuple(_records_starting_in(stored, text_range.start, text_range.stop))
            yield RangeRecords(text_range.start, text_range.stop, records)
            return
        try:
            yield from _cut(_decompress(stored, text_range.compression), text_range.stride)
        except (ZstdError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError) as error:
            raise CorpusError(f"is damaged: {error}", text_range.source) from error


def decode_record(record: Record, source: str, encoding: str) -> str | Reject:
    """A record's text: without its line feed, a carriage return before that, and a byte order mark before all.

    Args:
        record: The record.
        source: Its source, for the reject.
        encoding: A codec name that `check_encoding` accepts.

    Returns:
        The text, or a reject if its bytes are not valid in this encoding.
    """
    raw = record.raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = raw.decode(encoding)
        text.encode()  # some codecs give lone surrogates, which no file can hold
    except UnicodeEncodeError:
        return Reject(source, record.offset, f"not {encoding}", "it holds lone surrogates", show_bytes(raw))
    except UnicodeDecodeError as error:
        at = record.offset + error.start
        return Reject(source, record.offset, f"not {encoding}", f"{error.reason} at byte {at}", show_bytes(raw))
    return text.removeprefix("\ufeff") if record.offset == 0 else text


def check_encoding(encoding: str) -> str:
    """The canonical name of an encoding in which a line feed is one byte of its own.

    Raises:
        ConfigError: The encoding is unknown or of another kind.
    """
    try:
        info = codecs.lookup(encoding)
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"encoding is {encoding!r}; it must be one that Python knows, such as utf-8 or cp1252") from error
    try:
        is_usable = b"\n".decode(info.name) == "\n" and "a\n".encode(info.name).endswith(b"a\n")
    except (LookupError, TypeError, ValueError):
        is_usable = False
    if not is_usable:
        raise ConfigError(f"encoding is {encoding!r}, whose lines can't be told apart by bytes; convert the files to utf-8")
    return "utf-8" if info.name == "utf-8-sig" else info.name  # a byte order mark is dropped anyway


def _find_compression(uri: str) -> SourceCompression | None:
    with storage.open_input(uri) as stream:
        head = stream.read(_MAGIC_BYTES)
    return next((name for magic, name in _MAGIC if magic.match(head)), None)


def _decompress(stored: BinaryIO, compression: SourceCompression | None) -> BinaryIO:
    if compression == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=stored))
    if compression == "bzip2":
        return io.BufferedReader(_StreamsReader(stored, bz2.BZ2Decompressor), _READ_BYTES)
    if compression == "xz":
        return io.BufferedReader(_StreamsReader(stored, lzma.LZMADecompressor), _READ_BYTES)
    return cast(BinaryIO, ZstdFile(stored))


class _StreamsReader(io.RawIOBase):
    """Streams one after another, with padding between them as xz allows; Python's own files pass over what isn't one."""

    def __init__(self, stored: BinaryIO, new_decompressor: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> None:
        self._stored = stored
        self._new = new_decompressor
        self._decompressor = new_decompressor()
        self._pads = new_decompressor is lzma.LZMADecompressor
        self._pending = b""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # as io.RawIOBase has it
        """Fill a buffer, or as much of it as there is at once."""
        while True:
            if self._decompressor.eof and not self._begin_next():
                return 0
            compressed = b""
            if self._decompressor.needs_input:
                compressed, self._pending = self._pending or self._stored.read(_READ_BYTES), b""
                if not compressed:
                    raise EOFError("it ends in the middle of a compressed stream")
            data = self._decompressor.decompress(compressed, len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)

    def _begin_next(self) -> bool:
        rest = self._decompressor.unused_data
        while True:
            rest = rest.lstrip(b"\0") if self._pads else rest
            if rest:
                break
            rest = self._stored.read(_READ_BYTES)
            if not rest:
                return False
        self._decompressor, self._pending = self._new(), rest
        return True


def _records_starting_in(stream: BinaryIO, start: int, stop: int) -> Iterator[Record]:
    offset = start
    if start > 0:
        # The byte before tells whether a record starts right here.
        stream.seek(start - 1)
        skipped = stream.readline(stop - start + 1)
        if not skipped.endswith(b"\n"):
            return
        offset = start - 1 + len(skipped)
    while offset < stop and (raw := stream.readline()):
        yield Record(offset, raw)
        offset += len(raw)


def _cut(stream: BinaryIO, stride: int) -> Iterator[RangeRecords]:
    start, offset = 0, 0
    owned: list[Record] = []
    for raw in stream:
        while offset >= start + stride:
            yield RangeRecords(start, start + stride, tuple(owned))
            start, owned = start + stride, []
        owned.append(Record(offset, raw))
        offset += len(raw)
    while offset > start + stride:
        yield RangeRecords(start, start + stride, tuple(owned))
        start, owned = start + stride, []
    yield RangeRecords(start, offset, tuple(owned))
