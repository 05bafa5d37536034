"""The columns of a shard and of a reject file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elmo_core import ShardError

DType = Literal["float16", "float32"]
Vectors = Literal["list", "binary"]

SCHEMA_VERSION: Final = 1
"""Grows when shards or manifests of the old kind can't be read as the new one."""
LAYOUT_KEY: Final = b"elmo_corpus.layout"
REPORT_KEY: Final = b"elmo_corpus.report"

REJECT_SCHEMA: Final = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("content", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """How vectors are stored.

    Args:
        columns: Names of the vector columns.
        width: Values of a vector.
        dtype: Type of a value.
        vectors: `list`: one fixed-size list a token; `binary`: a sentence's vectors as one little-endian row-major
            value.
    """

    columns: tuple[str, ...]
    width: int
    dtype: DType
    vectors: Vectors

    @property
    def numpy_dtype(self) -> np.dtype[np.floating]:
        """The little-endian type of a value."""
        return np.dtype("<f2" if self.dtype == "float16" else "<f4")

    @property
    def bytes_per_token(self) -> int:
        """Bytes of a token's vectors in all columns, uncompressed."""
        return len(self.columns) * self.width * self.numpy_dtype.itemsize

    def schema(self) -> pa.Schema:
        """The Arrow schema; list and element fields are declared not-null, which makes them faster to read."""
        span = pa.struct([pa.field("start", pa.int32(), nullable=False), pa.field("stop", pa.int32(), nullable=False)])
        fields = [
            pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("sentence", pa.int32(), nullable=False),
            pa.field("id", pa.string()),
            pa.field("tokens", _list(pa.string()), nullable=False),
            pa.field("spans", _list(span), nullable=False),
        ]
        return pa.schema(fields + [pa.field(column, self.vector_type(), nullable=False) for column in self.columns])

    def vector_type(self) -> pa.DataType:
        """Arrow type of a vector column."""
        if self.vectors == "binary":
            return pa.binary()
        value = pa.field("element", pa.from_numpy_dtype(self.numpy_dtype), nullable=False)
        return _list(pa.list_(value, self.width))

    def vector_array(self, values: npt.NDArray[np.floating], offsets: npt.NDArray[np.int64]) -> pa.Array:
        """A column of vectors over the same memory.

        Args:
            values: Of `numpy_dtype`, contiguous. Shape: (tokens, width).
            offsets: Sentence i owns tokens `offsets[i]` to `offsets[i + 1]`. Shape: (sentences + 1,).
        """
        if self.vectors == "binary":
            if values.nbytes > np.iinfo(np.int32).max:
                raise ShardError(f"a sentence of {len(values)} tokens is too long for binary vectors; take --vectors list")
            bounds = (offsets * self.width * self.numpy_dtype.itemsize).astype(np.int32)
            return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(values)])
        list_type = self.vector_type()
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=list_type.value_type)
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), vectors, type=list_type)

    def vector_values(self, column: pa.Array) -> npt.NDArray[np.floating]:
        """The values of a vector column, without copying. Shape: (tokens, width)."""
        if self.vectors == "binary":
            _, bounds, data = column.buffers()
            at = np.frombuffer(bounds, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
            values = np.frombuffer(data, dtype=np.uint8)[at[0] : at[-1]].view(self.numpy_dtype)
        else:
            values = column.flatten().flatten().to_numpy(zero_copy_only=True)
        return values.reshape(-1, self.width)


def _list(value_type: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", value_type, nullable=False))
