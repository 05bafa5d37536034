"""The unit of work: a range of a source in, one shard and its report out. A plain function."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmo_core import Embedder, Sentence, ShardError, Tokenizer
from elmo_core.embedder import BATCH_TOKENS, plan_batches
from pipelines import storage
from pipelines.corpus import RangeRecords, TextRange, decode_record, read_ranges
from pipelines.manifest import REJECTS_FOLDER, SHARDS_FOLDER, Recipe, ShardReport
from pipelines.rejects import Reject
from pipelines.schema import REPORT_KEY
from pipelines.shards import Rows, ShardWriter, open_shard, read_shard_facts, write_rejects


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
        facts: dict[str, object] = {
            "path": f"{SHARDS_FOLDER}/{name}.parquet",
            "source": text_range.source,
            "start": owned.start,
            "stop": owned.stop,
            "n_records": len(owned.records),
            "n_text_bytes": sum(len(record.raw) for record in owned.records),
            "text_sha256": text_hash.hexdigest(),
        }
        yield _find_shard(output, facts) or _make_shard(owned, facts, recipe, tokenizer, embedder, output)


def shard_name(fingerprint: str, source: str, start: int, stop: int, text_sha256: str) -> str:
    """A shard's name, without its ending: readable, and different for whatever makes its bytes different."""
    key = hashlib.sha256(f"{fingerprint}\n{source}\n{start}\n{stop}\n{text_sha256}".encode()).hexdigest()[:20]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", source.rsplit("/", 1)[-1]).lstrip(".")[:60]
    return f"{stem}-{start:012d}-{key}"


def _find_shard(output: str, facts: dict[str, object]) -> ShardReport | None:
    uri = storage.join(output, str(facts["path"]))
    n_bytes = storage.size(uri)
    if n_bytes is None:
        return None
    return _report(read_shard_facts(uri), n_bytes, _Clock())


def _make_shard(
    owned: RangeRecords, facts: dict[str, object], recipe: Recipe, tokenizer: Tokenizer, embedder: Embedder, output: str
) -> ShardReport:
    rows: list[_Row] = []
    rejects: list[Reject] = []
    source, path = str(facts["source"]), str(facts["path"])
    for record in owned.records:
        text = decode_record(record, source, recipe.encoding)
        if isinstance(text, Reject):
            rejects.append(text)
            continue
        sentences = tokenizer.tokenize(text, is_prose=recipe.format == "text")
        rows.extend(_Row(record.offset, number, sentence) for number, sentence in enumerate(sentences))
    if len({row.offset for row in rows}) + len(rejects) != len(owned.records):
        raise ShardError(f"the range from byte {owned.start} gave rows and rejects for other than its records", source)
    rejects_path = f"{REJECTS_FOLDER}/{Path(path).name}" if rejects else None
    if rejects_path is not None:  # before the shard, which vouches for it
        with storage.publishing(storage.join(output, rejects_path)) as scratch:
            write_rejects(scratch, rejects)
    clock = _Clock()
    uri = storage.join(output, path)
    with storage.publishing(uri) as scratch:
        with open_shard(scratch, recipe.layout, recipe.compression) as shard:
            _write_rows(shard, source, rows, recipe, embedder, clock)
            facts = facts | {
                "n_rejects": len(rejects),
                "n_rows": len(rows),
                "n_tokens": sum(len(row.sentence.tokens) for row in rows),
                "n_cut_tokens": sum(embedder.n_cut(row.sentence.tokens) for row in rows),
                "n_clipped": shard.n_clipped,
                "reject_reasons": dict(Counter(reject.reason for reject in rejects)),
                "rejects_path": rejects_path,
            }
            shard.add_metadata({REPORT_KEY: json.dumps(facts, sort_keys=True).encode()})
        n_bytes = scratch.stat().st_size
    return _report(facts, n_bytes, clock)


def _write_rows(shard: ShardWriter, source: str, rows: Sequence[_Row], recipe: Recipe, embedder: Embedder, clock: _Clock) -> None:
    for batch in plan_batches([len(row.sentence.tokens) for row in rows], BATCH_TOKENS):
        some = rows[batch.start : batch.stop]
        began = time.perf_counter()
        vectors = embedder.embed_batch([row.sentence.tokens for row in some])
        embedded = time.perf_counter()
        columns = recipe.layers.select(vectors.layers)
        shard.write(
            Rows(source, [row.offset for row in some], [row.number for row in some], [row.sentence for row in some], columns)
        )
        clock.model_seconds += embedded - began
        clock.write_seconds += time.perf_counter() - embedded


def _report(facts: dict[str, object], n_bytes: int, clock: _Clock) -> ShardReport:
    return ShardReport(  # type: ignore[arg-type]  # the facts are the report's own fields
        **facts, n_bytes=n_bytes, model_seconds=round(clock.model_seconds, 3), write_seconds=round(clock.write_seconds, 3)
    )
