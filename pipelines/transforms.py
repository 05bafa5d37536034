"""The Beam wiring: sources to ranges to shards to one manifest. What the steps do is in other files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from elmo_core import CorpusError, Embedder
from pipelines import storage
from pipelines.corpus import TextRange, plan_ranges
from pipelines.manifest import RunSpec, ShardReport, commit_manifest
from pipelines.work import Progress, featurize_range, load_worker_embedder, load_worker_tokenizer

NAMESPACE: Final = "elmo"


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
        self._embedder: Embedder | None = None
        self._tokens = Metrics.counter(NAMESPACE, "tokens")
        self._rows = Metrics.counter(NAMESPACE, "rows")
        self._rejects = Metrics.counter(NAMESPACE, "rejects")
        self._model_ms = Metrics.counter(NAMESPACE, "model_ms")
        self._write_ms = Metrics.counter(NAMESPACE, "write_ms")

    def setup(self) -> None:
        """Load the model, unless another thread of this process has; the tokenizer is each thread's own."""
        self._embedder = self._shared.acquire(lambda: load_worker_embedder(self._spec), tag=self._spec.recipe.fingerprint)
        self._tokenizer = load_worker_tokenizer(self._spec.recipe)
        self._progress = Progress()

    def process(self, text_range: TextRange) -> Iterator[ShardReport]:
        """Make the shards of one unit of work."""
        if self._embedder is None:
            raise RuntimeError("setup was not called")
        for report in featurize_range(
            text_range,
            recipe=self._spec.recipe,
            tokenizer=self._tokenizer,
            embedder=self._embedder,
            output=self._spec.output,
        ):
            self._tokens.inc(report.n_tokens)
            self._rows.inc(report.n_rows)
            self._rejects.inc(report.n_rejects)
            self._model_ms.inc(int(1000 * report.model_seconds))
            self._write_ms.inc(int(1000 * report.write_seconds))
            self._progress.add(report)
            yield report


def _list_sources(pattern: str) -> list[str]:
    return [file.uri for file in storage.expand(pattern)]


def _plan_ranges(uri: str, range_bytes: int) -> list[TextRange]:
    n_bytes = storage.size(uri)
    if n_bytes is None:
        raise CorpusError("is gone; it was there when the run began", uri)
    return list(plan_ranges(storage.StoredFile(uri, n_bytes), range_bytes))
