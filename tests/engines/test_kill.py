"""Killed at any moment, an output holds the old manifest or the new one, and the next run goes on."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.manifest import find_manifest, read_manifest
from pipelines.reader import verify_output

pytestmark = pytest.mark.engine
N_KILLS = 4


def _command(folder: Path, output: str, *options: str) -> list[str]:
    arguments = ["featurize", f"{folder}/a.txt", "--output", f"{folder}/{output}", "--shard-tokens", "400", *options]
    return [sys.executable, "-m", "pipelines.cli", *arguments]


def _kill_at(command: list[str], seconds: float) -> None:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "shards").glob("*.parquet")}


def test_kill_9_leaves_nothing_half_done(tmp_path: Path) -> None:
    rng = random.Random(0)
    words = [f"{stem}{number}" for stem in ("alpha", "beta", "好") for number in range(50)]
    (tmp_path / "a.txt").write_text("\n".join(" ".join(rng.choices(words, k=20)) for _ in range(2000)), encoding="utf-8")
    began = time.monotonic()
    subprocess.run(_command(tmp_path, "whole"), check=True, capture_output=True)
    whole_seconds = time.monotonic() - began
    old = None
    for number in range(N_KILLS):
        if number == N_KILLS // 2:  # from here on with an older manifest in place
            subprocess.run(_command(tmp_path, "out", "--layers", "0"), check=True, capture_output=True)
            old = read_manifest(f"{tmp_path}/out")
        _kill_at(_command(tmp_path, "out"), whole_seconds * rng.uniform(0.4, 1.0))
        manifest = find_manifest(f"{tmp_path}/out")
        if manifest is not None:
            assert manifest == old or manifest.totals == read_manifest(f"{tmp_path}/whole").totals
            assert list(verify_output(f"{tmp_path}/out")) == []
    subprocess.run(_command(tmp_path, "out"), check=True, capture_output=True)
    assert read_manifest(f"{tmp_path}/out").totals == read_manifest(f"{tmp_path}/whole").totals
    assert list(verify_output(f"{tmp_path}/out")) == []
    assert _shards(tmp_path / "out").items() >= _shards(tmp_path / "whole").items()
