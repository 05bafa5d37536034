"""Rows to Parquet and back: the same values, bounded row groups, the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_core import Sentence, ShardError
from pipelines import shards
from pipelines.schema import ShardLayout
from pipelines.shards import Rows, open_shard, plan_row_groups

LENGTHS = [2, 0, 5, 1, 0]


def make_rows(lengths: list[int], scale: float = 1.0) -> Rows:
    rng = np.random.default_rng(0)
    sentences = [Sentence(tuple(f"t{i}" for i in range(n)), tuple((3 * i, 3 * i + 2) for i in range(n))) for n in lengths]
    columns = {name: (scale * rng.standard_normal((sum(lengths), 4))).astype(np.float32) for name in ("layer_0", "layer_1")}
    return Rows("file:///a", [10 * i for i in range(len(lengths))], [0] * len(lengths), sentences, columns)


def write(path: Path, layout: ShardLayout, *chunks: Rows, compression: str = "none") -> int:
    with open_shard(path, layout, compression) as shard:
        for rows in chunks:
            shard.write(rows)
    return shard.n_clipped


def layout_of(dtype: str = "float32", vectors: str = "list") -> ShardLayout:
    return ShardLayout(("layer_0", "layer_1"), 4, dtype, vectors)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("vectors", ["list", "binary"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("lengths", [LENGTHS, [0, 0], []])
def test_what_is_written_is_read(tmp_path: Path, dtype: str, vectors: str, compression: str, lengths: list[int]) -> None:
    layout, rows = layout_of(dtype, vectors), make_rows(lengths)
    write(tmp_path / "s", layout, rows, compression=compression)
    table = pq.read_table(tmp_path / "s").combine_chunks()
    assert table.schema.equals(layout.schema(), check_metadata=False)
    keys = table.select(["source", "offset", "sentence", "id", "tokens", "spans"]).to_pylist()
    assert [key["offset"] for key in keys] == list(rows.offsets)
    assert [tuple(key["tokens"]) for key in keys] == [sentence.tokens for sentence in rows.sentences]
    assert [tuple((s["start"], s["stop"]) for s in key["spans"]) for key in keys] == [s.spans for s in rows.sentences]
    for batch in table.to_batches():
        for name, values in rows.columns.items():
            np.testing.assert_array_equal(layout.vector_values(batch.column(name)), values.astype(dtype))


@given(st.lists(st.integers(0, 50)), st.integers(0, 40), st.integers(1, 60))
def test_row_groups_hold_every_row_once_and_close_in_time(row_bytes: list[int], pending: int, limit: int) -> None:
    groups = list(plan_row_groups(row_bytes, pending, limit))
    assert [i for group in groups for i in group] == list(range(len(row_bytes)))
    totals = [sum(row_bytes[i] for i in group) for group in groups]
    if totals:
        totals[0] += pending
        assert all(total >= limit for total in totals[:-1])
        assert all(total - row_bytes[group[-1]] < limit for total, group in zip(totals[1:], groups[1:], strict=True))


def test_row_groups_are_bounded_across_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "ROW_GROUP_BYTES", 1000)
    write(tmp_path / "s", layout_of(), make_rows([5] * 7), make_rows([1] * 30), make_rows([100]))
    metadata = pq.read_metadata(tmp_path / "s")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4, 4, 9, 9, 9, 3]
    assert pq.read_table(tmp_path / "s").num_rows == 38


def test_values_too_large_for_float16_are_clipped_and_counted(tmp_path: Path) -> None:
    rows = make_rows([1])
    rows.columns["layer_0"][0, :2] = 1e5, -1e6
    assert write(tmp_path / "s", layout_of("float16"), rows) == 2
    assert pq.read_table(tmp_path / "s")["layer_0"].to_pylist()[0][0][:2] == [65504.0, -65504.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_model_that_gives_no_numbers_is_an_error(tmp_path: Path, bad: float) -> None:
    rows = make_rows([2])
    rows.columns["layer_1"][0, 0] = bad
    with pytest.raises(ShardError, match="NaN or infinite"):
        write(tmp_path / "s", layout_of(), rows)


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, layout_of(), make_rows(LENGTHS))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_vectors_are_plain_and_uncompressed_by_default(tmp_path: Path) -> None:
    write(tmp_path / "s", layout_of(), make_rows(LENGTHS))
    group = pq.read_metadata(tmp_path / "s").row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    vectors = columns["layer_0.list.element.list.element"]
    assert (vectors.compression, vectors.has_dictionary_page) == ("UNCOMPRESSED", False)
    assert "PLAIN" in vectors.encodings
    assert columns["tokens.list.element"].compression == "ZSTD"


def test_a_flipped_byte_is_found_when_read(tmp_path: Path) -> None:
    write(tmp_path / "s", layout_of(), make_rows([50]))
    raw = bytearray((tmp_path / "s").read_bytes())
    column = pq.read_metadata(tmp_path / "s").row_group(0).column(8)
    raw[column.data_page_offset + column.total_compressed_size - 5] ^= 1
    (tmp_path / "s").write_bytes(raw)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(tmp_path / "s", page_checksum_verification=True)
