"""Rows to a Parquet shard with row groups bounded by bytes; and what a shard says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from elmo_core import CorpusError, Sentence, ShardError
from pipelines import storage
from pipelines.rejects import Reject
from pipelines.schema import LAYOUT_KEY, REJECT_SCHEMA, REPORT_KEY, ShardLayout

Compression = Literal["none", "zstd"]

ROW_GROUP_BYTES: Final = 64 * 2**20
"""A row group is closed when it holds this much, so it ends within one row of it."""
BYTES_PER_ROW: Final = 64
BYTES_PER_TOKEN: Final = 16
"""What a row and a token cost besides vectors, about."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Sentences of one source, ready to be written.

    Args:
        source: URI.
        offsets: First byte of each row's record.
        numbers: Each row's sentence number within its record.
        sentences: Tokens and spans.
        columns: Vectors of all rows' tokens, one after another, by column. Shape: (tokens, width), float32.
    """

    source: str
    offsets: Sequence[int]
    numbers: Sequence[int]
    sentences: Sequence[Sentence]
    columns: Mapping[str, npt.NDArray[np.float32]]


class ShardWriter:
    """Write rows to an open Parquet file.

    Args:
        writer: The file.
        layout: How vectors are stored.
    """

    def __init__(self, writer: pq.ParquetWriter, layout: ShardLayout) -> None:
        self._writer = writer
        self._layout = layout
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self.n_clipped = 0
        """Values that the type could not hold and that were clipped to its largest."""
        self.n_row_groups = 0
        """Row groups written so far."""

    def write(self, rows: Rows) -> None:
        """Add rows; whole row groups go to the file."""
        batch, row_bytes = self._to_batch(rows)
        for group in plan_row_groups(row_bytes, self._pending_bytes, ROW_GROUP_BYTES):
            self._pending.append(batch.slice(group.start, len(group)))
            self._pending_bytes += sum(row_bytes[group.start : group.stop])
            if self._pending_bytes >= ROW_GROUP_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write what is pending as one row group."""
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending), row_group_size=2**31 - 1)
            self.n_row_groups += 1
        self._pending, self._pending_bytes = [], 0

    def set_report(self, report: bytes) -> None:
        """Leave a report in the file's footer."""
        self._writer.add_key_value_metadata({REPORT_KEY: report})

    def _to_batch(self, rows: Rows) -> tuple[pa.RecordBatch, list[int]]:
        schema = self._layout.schema()
        lengths = [len(sentence.tokens) for sentence in rows.sentences]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        spans = np.array([span for sentence in rows.sentences for span in sentence.spans], dtype=np.int32).reshape(-1, 2)
        span_type = schema.field("spans").type
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(lengths), np.int32)), pa.array([rows.source])),
            pa.array(rows.offsets, pa.int64()),
            pa.array(rows.numbers, pa.int32()),
            pa.nulls(len(lengths), pa.string()),
            pa.array([sentence.tokens for sentence in rows.sentences], schema.field("tokens").type),
            pa.ListArray.from_arrays(
                pa.array(offsets.astype(np.int32)),
                pa.StructArray.from_arrays([pa.array(spans[:, 0]), pa.array(spans[:, 1])], fields=list(span_type.value_type)),
                type=span_type,
            ),
            *(self._layout.vector_array(self._cast(rows.columns[name]), offsets) for name in self._layout.columns),
        ]
        row_bytes = [n * (self._layout.bytes_per_token + BYTES_PER_TOKEN) + BYTES_PER_ROW for n in lengths]
        return pa.RecordBatch.from_arrays(arrays, schema=schema), row_bytes

    def _cast(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.floating]:
        largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
        if not np.isfinite(largest):
            raise ShardError("the model gave NaN or infinite vectors; its weights may be too large for float32")
        limit = float(np.finfo(self._layout.numpy_dtype).max)
        if largest > limit:
            self.n_clipped += int(np.count_nonzero(np.abs(values) > limit))
            values = values.clip(-limit, limit)
        return np.ascontiguousarray(values, dtype=self._layout.numpy_dtype)


@contextmanager
def open_shard(path: Path, layout: ShardLayout, compression: Compression) -> Iterator[ShardWriter]:
    """Write a shard; when the block ends well the last row group is written and the file closed.

    The shard holds no time and no name of the machine: the same rows give the same bytes.

    Args:
        path: Where, on the local disk.
        layout: How vectors are stored.
        compression: Of the vector columns; the others are always zstd.
    """
    schema = layout.schema().with_metadata({LAYOUT_KEY: json.dumps(asdict(layout), sort_keys=True).encode()})
    small = ["source", "offset", "sentence", "id", "tokens.list.element", "spans.list.element.start", "spans.list.element.stop"]
    suffix = ".list.element.list.element" if layout.vectors == "list" else ""
    codecs = dict.fromkeys(small, "zstd") | {column + suffix: compression for column in layout.columns}
    with pq.ParquetWriter(
        path,
        schema,
        compression=codecs,
        use_dictionary=["source"],
        write_statistics=["source", "offset", "sentence"],
        write_page_checksum=True,
    ) as writer:
        shard = ShardWriter(writer, layout)
        yield shard
        shard.flush()


def plan_row_groups(row_bytes: Sequence[int], pending_bytes: int, min_bytes: int) -> Iterator[range]:
    """Cut rows so that a row group is closed as soon as it holds `min_bytes`.

    Args:
        row_bytes: Bytes of each row.
        pending_bytes: What the open row group holds already.
        min_bytes: When it's closed.

    Yields:
        Rows that go to one group; the last may leave it open.
    """
    start, n_bytes = 0, pending_bytes
    for i, row in enumerate(row_bytes):
        n_bytes += row
        if n_bytes >= min_bytes:
            yield range(start, i + 1)
            start, n_bytes = i + 1, 0
    if start < len(row_bytes):
        yield range(start, len(row_bytes))


def write_rejects(path: Path, rejects: Sequence[Reject]) -> None:
    """Write rejects as Parquet."""
    pq.write_table(pa.Table.from_pylist([asdict(reject) for reject in rejects], REJECT_SCHEMA), path, compression="zstd")


def read_footer(uri: str) -> bytes | None:
    """What `ShardWriter.set_report` left in a shard, or None if the file is no whole shard of ours.

    Raises:
        CorpusError: The file can't be opened.
    """
    try:
        with storage.open_input(uri) as stream:
            metadata: Mapping[bytes, bytes] = pq.read_metadata(stream).metadata or {}
        return metadata[REPORT_KEY]
    except (pa.ArrowException, KeyError, ValueError):
        return None


def count_rows(uri: str) -> int | None:
    """Rows of a Parquet file; None if it's missing or damaged."""
    try:
        with storage.open_input(uri) as stream:
            n_rows: int = pq.read_metadata(stream).num_rows
            return n_rows
    except (pa.ArrowException, CorpusError, ValueError):
        return None
