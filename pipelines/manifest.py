"""The recipe of a run, the report of a shard, and the manifest: the one list of what can be trusted."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, Final

from elmo_core import ConfigError, ShardError
from elmo_core.embedder import Device, InitialState, Precision
from pipelines import storage
from pipelines.corpus import Format
from pipelines.layers import LayerSelection
from pipelines.schema import SCHEMA_VERSION, DType, ShardLayout, Vectors
from pipelines.shards import Compression

MANIFEST_FILE: Final = "manifest.json"
SHARDS_FOLDER: Final = "shards"
REJECTS_FOLDER: Final = "rejects"
KIND: Final = "elmo-corpus-manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that changes the bytes of a shard, but for the text itself.

    Devices and numbers of threads are not part of it: they change vectors by rounding only.
    """

    bundle_hash: str
    width: int
    format: Format
    encoding: str
    tokenizer: str
    tokenizer_version: str
    layers: LayerSelection
    dtype: DType
    vectors: Vectors
    compression: Compression
    precision: Precision
    initial_state: InitialState
    range_bytes: int
    schema_version: int = SCHEMA_VERSION

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all of it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def layout(self) -> ShardLayout:
        """How the shards store vectors."""
        return ShardLayout(self.layers.columns, self.width, self.dtype, self.vectors)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """What became of one range.

    Args:
        path: The shard, relative to the output.
        source: URI of the source.
        start: First byte of the range.
        stop: The byte after its last.
        n_records: Records that the range owns.
        n_text_bytes: Their bytes.
        n_rejects: Records among them that gave no row.
        n_rows: Sentences written.
        n_tokens: Tokens written, each with its vectors.
        n_cut_tokens: Tokens longer than the model's byte limit, whose vectors know only their beginning.
        n_clipped: Values that the type could not hold.
        n_row_groups: Row groups of the shard.
        text_sha256: Of the records' bytes.
        reject_reasons: How many rejects of each reason.
        rejects_path: Where the rejects are, relative to the output; None where there are none.
        n_bytes: Size of the shard.
        model_seconds: Time in the model; 0 for a shard that was there already.
        write_seconds: Time in casting and writing; 0 for a shard that was there already.

    The footer of a shard holds its report too, with 0 for what is known only later: its size and the times.
    """

    path: str
    source: str
    start: int
    stop: int
    n_records: int
    n_text_bytes: int
    n_rejects: int
    n_rows: int
    n_tokens: int
    n_cut_tokens: int
    n_clipped: int
    n_row_groups: int
    text_sha256: str
    reject_reasons: Mapping[str, int]
    rejects_path: str | None
    n_bytes: int = 0
    model_seconds: float = 0.0
    write_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFacts:
    """The model of a run.

    Args:
        uri: Where it was.
        hash: SHA-256 of its sizes and weights.
        trained: False for random weights, whose vectors mean nothing.
    """

    uri: str
    hash: str
    trained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """All that the workers of a run need to know.

    Args:
        recipe: Everything that changes the bytes.
        bundle: The model.
        output: URI of the output.
        device: `auto`, `cpu` or `cuda`, resolved on the worker.
        max_rejects: Records that may be rejected.
        n_threads: Torch threads of a worker process, None for torch's own choice.
        versions: Software of the submitting process.
        run_id: Tells this run's manifest from others.
        began: Seconds since the epoch.
    """

    recipe: Recipe
    bundle: BundleFacts
    output: str
    device: Device
    max_rejects: int
    n_threads: int | None
    versions: Mapping[str, str]
    run_id: str = ""
    began: float = 0.0

    def started(self, n_threads: int | None) -> RunSpec:
        """The spec of a run that starts now."""
        return replace(self, n_threads=n_threads, run_id=uuid.uuid4().hex, began=time.time())


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an output holds and how it was made.

    Args:
        run_id: Of the run that wrote it.
        created: When, in UTC, ISO 8601.
        recipe: Everything that changes the bytes, as plain JSON.
        fingerprint: SHA-256 of the recipe.
        layout: How vectors are stored.
        bundle: The model.
        shards: Every shard, by source and start.
        totals: Sums over the shards.
        max_rejects: Rejects that the run allowed.
        seconds: Wall time of the run.
        versions: Software that made it.
    """

    run_id: str
    created: str
    recipe: Mapping[str, object]
    fingerprint: str
    layout: ShardLayout
    bundle: BundleFacts
    shards: tuple[ShardReport, ...]
    totals: Mapping[str, int]
    max_rejects: int
    seconds: float
    versions: Mapping[str, str]

    @property
    def sources(self) -> list[str]:
        """URIs of all sources, sorted."""
        return sorted({shard.source for shard in self.shards})

    @property
    def has_too_many_rejects(self) -> bool:
        """Whether more records were rejected than the run allowed."""
        return self.totals["rejects"] > self.max_rejects

    def to_json(self) -> str:
        """The manifest as it is stored."""
        body = {"kind": KIND, "schema_version": SCHEMA_VERSION, **asdict(self)}
        return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def sort_reports(reports: Iterable[ShardReport]) -> tuple[ShardReport, ...]:
    """Reports by source and start; a range that was done twice counts once."""
    unique = {(report.source, report.start): report for report in reports}
    return tuple(unique[key] for key in sorted(unique))


def count_totals(shards: Sequence[ShardReport]) -> dict[str, int]:
    """Sums over shards, sources included."""
    return {
        "sources": len({shard.source for shard in shards}),
        "shards": len(shards),
        "records": sum(shard.n_records for shard in shards),
        "rejects": sum(shard.n_rejects for shard in shards),
        "rows": sum(shard.n_rows for shard in shards),
        "tokens": sum(shard.n_tokens for shard in shards),
        "cut_tokens": sum(shard.n_cut_tokens for shard in shards),
        "clipped_values": sum(shard.n_clipped for shard in shards),
        "text_bytes": sum(shard.n_text_bytes for shard in shards),
        "bytes": sum(shard.n_bytes for shard in shards),
    }


def check_accounts(shards: Sequence[ShardReport], corpus_format: Format) -> None:
    """Hold the ranges against their sources: every byte belongs to one record, every record is a reject or has rows.

    Args:
        shards: From `sort_reports`.
        corpus_format: Lines have exactly one row each, prose at least one.

    Raises:
        ShardError: Ranges of a source leave a gap, its records do not add up to its bytes, or its rows not to its records.
    """
    for shard in shards:
        n_read = shard.n_records - shard.n_rejects
        if shard.n_rows < n_read or (corpus_format == "lines" and shard.n_rows != n_read):
            raise ShardError(f"has {shard.n_rows} rows for {n_read} records that could be read: a fault of ours", shard.path)
    for source, group in groupby(shards, key=attrgetter("source")):
        ranges = list(group)
        if ranges[0].start != 0 or any(a.stop != b.start for a, b in pairwise(ranges)):
            raise ShardError("its ranges do not cover it without a gap; run again", source)
        n_text_bytes = sum(shard.n_text_bytes for shard in ranges)
        if n_text_bytes != ranges[-1].stop:
            raise ShardError(
                f"its records hold {n_text_bytes} bytes, its ranges {ranges[-1].stop}: the file changed meanwhile; run again",
                source,
            )


def commit_manifest(reports: Iterable[ShardReport], spec: RunSpec) -> str:
    """Check the accounts and put the manifest in place, the last act of a run.

    Args:
        reports: Of all shards, in any order.
        spec: Of the run.

    Returns:
        The manifest's URI.

    Raises:
        ShardError: The accounts don't balance, or the manifest can't be written; the old one still holds.
    """
    shards = sort_reports(reports)
    check_accounts(shards, spec.recipe.format)
    now = time.time()
    manifest = Manifest(
        run_id=spec.run_id,
        created=datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="seconds"),
        recipe=asdict(spec.recipe),
        fingerprint=spec.recipe.fingerprint,
        layout=spec.recipe.layout,
        bundle=spec.bundle,
        shards=shards,
        totals=count_totals(shards),
        max_rejects=spec.max_rejects,
        seconds=round(now - spec.began, 3),
        versions=spec.versions,
    )
    write_manifest(spec.output, manifest)
    return storage.join(spec.output, MANIFEST_FILE)


def write_manifest(output: str, manifest: Manifest) -> None:
    """Put the manifest in place, whole, as the last act of a run.

    Raises:
        ShardError: It can't be written; the old one is still there.
    """
    with storage.publishing(storage.join(output, MANIFEST_FILE)) as scratch:
        scratch.write_text(manifest.to_json(), encoding="utf-8")


def read_manifest(output: str) -> Manifest:
    """Read an output's manifest.

    Raises:
        ConfigError: There is none, or it isn't ours.
    """
    manifest = find_manifest(output)
    if manifest is None:
        raise ConfigError(f"has no {MANIFEST_FILE}: no run has finished there", output)
    return manifest


def find_manifest(output: str) -> Manifest | None:
    """Read an output's manifest, None where there is none.

    Raises:
        ConfigError: It isn't ours, or of a newer kind.
    """
    uri = storage.join(output, MANIFEST_FILE)
    raw = storage.read_bytes(uri)
    if raw is None:
        return None
    try:
        body = json.loads(raw)
        if body["kind"] != KIND:
            raise ConfigError("is not a manifest of ours", uri)
        if body["schema_version"] != SCHEMA_VERSION:
            raise ConfigError(f"has schema version {body['schema_version']}; this release reads {SCHEMA_VERSION}", uri)
        return _parse(body)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError("is not a manifest of ours", uri) from error


def _parse(body: dict[str, Any]) -> Manifest:
    values = {field.name: body[field.name] for field in fields(Manifest)}
    values["layout"] = ShardLayout(**body["layout"] | {"columns": tuple(body["layout"]["columns"])})
    values["bundle"] = BundleFacts(**body["bundle"])
    values["shards"] = tuple(ShardReport(**shard) for shard in body["shards"])
    return Manifest(**values)
