"""The package as people install it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.engine
def test_the_wheel_runs_from_another_folder(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT)], check=True)
    [wheel] = tmp_path.glob("elmo_corpus-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    bundle = {f"elmo_core/bundles/default/{name}" for name in ("config.json", "model.safetensors", "softmax.safetensors")}
    assert names >= bundle | {
        "elmo_core/py.typed",
        "pipelines/py.typed",
        "pipelines/cli/__init__.py",
        "elmo_core/training/configs/small.json",
    }
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {"elmo_core", "pipelines"}
    subprocess.run([*pip, "install", "--no-deps", "--target", str(tmp_path / "site"), str(wheel)], check=True)
    (tmp_path / "a.txt").write_text("some words\n", encoding="utf-8")
    program = "import pipelines, pipelines.cli; print(pipelines.__file__); pipelines.cli.main()"
    command = [sys.executable, "-c", program, "featurize", "a.txt", "--output", "out"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    printed = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert printed.startswith(str(tmp_path / "site"))
    assert (tmp_path / "out" / "manifest.json").exists()
