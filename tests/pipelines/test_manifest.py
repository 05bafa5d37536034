"""Recipes, reports and the manifest."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_recipe, make_report

from elmo_core import ConfigError, LayerMix, ShardError
from pipelines.layers import LayerSelection
from pipelines.manifest import (
    BundleFacts,
    Manifest,
    Recipe,
    check_accounts,
    count_totals,
    find_manifest,
    read_manifest,
    sort_reports,
    write_manifest,
)

OTHER: dict[str, Any] = {
    "bundle_hash": "f" * 64,
    "width": 32,
    "format": "text",
    "encoding": "cp1252",
    "tokenizer": "characters",
    "tokenizer_version": "2",
    "layers": LayerSelection((), LayerMix((0.0, 0.0, 0.0))),
    "dtype": "float16",
    "vectors": "binary",
    "compression": "zstd",
    "precision": "bfloat16",
    "initial_state": "warm",
    "range_bytes": 201,
    "schema_version": 99,
}


def _manifest() -> Manifest:
    recipe, shards = make_recipe(), (make_report(), make_report(source="file:///b", rejects_path="rejects/b.parquet"))
    return Manifest(
        run_id="1",
        created="2020-01-01T00:00:00+00:00",
        recipe={"format": "lines"},
        fingerprint=recipe.fingerprint,
        layout=recipe.layout,
        bundle=BundleFacts(uri="file:///m", hash=recipe.bundle_hash, trained=False),
        shards=shards,
        totals=count_totals(shards),
        max_rejects=0,
        seconds=1.5,
        versions={"python": "3"},
    )


@pytest.mark.parametrize("name", [field.name for field in fields(Recipe)])
def test_every_part_of_the_recipe_changes_the_fingerprint(name: str) -> None:
    assert replace(make_recipe(), **{name: OTHER[name]}).fingerprint != make_recipe().fingerprint


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    recipe = make_recipe(bundle_hash="0" * 64)
    assert recipe.fingerprint == "935970f9f466294261ca8a1a716d7071ee373bd5745f03c586bf2d94df5c9200"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_manifest(str(tmp_path), _manifest())
    assert read_manifest(str(tmp_path)) == _manifest()


def test_no_manifest_is_told(tmp_path: Path) -> None:
    assert find_manifest(str(tmp_path)) is None
    with pytest.raises(ConfigError, match=r"has no manifest\.json: no run has finished there"):
        read_manifest(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "is not a manifest of ours"),
        ("[]", "is not a manifest of ours"),
        ('{"kind": "something else"}', "is not a manifest of ours"),
        ('{"kind": "elmo-corpus-manifest", "schema_version": 99}', "has schema version 99; this release reads 1"),
        ('{"kind": "elmo-corpus-manifest", "schema_version": 1}', "is not a manifest of ours"),
    ],
)
def test_another_file_of_that_name_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_manifest(str(tmp_path))


def test_the_manifest_is_plain_json_that_names_every_shard() -> None:
    body = json.loads(_manifest().to_json())
    assert [shard["path"] for shard in body["shards"]] == ["shards/a.parquet", "shards/a.parquet"]
    assert body["totals"]["rows"] == 2
    assert body["bundle"]["trained"] is False


def test_a_range_done_twice_counts_once() -> None:
    first, second = make_report(), make_report(start=10, stop=20)
    assert sort_reports([second, first, second]) == (first, second)


def test_accounts_that_balance_pass() -> None:
    shards = [make_report(), make_report(start=10, stop=20), make_report(source="file:///b")]
    check_accounts(shards, "lines")


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([make_report(start=10, stop=20)], "do not cover it without a gap"),
        ([make_report(), make_report(start=11, stop=21)], "do not cover it without a gap"),
        ([make_report(n_text_bytes=9)], "its records hold 9 bytes, its ranges 10"),
        ([make_report(n_rows=2)], "has 2 rows for 1 records"),
        ([make_report(n_records=2)], "has 1 rows for 2 records"),
        ([make_report(n_rejects=1)], "has 1 rows for 0 records"),
    ],
)
def test_accounts_that_dont_are_an_error(shards: list[Any], message: str) -> None:
    with pytest.raises(ShardError, match=message):
        check_accounts(shards, "lines")


def test_prose_may_have_several_rows_a_record() -> None:
    check_accounts([make_report(n_rows=5)], "text")
    with pytest.raises(ShardError, match="has 0 rows for 1 records"):
        check_accounts([make_report(n_rows=0)], "text")
