"""Reading shards back: for training, for a check, and by other people's libraries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from elmo_core import ConfigError, load_embedder
from pipelines import FeaturizeConfig, ShardDataset
from pipelines.featurize import run
from pipelines.manifest import read_manifest
from pipelines.preflight import plan_run
from pipelines.reader import EmbeddedSentence, read_rejects, verify_output

pytestmark = pytest.mark.engine
LINES = [f"sentence number {i} has its own words" for i in range(60)] + ["", "好 的"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> Path:
    """Outputs of one corpus for each type and layout, as folders `float16-list` and so on; one line is a reject."""
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "a.txt").write_bytes("\n".join(LINES).encode() + b"\n\xff\n")
    for dtype in ("float16", "float32"):
        for vectors in ("list", "binary"):
            config = FeaturizeConfig(
                inputs=(f"{folder}/a.txt",),
                output=f"{folder}/{dtype}-{vectors}",
                model=str(tiny_bundle),
                dtype=dtype,
                vectors=vectors,
                shard_tokens=100,
                max_rejects=1,
            )
            run(plan_run(config))
    return folder


def _keys(sentences: list[EmbeddedSentence]) -> list[tuple[str, int, int]]:
    return [(sentence.source, sentence.offset, sentence.sentence) for sentence in sentences]


@pytest.mark.parametrize("vectors", ["list", "binary"])
def test_sentences_come_back_with_their_vectors(outputs: Path, tiny_bundle: Path, vectors: str) -> None:
    sentences = list(ShardDataset(f"{outputs}/float32-{vectors}"))
    assert [sentence.tokens for sentence in sentences] == [line.split() for line in LINES]
    expected = load_embedder(tiny_bundle, device="cpu").embed([sentence.tokens for sentence in sentences])
    for sentence, array in zip(sentences, expected, strict=True):
        actual = torch.stack([sentence.layers[f"layer_{i}"] for i in range(3)]).numpy()
        np.testing.assert_allclose(actual, array, rtol=0, atol=1e-6)


def test_only_the_layers_asked_for_are_read(outputs: Path) -> None:
    dataset = ShardDataset(f"{outputs}/float16-list", layers=["layer_2"])
    assert {tuple(sentence.layers) for sentence in dataset} == {("layer_2",)}
    with pytest.raises(ConfigError, match="has no column 'layer_9'; it has layer_0, layer_1, layer_2"):
        ShardDataset(f"{outputs}/float16-list", layers=["layer_9"])


def test_shuffle_is_seeded_and_keeps_every_row(outputs: Path) -> None:
    uri = f"{outputs}/float16-list"
    plain = _keys(list(ShardDataset(uri)))
    first, again, other = (_keys(list(ShardDataset(uri, shuffle=True, seed=seed))) for seed in (1, 1, 2))
    assert first == again
    assert len({tuple(plain), tuple(first), tuple(other)}) == 3
    assert sorted(first) == sorted(other) == sorted(plain)


def test_layers_are_a_list_and_the_output_may_be_a_path(outputs: Path) -> None:
    assert len(ShardDataset(outputs / "float16-list", layers=["layer_1"])) == len(LINES)
    with pytest.raises(ConfigError, match=r"layers is the string 'layer_1'; it must be a list of columns"):
        ShardDataset(outputs / "float16-list", layers="layer_1")


def test_rejects_come_back(outputs: Path) -> None:
    uri = str(outputs / "float16-list")
    [reject] = read_rejects(uri, read_manifest(uri))
    assert (reject.reason, reject.content) == ("not utf-8", "\\xff")


def test_tensors_are_the_readers_own(outputs: Path) -> None:
    sentence = next(iter(ShardDataset(f"{outputs}/float16-list")))
    assert sentence.layers["layer_0"].dtype == torch.float16
    sentence.layers["layer_0"].zero_()
    assert next(iter(ShardDataset(f"{outputs}/float16-list"))).layers["layer_0"].abs().max() > 0


def test_workers_of_a_loader_share_the_rows(outputs: Path) -> None:
    dataset = ShardDataset(f"{outputs}/float16-list", layers=["layer_0"])
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    assert sorted(_keys(list(loader))) == sorted(_keys(list(dataset)))
    assert len(loader) == len(LINES)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("vectors", ["list", "binary"])
def test_pyarrow_pandas_duckdb_and_polars_read_a_shard(outputs: Path, dtype: str, vectors: str) -> None:
    path = str(min((outputs / f"{dtype}-{vectors}" / "shards").iterdir()))
    expected = pq.read_table(path)["layer_1"].to_pylist()
    readers = {
        "pandas": pd.read_parquet(path)["layer_1"].tolist(),
        "duckdb": [row[0] for row in duckdb.sql(f"select layer_1 from read_parquet('{path}')").fetchall()],
        "polars": pl.read_parquet(path)["layer_1"].to_list(),
    }
    for name, rows in readers.items():
        for row, want in zip(rows, expected, strict=True):
            if vectors == "binary":
                assert row == want, name
            else:
                actual = np.array([list(vector) for vector in row], dtype)
                np.testing.assert_array_equal(actual, np.array(want, dtype), err_msg=name)


def test_an_output_as_written_verifies(outputs: Path) -> None:
    assert [difference for folder in outputs.glob("float*") for difference in verify_output(str(folder))] == []


def test_a_damaged_manifest_is_named(outputs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(outputs / "float16-list", tmp_path / "copy")
    body = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    body["shards"] = body["shards"][1:]
    (folder / "manifest.json").write_text(json.dumps(body), encoding="utf-8")
    [difference] = verify_output(str(folder))
    assert difference.path == "manifest.json"


def test_swapped_shards_are_named(outputs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(outputs / "float16-list", tmp_path / "copy")
    first, second, *_ = sorted((folder / "shards").iterdir())
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    size = {report["path"]: report["n_bytes"] for report in manifest["shards"]}
    shutil.copy(second, first)
    problems = {d.path: d.problem for d in verify_output(str(folder))}
    same_size = size[f"shards/{first.name}"] == size[f"shards/{second.name}"]
    assert ("another shard" if same_size else "bytes, the manifest says") in problems[f"shards/{first.name}"]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("remove", "is missing"),
        ("truncate", "has 100 bytes, the manifest says"),
        ("flip", "can't be read"),
        ("rejects", "is missing or damaged"),
    ],
)
def test_damage_is_named(outputs: Path, tmp_path: Path, damage: str, problem: str) -> None:
    for path in (outputs / "float32-list").rglob("*"):
        if path.is_file():
            (tmp_path / path.relative_to(outputs / "float32-list")).parent.mkdir(exist_ok=True)
            (tmp_path / path.relative_to(outputs / "float32-list")).write_bytes(path.read_bytes())
    shard = min((tmp_path / "shards").iterdir())
    raw = bytearray(shard.read_bytes())
    if damage == "remove":
        shard.unlink()
    elif damage == "truncate":
        shard.write_bytes(raw[:100])
    elif damage == "flip":
        raw[len(raw) // 2] ^= 1
        shard.write_bytes(raw)
    else:
        next((tmp_path / "rejects").iterdir()).unlink()
    [difference] = verify_output(str(tmp_path))
    assert problem in difference.problem
