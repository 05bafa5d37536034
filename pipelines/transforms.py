"""The Beam wiring: sources to ranges to shards to one manifest. What the steps do is in other files."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Final

import apache_beam as beam
import torch
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from elmo_core import BundleError, Embedder, Tokenizer, load_bundle, load_tokenizer
from pipelines import storage
from pipelines.corpus import TextRange, plan_ranges
from pipelines.manifest import (
    MANIFEST_FILE,
    Manifest,
    RunSpec,
    ShardReport,
    check_accounts,
    count_totals,
    sort_reports,
    write_manifest,
)
from pipelines.work import featurize_range

NAMESPACE: Final = "elmo"
LOG_SECONDS: Final = 10.0
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Model:
    """What a worker process loads once; Beam's `Shared` refers to it weakly, so it has no slots."""

    embedder: Embedder
    tokenizer: Tokenizer


class FeaturizeSources(beam.PTransform):
    """File URIs or globs in, the manifest's URI out."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self._spec = spec if spec.run_id else spec.started(spec.n_threads)

    def expand(self, patterns: beam.PCollection) -> beam.PCollection:
        """One chain, a step a line."""
        return (
            patterns
            | "ListSources" >> beam.FlatMap(_list_sources)
            | "DropDuplicates" >> beam.Distinct()
            | "PlanRanges" >> beam.FlatMap(_plan_ranges, self._spec.recipe.range_bytes)
            | "SpreadRanges" >> beam.Reshuffle()
            | "EmbedRanges" >> beam.ParDo(EmbedRanges(self._spec))
            | "CollectReports" >> beam.combiners.ToList()
            | "CommitManifest" >> beam.Map(commit_manifest, self._spec)
        )


class EmbedRanges(beam.DoFn):
    """Make each range's shards; the model is loaded once a process and shared between its threads."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._shared = Shared()
        self._model: _Model | None = None
        self._tokens = Metrics.counter(NAMESPACE, "tokens")
        self._rows = Metrics.counter(NAMESPACE, "rows")
        self._rejects = Metrics.counter(NAMESPACE, "rejects")
        self._model_ms = Metrics.counter(NAMESPACE, "model_ms")
        self._write_ms = Metrics.counter(NAMESPACE, "write_ms")

    def setup(self) -> None:
        """Load the model, unless another thread of this process has."""
        self._model = self._shared.acquire(lambda: _load_model(self._spec), tag=self._spec.recipe.fingerprint)
        self._progress = _Progress()

    def process(self, text_range: TextRange) -> Iterator[ShardReport]:
        """Make the shards of one unit of work."""
        if self._model is None:
            raise RuntimeError("setup was not called")
        model = self._model
        for report in featurize_range(
            text_range,
            recipe=self._spec.recipe,
            tokenizer=model.tokenizer,
            embedder=model.embedder,
            output=self._spec.output,
        ):
            self._tokens.inc(report.n_tokens)
            self._rows.inc(report.n_rows)
            self._rejects.inc(report.n_rejects)
            self._model_ms.inc(int(1000 * report.model_seconds))
            self._write_ms.inc(int(1000 * report.write_seconds))
            self._progress.add(report)
            yield report


class _Progress:
    """A log line every few seconds at most."""

    def __init__(self) -> None:
        self._began = self._logged = time.monotonic()
        self._n_shards = self._n_tokens = 0

    def add(self, report: ShardReport) -> None:
        self._n_shards += 1
        self._n_tokens += report.n_tokens
        now = time.monotonic()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            rate = self._n_tokens / (now - self._began)
            _logger.info("%d shards, %d tokens so far in this worker, %.0f tokens/s", self._n_shards, self._n_tokens, rate)


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


def _list_sources(pattern: str) -> list[str]:
    return [file.uri for file in storage.expand(pattern)]


def _plan_ranges(uri: str, range_bytes: int) -> list[TextRange]:
    return [text_range for file in storage.expand(uri) for text_range in plan_ranges(file, range_bytes)]


def _load_model(spec: RunSpec) -> _Model:
    if spec.n_threads is not None:
        torch.set_num_threads(spec.n_threads)
    with storage.local_folder(spec.bundle.uri) as folder:
        bundle = load_bundle(folder)
    if bundle.hash != spec.bundle.hash:
        raise BundleError("is not the bundle that the run was planned with; it was changed meanwhile", spec.bundle.uri)
    recipe = spec.recipe
    embedder = Embedder(bundle, device=spec.device, precision=recipe.precision, initial_state=recipe.initial_state)
    return _Model(embedder, load_tokenizer(recipe.tokenizer))
