"""What is refused before the first token, and what a plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from builders import make_bundle, make_report

from elmo_core import BundleError, ConfigError
from pipelines import FeaturizeConfig
from pipelines.manifest import commit_manifest
from pipelines.preflight import plan_run


def _config(folder: Path, **changes: Any) -> FeaturizeConfig:
    (folder / "a.txt").write_bytes(b"five5" * 1000)
    return FeaturizeConfig(**{"inputs": (f"{folder}/a.txt",), "output": f"{folder}/out"} | changes)


def test_a_plan_says_how_much_there_is_to_do(tmp_path: Path) -> None:
    plan = plan_run(_config(tmp_path, shard_tokens=100))
    assert (len(plan.sources), plan.n_ranges, plan.n_text_bytes, plan.n_tokens) == (1, 10, 5000, 1000)
    assert plan.n_bytes == 1000 * (3 * 256 * 2 + 16)
    assert plan.spec.bundle.trained
    assert not (tmp_path / "out").exists()


def test_a_plan_says_what_the_new_manifest_leaves_out(tmp_path: Path) -> None:
    config = _config(tmp_path)
    reports = [make_report(source=source) for source in (f"file://{tmp_path}/a.txt", "file:///gone.txt")]
    commit_manifest(reports, plan_run(config).spec)
    assert plan_run(config).n_left_out == 1
    assert plan_run(_config(tmp_path, layers="mean")).n_left_out == 2


def test_a_file_named_twice_counts_once(tmp_path: Path) -> None:
    plan = plan_run(_config(tmp_path, inputs=(f"{tmp_path}/a.txt", f"{tmp_path}/*.txt")))
    assert len(plan.sources) == 1


@pytest.mark.parametrize(("corpus_format", "tokenizer"), [("lines", "whitespace"), ("text", "spacy:en")])
def test_each_format_has_its_tokenizer(tmp_path: Path, corpus_format: str, tokenizer: str) -> None:
    assert plan_run(_config(tmp_path, format=corpus_format)).spec.recipe.tokenizer == tokenizer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": ()}, "no input was given"),
        ({"format": "csv"}, "format is 'csv'; it must be one of lines, text"),
        ({"dtype": "int8"}, "dtype is 'int8'; it must be one of float16, float32"),
        ({"vectors": "x"}, "vectors is 'x'"),
        ({"compression": "gzip"}, "compression is 'gzip'"),
        ({"precision": "x"}, "precision is 'x'"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"initial_state": "hot"}, "initial_state is 'hot'"),
        ({"shard_tokens": 99}, "shard_tokens is 99; it must be at least 100"),
        ({"max_rejects": -1}, "max_rejects is -1"),
        ({"tokenizer": "bpe"}, "tokenizer is 'bpe'; it must be whitespace, characters or spacy:LANG"),
        ({"encoding": "utf-32"}, "encoding is 'utf-32'"),
        ({"layers": "5"}, "layers is '5'"),
    ],
)
def test_a_wrong_option_is_told(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_run(_config(tmp_path, **changes))


def test_a_warm_state_that_is_not_there_is_told(tmp_path: Path) -> None:
    make_bundle().save(tmp_path / "bundle")
    with pytest.raises(ConfigError, match="has no warm state"):
        plan_run(_config(tmp_path, initial_state="warm", model=str(tmp_path / "bundle")))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="torch finds no CUDA device here"):
        plan_run(_config(tmp_path, device="cuda"))


def test_an_output_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not empty and has no manifest\.json of ours"):
        plan_run(_config(tmp_path, output=str(tmp_path)))
    with pytest.raises(ConfigError, match="is a file; the output is a folder"):
        plan_run(_config(tmp_path, output=f"{tmp_path}/a.txt"))


def test_inputs_inside_the_output_are_refused(tmp_path: Path) -> None:
    config = _config(tmp_path, inputs=(f"{tmp_path}/**",))
    (tmp_path / "out" / "shards").mkdir(parents=True)
    (tmp_path / "out" / "shards" / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"a\.parquet: lies in the output"):
        plan_run(config)


def test_what_a_killed_first_run_left_is_ours(tmp_path: Path) -> None:
    (tmp_path / "out" / "shards").mkdir(parents=True)
    (tmp_path / "out" / ".manifest.json.1.tmp").touch()
    assert plan_run(_config(tmp_path)).n_ranges == 1


def test_a_broken_bundle_is_refused_before_any_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr("pipelines.storage.open_input", None)
    with pytest.raises(BundleError, match=r"config\.json: 'format' is None"):
        plan_run(_config(tmp_path, model=f"{tmp_path}/model"))
