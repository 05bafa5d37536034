"""Ranges and records: every byte belongs to one record of one range, however it is stored."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from elmo_core import ConfigError, CorpusError
from pipelines import corpus, storage
from pipelines.corpus import RangeRecords, Record
from pipelines.rejects import Reject

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
}
TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\xff", "好".encode(), b"\n\n"]), max_size=60).map(b"".join)


def _ranges(content: bytes, stride: int, name: str = "memory://corpus/file") -> list[RangeRecords]:
    with storage.publishing(name) as scratch:
        scratch.write_bytes(content)
    [file] = storage.expand(name)
    return [owned for text_range in corpus.plan_ranges(file, stride) for owned in corpus.read_ranges(text_range)]


@given(TEXTS, st.integers(1, 40))
def test_records_of_all_ranges_are_the_lines_of_the_file(content: bytes, stride: int) -> None:
    records = [record for owned in _ranges(content, stride) for record in owned.records]
    assert [record.raw for record in records] == [line + b"\n" for line in content.split(b"\n")[:-1]] + [
        last for last in content.split(b"\n")[-1:] if last
    ]
    assert all(content[record.offset :].startswith(record.raw) for record in records)
    assert all(record.raw.count(b"\n") == 1 and record.raw.endswith(b"\n") for record in records[:-1])


@given(TEXTS, st.integers(1, 40))
def test_a_range_owns_the_records_that_start_in_it(content: bytes, stride: int) -> None:
    ranges = _ranges(content, stride)
    assert [owned.start for owned in ranges] == list(range(0, max(1, len(content)), stride))
    assert [owned.stop for owned in ranges] == [*(owned.start for owned in ranges[1:]), len(content)]
    assert all(owned.start <= record.offset < owned.stop for owned in ranges for record in owned.records)


@given(TEXTS, st.integers(1, 40), st.sampled_from(sorted(COMPRESSORS)))
def test_a_compressed_copy_has_the_same_ranges(content: bytes, stride: int, compression: str) -> None:
    packed = COMPRESSORS[compression](content)
    assert _ranges(packed, stride, f"memory://corpus/{compression}") == _ranges(content, stride)


@given(TEXTS, TEXTS, st.integers(1, 40))
def test_appended_lines_change_the_last_range_only(content: bytes, appended: bytes, stride: int) -> None:
    content += b"\n"
    before, after = _ranges(content, stride), _ranges(content + appended, stride)
    assert after[: len(before) - 1] == before[:-1]


def test_all_members_of_a_gzip_file_are_read() -> None:
    packed = gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree")
    assert [record.raw for record in _ranges(packed, 100)[0].records] == [b"one\n", b"two\n", b"three"]


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_a_truncated_file_is_named(compression: str) -> None:
    whole = COMPRESSORS[compression](bytes(range(256)) * 40)
    with pytest.raises(CorpusError, match="memory:///corpus/cut"):
        _ranges(whole[: len(whole) // 2], 10**6, "memory://corpus/cut")


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_a_damaged_file_is_named(compression: str) -> None:
    whole = bytearray(COMPRESSORS[compression](bytes(range(256)) * 40))
    whole[len(whole) // 2] ^= 0xFF
    whole[-1] ^= 0xFF
    with pytest.raises(CorpusError, match="memory:///corpus/damaged"):
        _ranges(bytes(whole), 10**6, "memory://corpus/damaged")


@pytest.mark.parametrize(
    ("compression", "padding"), [("gzip", b""), ("bzip2", b""), ("xz", b""), ("xz", b"\0" * 8), ("zstd", b"")]
)
def test_all_streams_of_a_file_are_read(compression: str, padding: bytes) -> None:
    content = COMPRESSORS[compression](b"one\n" * 9000) + padding + COMPRESSORS[compression](b"two\n") + padding
    records = [record.raw for owned in _ranges(content, 10_000_000) for record in owned.records]
    assert records == [b"one\n"] * 9000 + [b"two\n"]


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz", "zstd"])
@pytest.mark.parametrize("rest", [b"plain text", b"BZh9 but damaged"])
def test_what_follows_a_stream_and_is_none_is_damage(compression: str, rest: bytes) -> None:
    with pytest.raises(CorpusError, match=r"is damaged|can't be read"):
        _ranges(COMPRESSORS[compression](b"one\n") + rest, 100)


def test_text_that_begins_like_a_magic_number_is_text() -> None:
    assert [record.raw for record in _ranges(b"BZh, said he\n", 100)[0].records] == [b"BZh, said he\n"]


@pytest.mark.parametrize(
    ("raw", "offset", "expected"),
    [
        (b"plain\n", 0, "plain"),
        (b"dos\r\n", 9, "dos"),
        (b"last", 9, "last"),
        (b"\n", 9, ""),
        (b"\xef\xbb\xbfmarked\n", 0, "marked"),
        (b"\xef\xbb\xbfinside\n", 9, "\ufeffinside"),
        ("a\u2028b\x85c\x0bd\n".encode(), 9, "a\u2028b\x85c\x0bd"),
    ],
)
def test_a_records_text(raw: bytes, offset: int, expected: str) -> None:
    assert corpus.decode_record(Record(offset, raw), "s", "utf-8") == expected


def test_undecodable_bytes_become_a_reject() -> None:
    reject = corpus.decode_record(Record(100, b"caf\xe9\\\n"), "s", "utf-8")
    assert reject == Reject("s", 100, "not utf-8", "invalid continuation byte at byte 103", "caf\\xe9\\x5c")
    assert corpus.decode_record(Record(100, b"caf\xe9\n"), "s", "cp1252") == "café"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "no-such", "rot13", "base64"])
def test_encodings_whose_lines_cant_be_told_are_refused(encoding: str) -> None:
    with pytest.raises(ConfigError, match=f"encoding is '{encoding}'"):
        corpus.check_encoding(encoding)


def test_lone_surrogates_become_a_reject() -> None:
    reject = corpus.decode_record(Record(0, b"a\\ud800b\n"), "s", "raw_unicode_escape")
    assert reject == Reject("s", 0, "not raw_unicode_escape", "it holds lone surrogates", "a\\x5cud800b")


def test_encodings_have_one_name() -> None:
    assert {corpus.check_encoding(name) for name in ("UTF8", "utf-8", "u8", "utf-8-sig")} == {"utf-8"}
