"""The unit of work: a range of a source in, one shard and its report out. A plain function."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Final

import torch

from elmo_core import BundleError, ConfigError, Embedder, Sentence, Tokenizer, load_bundle, load_tokenizer
from elmo_core.embedder import Float32Array, plan_batches
from pipelines import storage
from pipelines.corpus import TextRange, decode_record, read_ranges
from pipelines.manifest import REJECTS_FOLDER, SHARDS_FOLDER, Recipe, RunSpec, ShardReport
from pipelines.rejects import Reject
from pipelines.shards import Rows, ShardWriter, count_rows, open_shard, read_footer, write_rejects

LOG_SECONDS: Final = 10.0
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Row:
    offset: int
    number: int
    sentence: Sentence


@dataclass(slots=True)
class _Clock:
    model_seconds: float = 0.0
    write_seconds: float = 0.0


def featurize_range(
    text_range: TextRange, *, recipe: Recipe, tokenizer: Tokenizer, embedder: Embedder, output: str
) -> Iterator[ShardReport]:
    """Read, tokenize, embed and write what a unit of work owns.

    A shard's name follows from the recipe, the range and its text. So a shard that lies there already, whole, is the
    one wanted: it is reported again, not made again, and no other text can overwrite it.

    Args:
        text_range: The unit.
        recipe: How to do it.
        tokenizer: The recipe's.
        embedder: The recipe's.
        output: URI of the output.

    Yields:
        A report for each shard: one for a range of a plain source, one or more for a compressed source.

    Raises:
        CorpusError: The source can't be read.
        ShardError: The shard can't be written.
    """
    for owned in read_ranges(text_range):
        text_hash = hashlib.sha256()
        for record in owned.records:
            text_hash.update(record.raw)
        name = shard_name(recipe.fingerprint, text_range.source, owned.start, owned.stop, text_hash.hexdigest())
        found = _find_shard(output, name)
        if found is not None and (found.source, found.start, found.text_sha256) == (
            text_range.source,
            owned.start,
            text_hash.hexdigest(),
        ):
            yield found
            continue
        texts = [decode_record(record, text_range.source, recipe.encoding) for record in owned.records]
        rejects = [text for text in texts if isinstance(text, Reject)]
        rows = [
            _Row(record.offset, number, sentence)
            for record, text in zip(owned.records, texts, strict=True)
            if not isinstance(text, Reject)
            for number, sentence in enumerate(tokenizer.tokenize(text, is_prose=recipe.format == "text"))
        ]
        report = ShardReport(
            path=f"{SHARDS_FOLDER}/{name}.parquet",
            source=text_range.source,
            start=owned.start,
            stop=owned.stop,
            n_records=len(owned.records),
            n_text_bytes=sum(len(record.raw) for record in owned.records),
            n_rejects=len(rejects),
            n_rows=len(rows),
            n_tokens=sum(len(row.sentence.tokens) for row in rows),
            n_cut_tokens=sum(embedder.n_cut(row.sentence.tokens) for row in rows),
            n_clipped=0,
            n_row_groups=0,
            text_sha256=text_hash.hexdigest(),
            reject_reasons=dict(Counter(reject.reason for reject in rejects)),
            rejects_path=f"{REJECTS_FOLDER}/{name}.parquet" if rejects else None,
        )
        if report.rejects_path is not None:  # before the shard, which vouches for it
            with storage.publishing(storage.join(output, report.rejects_path)) as scratch:
                write_rejects(scratch, rejects)
        yield _write_shard(report, rows, recipe, embedder, output)


def load_worker_embedder(spec: RunSpec) -> Embedder:
    """Load the run's model on a worker.

    Raises:
        BundleError: The bundle is damaged, or not the one that the run was planned with.
        ConfigError: The device isn't there.
    """
    if spec.n_threads is not None:
        torch.set_num_threads(spec.n_threads)
    with storage.local_folder(spec.bundle.uri) as folder:
        bundle = load_bundle(folder)
    if bundle.hash != spec.bundle.hash:
        raise BundleError("is not the bundle that the run was planned with; it was changed meanwhile", spec.bundle.uri)
    recipe = spec.recipe
    return Embedder(bundle, device=spec.device, precision=recipe.precision, initial_state=recipe.initial_state)


def load_worker_tokenizer(recipe: Recipe) -> Tokenizer:
    """Load the run's tokenizer on a worker, one for each thread: spaCy's are not safe to share.

    Raises:
        ConfigError: The worker has another release of it than the run was planned with.
    """
    tokenizer = load_tokenizer(recipe.tokenizer)
    if tokenizer.version != recipe.tokenizer_version:
        raise ConfigError(
            f"tokenizer {recipe.tokenizer!r} is {tokenizer.version} on a worker and {recipe.tokenizer_version} where the run "
            "was planned; install the same release"
        )
    return tokenizer


class Progress:
    """A log line every few seconds at most."""

    def __init__(self) -> None:
        self._began = self._logged = time.monotonic()
        self._n_shards = self._n_tokens = 0

    def add(self, report: ShardReport) -> None:
        """Count a shard that is done."""
        self._n_shards += 1
        self._n_tokens += report.n_tokens
        now = time.monotonic()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            rate = self._n_tokens / (now - self._began)
            _logger.info("%d shards, %d tokens so far in this worker, %.0f tokens/s", self._n_shards, self._n_tokens, rate)


def shard_name(fingerprint: str, source: str, start: int, stop: int, text_sha256: str) -> str:
    """A shard's name, without its ending: readable, and different for whatever makes its bytes different."""
    key = hashlib.sha256(f"{fingerprint}\n{source}\n{start}\n{stop}\n{text_sha256}".encode()).hexdigest()[:20]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", source.rsplit("/", 1)[-1]).lstrip(".")[:60]
    return f"{stem}-{start:012d}-{key}"


def _find_shard(output: str, name: str) -> ShardReport | None:
    uri = storage.join(output, SHARDS_FOLDER, f"{name}.parquet")
    n_bytes = storage.size(uri)
    footer = None if n_bytes is None else read_footer(uri)
    if n_bytes is None or footer is None:  # what is damaged is made again
        return None
    try:
        report = replace(ShardReport(**json.loads(footer)), n_bytes=n_bytes)
    except (ValueError, TypeError):
        return None
    if report.path != f"{SHARDS_FOLDER}/{name}.parquet":  # another shard's content, put here by hand
        return None
    if report.rejects_path is not None and count_rows(storage.join(output, report.rejects_path)) != report.n_rejects:
        return None
    return report


def _write_shard(report: ShardReport, rows: Sequence[_Row], recipe: Recipe, embedder: Embedder, output: str) -> ShardReport:
    clock = _Clock()
    batches = [
        rows[batch.start : batch.stop] for batch in plan_batches([len(r.sentence.tokens) for r in rows], embedder.batch_tokens)
    ]
    with storage.publishing(storage.join(output, report.path)) as scratch:
        with open_shard(scratch, recipe.layout, recipe.compression) as shard:
            _embed_and_write(shard, report.source, batches, recipe, embedder, clock)
            shard.flush()
            report = replace(report, n_clipped=shard.n_clipped, n_row_groups=shard.n_row_groups)
            shard.set_report(json.dumps(asdict(report), sort_keys=True).encode())
        n_bytes = scratch.stat().st_size
    return replace(
        report, n_bytes=n_bytes, model_seconds=round(clock.model_seconds, 3), write_seconds=round(clock.write_seconds, 3)
    )


def _embed_and_write(
    shard: ShardWriter, source: str, batches: Sequence[Sequence[_Row]], recipe: Recipe, embedder: Embedder, clock: _Clock
) -> None:
    """Write each batch while the next one is embedded; no more than two are in memory."""
    embedded = embedder.embed_batches([row.sentence.tokens for row in batch] for batch in batches)
    written: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="write") as writer:
        for batch in batches:
            began = time.perf_counter()
            layers = next(embedded).layers
            clock.model_seconds += time.perf_counter() - began
            if written is not None:
                written.result()
            written = writer.submit(_write_rows, shard, source, batch, recipe, layers, clock)
        if written is not None:
            written.result()


def _write_rows(
    shard: ShardWriter, source: str, rows: Sequence[_Row], recipe: Recipe, layers: Float32Array, clock: _Clock
) -> None:
    began = time.perf_counter()
    offsets, numbers, sentences = [row.offset for row in rows], [row.number for row in rows], [row.sentence for row in rows]
    shard.write(Rows(source, offsets, numbers, sentences, recipe.layers.select(layers)))
    clock.write_seconds += time.perf_counter() - began
