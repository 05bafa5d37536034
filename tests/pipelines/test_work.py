"""The unit of work: a range in, a shard and its report out."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from builders import make_bundle, make_recipe

from elmo_core import CorpusError, Embedder, load_tokenizer
from pipelines import storage
from pipelines.corpus import plan_ranges
from pipelines.manifest import Recipe, ShardReport
from pipelines.work import featurize_range

TEXT = b"The cat sat .\n\nbad \xff bytes\n" + b"".join(b"line %d has words\r\n" % i for i in range(40)) + b"x" * 60 + b" last"


@pytest.fixture(autouse=True)
def _clean_memory() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(make_bundle(), device="cpu")


def featurize(
    content: bytes, embedder: Embedder, recipe: Recipe | None = None, output: str = "memory://out"
) -> list[ShardReport]:
    recipe = recipe or make_recipe()
    fsspec.filesystem("memory").pipe_file("/in/a.txt", content)
    [file] = storage.expand("memory://in/a.txt")
    tokenizer = load_tokenizer(recipe.tokenizer)
    return [
        report
        for text_range in plan_ranges(file, recipe.range_bytes)
        for report in featurize_range(text_range, recipe=recipe, tokenizer=tokenizer, embedder=embedder, output=output)
    ]


def rows_of(reports: list[ShardReport], output: str = "memory://out") -> list[dict[str, Any]]:
    tables = []
    for report in reports:
        with storage.open_input(storage.join(output, report.path)) as stream:
            tables.append(pq.read_table(stream))
    return [row for table in tables for row in table.to_pylist()]


def test_reports_add_up_to_the_source(embedder: Embedder) -> None:
    reports = featurize(TEXT, embedder)
    assert len(reports) == -(-len(TEXT) // 200)
    assert sum(report.n_text_bytes for report in reports) == len(TEXT)
    assert sum(report.n_records for report in reports) == 44
    assert sum(report.n_rows for report in reports) == 43
    assert sum(report.n_tokens for report in reports) == 4 + 40 * 4 + 2
    assert sum(report.n_cut_tokens for report in reports) == 1
    assert [report.reject_reasons for report in reports if report.n_rejects] == [{"not utf-8": 1}]


def test_rows_read_back_equal_embed_of_their_tokens(embedder: Embedder) -> None:
    rows = rows_of(featurize(TEXT, embedder))
    expected = embedder.embed([row["tokens"] for row in rows])
    for row, vectors in zip(rows, expected, strict=True):
        for number in range(3):
            actual = np.array(row[f"layer_{number}"], np.float32).reshape(-1, 16)
            np.testing.assert_allclose(actual, vectors[number], rtol=0, atol=1e-6)


def test_every_row_points_back_into_its_source(embedder: Embedder) -> None:
    for row in rows_of(featurize(TEXT, embedder)):
        line = TEXT[row["offset"] :].split(b"\n")[0].decode()
        assert [line[span["start"] : span["stop"]] for span in row["spans"]] == row["tokens"] == line.split()


def test_rejects_are_kept_with_their_place(embedder: Embedder) -> None:
    [path] = [report.rejects_path for report in featurize(TEXT, embedder) if report.rejects_path]
    with storage.open_input(f"memory://out/{path}") as stream:
        [reject] = pq.read_table(stream).to_pylist()
    assert (reject["source"], reject["offset"], reject["content"]) == ("memory:///in/a.txt", 15, "bad \\xff bytes")


def test_prose_gives_a_row_a_sentence(embedder: Embedder) -> None:
    rows = rows_of(featurize(b"One two. Three four!\n\nFive.\n", embedder, make_recipe(format="text")))
    keys = [(row["offset"], row["sentence"], row["tokens"]) for row in rows]
    assert keys == [(0, 0, ["One", "two."]), (0, 1, ["Three", "four!"]), (21, 0, []), (22, 0, ["Five."])]


def test_a_finished_shard_is_not_made_again(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    first = featurize(TEXT, embedder)
    monkeypatch.setattr(Embedder, "embed_batches", None)
    again = featurize(TEXT, embedder)
    assert again == [replace(report, model_seconds=0.0, write_seconds=0.0) for report in first]


def test_a_damaged_shard_is_made_again(embedder: Embedder) -> None:
    first = featurize(TEXT, embedder)
    uri = f"memory://out/{first[0].path}"
    whole = storage.read_bytes(uri)
    assert whole is not None
    fsspec.filesystem("memory").pipe_file(f"/out/{first[0].path}", whole[:50])
    featurize(TEXT, embedder)
    assert storage.read_bytes(uri) == whole


def test_another_shards_content_under_a_name_is_made_again(embedder: Embedder) -> None:
    first = featurize(TEXT, embedder)
    fs = fsspec.filesystem("memory")
    whole = storage.read_bytes(f"memory://out/{first[0].path}")
    fs.cp_file(f"/out/{first[1].path}", f"/out/{first[0].path}")
    assert [report.path for report in featurize(TEXT, embedder)] == [report.path for report in first]
    assert storage.read_bytes(f"memory://out/{first[0].path}") == whole


def test_rejects_that_are_gone_are_written_again(embedder: Embedder) -> None:
    [path] = [report.rejects_path for report in featurize(TEXT, embedder) if report.rejects_path]
    fsspec.filesystem("memory").rm_file(f"/out/{path}")
    featurize(TEXT, embedder)
    assert storage.size(f"memory://out/{path}") is not None


def test_a_source_that_changes_under_way_is_an_error(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = iter(["before", "after"])
    monkeypatch.setattr(storage, "version", lambda uri: next(versions))
    with pytest.raises(CorpusError, match="was changed while the run read it"):
        featurize(TEXT, embedder)


def test_the_same_range_gives_the_same_bytes(embedder: Embedder) -> None:
    first, second = featurize(TEXT, embedder), featurize(TEXT, embedder, output="memory://other")
    for a, b in zip(first, second, strict=True):
        assert storage.read_bytes(f"memory://out/{a.path}") == storage.read_bytes(f"memory://other/{b.path}")


def test_other_text_or_another_recipe_never_takes_a_shards_name(embedder: Embedder) -> None:
    names = [report.path for report in featurize(TEXT, embedder)]
    changed = [report.path for report in featurize(TEXT.replace(b"cat", b"dog"), embedder)]
    assert [a == b for a, b in zip(names, changed, strict=True)] == [False] + [True] * (len(names) - 1)
    assert not {report.path for report in featurize(TEXT, embedder, make_recipe(dtype="float16"))} & set(names)


def test_a_compressed_source_gives_the_same_rows(embedder: Embedder) -> None:
    assert rows_of(featurize(gzip.compress(TEXT), embedder)) == rows_of(featurize(TEXT, embedder))


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\n"])
def test_a_source_without_tokens_gives_a_readable_shard(embedder: Embedder, content: bytes) -> None:
    [report] = featurize(content, embedder)
    assert len(rows_of([report])) == report.n_rows == content.count(b"\n") - report.n_rejects
