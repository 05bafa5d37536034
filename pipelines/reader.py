"""Shards to training batches, and to a check: everything that reads what a manifest names."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from elmo_core import ConfigError, CorpusError, ShardError
from pipelines import storage
from pipelines.corpus import Format
from pipelines.manifest import MANIFEST_FILE, Manifest, ShardReport, check_accounts, count_totals, read_manifest
from pipelines.rejects import Reject
from pipelines.schema import ShardLayout
from pipelines.shards import count_rows, read_footer

KEY_COLUMNS: Final = ("source", "offset", "sentence", "id", "tokens")


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedSentence:
    """One row of a shard.

    Args:
        source: URI of the source.
        offset: First byte of the record.
        sentence: Number of the sentence within its record.
        id: The user's own name for the record, None where there is none.
        tokens: As read.
        layers: A tensor a vector column, by the column's name. Shape: (T, width).
    """

    source: str
    offset: int
    sentence: int
    id: str | None
    tokens: list[str]
    layers: dict[str, Tensor]


class ShardDataset(IterableDataset[EmbeddedSentence]):
    """Iterate over the sentences of an output, for PyTorch.

    In a `DataLoader` with workers each row group goes to one worker, so that each row comes once.

    Args:
        uri: The output, where its manifest is.
        layers: Columns to read, such as `["layer_0", "layer_2"]`; None for all.
        shuffle: Row groups in random order, and rows within each.
        seed: Of the shuffle; the same seed gives the same order, epoch after epoch.

    Raises:
        ConfigError: There is no manifest, or a column isn't there.
        ShardError: While iterating: a shard is missing or damaged.

    Example:
        for sentence in ShardDataset("out", layers=["layer_2"]):
            train(sentence.tokens, sentence.layers["layer_2"])
    """

    def __init__(self, uri: str | Path, layers: Sequence[str] | None = None, *, shuffle: bool = False, seed: int = 0) -> None:
        if isinstance(layers, str):
            raise ConfigError(f"layers is the string {layers!r}; it must be a list of columns, such as [{layers!r}]")
        self.uri = storage.absolute(str(uri))
        self.manifest = read_manifest(self.uri)
        self.layers = tuple(layers) if layers is not None else self.manifest.layout.columns
        self.shuffle = shuffle
        self.seed = seed
        if unknown := [name for name in self.layers if name not in self.manifest.layout.columns]:
            raise ConfigError(f"has no column {unknown[0]!r}; it has {', '.join(self.manifest.layout.columns)}", self.uri)

    def __len__(self) -> int:
        return self.manifest.totals["rows"]

    def __iter__(self) -> Iterator[EmbeddedSentence]:
        rng = random.Random(self.seed)
        groups = list(_row_groups(self.uri, self.manifest))
        if self.shuffle:
            rng.shuffle(groups)
        worker = get_worker_info()
        mine = groups if worker is None else groups[worker.id :: worker.num_workers]
        for shard_uri, number in mine:
            rows = _read_row_group(shard_uri, number, self.layers, self.manifest.layout)
            if self.shuffle:
                rng.shuffle(rows)
            yield from rows


@dataclass(frozen=True, slots=True)
class Difference:
    """Something about a shard that is not as the manifest says."""

    path: str
    problem: str


def verify_output(uri: str) -> Iterator[Difference]:
    """Read every shard again, checksums included, and hold it against the manifest.

    Args:
        uri: The output.

    Yields:
        What differs.

    Raises:
        ConfigError: There is no manifest.
    """
    manifest = read_manifest(uri)
    try:
        check_accounts(manifest.shards, cast(Format, manifest.recipe["format"]))
        totals = count_totals(manifest.shards)
    except (ShardError, KeyError, TypeError) as error:
        yield Difference(MANIFEST_FILE, f"its shards don't add up: {error}")
    else:
        if totals != manifest.totals:
            yield Difference(MANIFEST_FILE, "its totals are not the sums over its shards")
    for report in manifest.shards:
        problem = _check_shard(storage.join(uri, report.path), report, manifest)
        if problem is not None:
            yield Difference(report.path, problem)
        if report.rejects_path is not None:
            n_rejects = count_rows(storage.join(uri, report.rejects_path))
            if n_rejects != report.n_rejects:
                yield Difference(
                    report.rejects_path,
                    (
                        "is missing or damaged"
                        if n_rejects is None
                        else f"holds {n_rejects} rejects, the manifest says {report.n_rejects}"
                    ),
                )


def read_rejects(uri: str, manifest: Manifest) -> Iterator[Reject]:
    """The records of an output that could not be read.

    Raises:
        ShardError: A file of them is missing or damaged.
    """
    for report in manifest.shards:
        if report.rejects_path is None:
            continue
        rejects_uri = storage.join(uri, report.rejects_path)
        try:
            with storage.open_input(rejects_uri) as stream:
                rows = pq.read_table(stream).to_pylist()
        except (pa.ArrowException, CorpusError) as error:
            raise ShardError(f"is damaged: {_reason(error)}", rejects_uri) from error
        yield from (Reject(**row) for row in rows)


def _row_groups(uri: str, manifest: Manifest) -> Iterator[tuple[str, int]]:
    for report in manifest.shards:
        yield from ((storage.join(uri, report.path), number) for number in range(report.n_row_groups))


def _read_row_group(shard_uri: str, number: int, layers: Sequence[str], layout: ShardLayout) -> list[EmbeddedSentence]:
    columns = [*KEY_COLUMNS, *layers]
    try:
        with storage.open_input(shard_uri) as stream:
            table = pq.ParquetFile(stream, page_checksum_verification=True).read_row_group(number, columns=columns)
    except (pa.ArrowException, CorpusError) as error:
        raise ShardError(f"is damaged: {_reason(error)}; elmo verify tells more", shard_uri) from error
    batch = table.combine_chunks().to_batches()[0]
    keys = batch.select(list(KEY_COLUMNS)).to_pylist()
    offsets = np.concatenate([[0], np.cumsum([len(key["tokens"]) for key in keys])])
    # One copy a row group makes tensors that may be written to; rows are views of it.
    tensors = {name: torch.from_numpy(layout.vector_values(batch.column(name)).copy()) for name in layers}
    return [
        EmbeddedSentence(**key, layers={name: tensor[start:stop] for name, tensor in tensors.items()})
        for key, start, stop in zip(keys, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]


def _check_shard(shard_uri: str, report: ShardReport, manifest: Manifest) -> str | None:
    n_bytes = storage.size(shard_uri)
    if n_bytes is None:
        return "is missing"
    if n_bytes != report.n_bytes:
        return f"has {n_bytes} bytes, the manifest says {report.n_bytes}"
    try:
        footer = read_footer(shard_uri)
        if footer is None or json.loads(footer)["path"] != report.path:
            return "is another shard, or not one of ours"
        with storage.open_input(shard_uri) as stream:
            return _check_contents(pq.ParquetFile(stream, page_checksum_verification=True), report, manifest.layout)
    except (pa.ArrowException, CorpusError, OSError, ValueError) as error:
        return _reason(error)


def _check_contents(file: pq.ParquetFile, report: ShardReport, layout: ShardLayout) -> str | None:
    if not file.schema_arrow.equals(layout.schema(), check_metadata=False):
        return "has other columns than the manifest says"
    n_rows = n_tokens = 0
    for number in range(file.num_row_groups):
        for batch in file.read_row_group(number).combine_chunks().to_batches():
            lengths = _lengths(batch.column("tokens"))
            n_rows += len(batch)
            n_tokens += int(lengths.sum())
            for name in layout.columns:
                values = layout.vector_values(batch.column(name))
                if len(values) != lengths.sum():
                    return f"has {len(values)} vectors in {name} for {lengths.sum()} tokens"
                if not np.isfinite(values).all():
                    return f"has NaN or infinite values in {name}"
    if (n_rows, n_tokens) != (report.n_rows, report.n_tokens):
        return f"holds {n_rows} rows and {n_tokens} tokens, the manifest says {report.n_rows} and {report.n_tokens}"
    return None


def _reason(error: Exception) -> str:
    """An error in one line, without the place if it names one: the caller does."""
    return error.message if isinstance(error, CorpusError) else f"can't be read: {str(error).splitlines()[0]}"


def _lengths(column: pa.ListArray) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = column.value_lengths().to_numpy(zero_copy_only=False)
    return lengths
