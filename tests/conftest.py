"""Fixtures: a tiny bundle, made once, and the reference data where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders import make_bundle

GOLDEN = Path(os.environ.get("ELMO_GOLDEN", Path(__file__).parents[2] / "shared" / "golden"))


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle folder: 2 layers, width 16."""
    folder = tmp_path_factory.mktemp("bundles") / "tiny"
    make_bundle().save(folder)
    return folder


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of reference weights and outputs; tests that need it are marked `golden`."""
    if not GOLDEN.is_dir():
        pytest.skip("no reference data here; ELMO_GOLDEN names its folder")
    return GOLDEN
