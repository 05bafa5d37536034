"""The Beam job: from files to a manifest, in this process, in several, and in other people's pipelines."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import apache_beam as beam
import fsspec
import pytest

from elmo_core import ConfigError, CorpusError
from pipelines import Featurize, FeaturizeConfig, storage
from pipelines.featurize import LOCAL_RUNNER, run
from pipelines.manifest import Manifest, read_manifest
from pipelines.preflight import plan_run

pytestmark = pytest.mark.engine


def _config(folder: Path | str, model: Path | str, output: str = "out", **changes: Any) -> FeaturizeConfig:
    options = {"inputs": (f"{folder}/*.txt",), "output": f"{folder}/{output}", "model": str(model), "shard_tokens": 100}
    return FeaturizeConfig(**options | changes)


def _shards(output: str, manifest: Manifest) -> dict[str, bytes | None]:
    return {shard.path: storage.read_bytes(storage.join(output, shard.path)) for shard in manifest.shards}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_bytes(b"".join(b"line %d of the first file\n" % i for i in range(80)))
    (tmp_path / "b.txt").write_bytes(b"")
    (tmp_path / "c.txt").write_bytes(gzip.compress(b"one\n\ntwo \xff\nthree four"))
    return tmp_path


def test_a_corpus_becomes_a_manifest(corpus: Path, tiny_bundle: Path) -> None:
    manifest = run(plan_run(_config(corpus, tiny_bundle)))
    assert manifest == read_manifest(f"{corpus}/out")
    assert [source.rsplit("/", 1)[1] for source in manifest.sources] == ["a.txt", "b.txt", "c.txt"]
    expected = {"sources": 3, "records": 84, "rejects": 1, "rows": 83, "tokens": 80 * 6 + 3, "shards": 7}
    assert {name: manifest.totals[name] for name in expected} == expected
    assert manifest.has_too_many_rejects


def test_memory_is_a_storage_like_any_other(corpus: Path, tiny_bundle: Path) -> None:
    files = {f"/job/{path.name}": path.read_bytes() for path in corpus.glob("*.txt")}
    bundle = {f"/job/model/{path.name}": path.read_bytes() for path in tiny_bundle.iterdir()}
    fsspec.filesystem("memory").pipe(files | bundle)
    manifest = run(plan_run(_config("memory://job", "memory://job/model")))
    local = run(plan_run(_config(corpus, tiny_bundle)))
    assert {**manifest.totals, "bytes": 0} == {**local.totals, "bytes": 0}  # URIs differ in length


def test_worker_processes_write_the_same_bytes(corpus: Path, tiny_bundle: Path) -> None:
    alone = run(plan_run(_config(corpus, tiny_bundle)))
    arguments = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    shared = run(plan_run(_config(corpus, tiny_bundle, output="two")), arguments)
    assert _shards(f"{corpus}/two", shared) == _shards(f"{corpus}/out", alone)


def test_the_transform_serves_other_pipelines(corpus: Path, tiny_bundle: Path) -> None:
    with beam.Pipeline(runner=LOCAL_RUNNER) as pipeline:
        uris = pipeline | beam.Create([f"{corpus}/*.txt"]) | Featurize(_config(corpus, tiny_bundle, inputs=()))
        _ = uris | beam.Map(lambda uri: Path(f"{corpus}/uri").write_text(uri, encoding="utf-8"))
    assert Path(f"{corpus}/uri").read_text(encoding="utf-8") == f"file://{corpus}/out/manifest.json"
    assert read_manifest(f"{corpus}/out").totals["sources"] == 3


def test_a_second_run_replaces_the_manifest_and_keeps_the_shards(corpus: Path, tiny_bundle: Path) -> None:
    first = run(plan_run(_config(corpus, tiny_bundle)))
    (corpus / "b.txt").write_bytes(b"now there is text\n")
    second = run(plan_run(_config(corpus, tiny_bundle)))
    before, after = ({shard.path for shard in manifest.shards} for manifest in (first, second))
    assert len(after - before) == 1
    assert sum(shard.model_seconds > 0 for shard in second.shards) == 1


def test_a_file_that_disappears_fails_the_run_and_keeps_the_old_manifest(
    corpus: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(plan_run(_config(corpus, tiny_bundle)))
    plan = plan_run(_config(corpus, tiny_bundle))
    monkeypatch.setattr("pipelines.storage.size", lambda uri: None)
    with pytest.raises(CorpusError, match=r"a\.txt: is gone"):
        run(plan)
    assert read_manifest(f"{corpus}/out") == first


def test_a_damaged_file_fails_the_run_by_name(corpus: Path, tiny_bundle: Path) -> None:
    (corpus / "c.txt").write_bytes(gzip.compress(b"text " * 100)[:-9])
    with pytest.raises(CorpusError, match=r"c\.txt: is damaged: [^\[]*$"):
        run(plan_run(_config(corpus, tiny_bundle)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no_such_option=1"], "Beam knows no option --no_such_option"),
        (["--direct_num_workers=many"], "invalid int value: 'many'"),
        (["--runner=NoSuchRunner"], "NoSuchRunner"),
        (["word"], "begins with an option, not 'word'"),
    ],
)
def test_a_wrong_beam_option_is_told_in_a_sentence(corpus: Path, tiny_bundle: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(plan_run(_config(corpus, tiny_bundle)), arguments)
