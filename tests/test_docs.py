"""What the documents promise: their commands run, and the options they name exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/featurize.md", "docs/training.md")


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.engine
def test_readme_tour_runs_from_text_to_tensors(tmp_path: Path) -> None:
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    commands = [line for block in _blocks("README.md", "") for line in block.splitlines() if line.startswith("elmo ")]
    runnable = [command for command in commands if "corpus/" not in command and "path/to" not in command]
    assert len(runnable) == 3
    for command in runnable:
        subprocess.run([sys.executable, "-m", "pipelines.cli", *shlex.split(command)[1:]], cwd=tmp_path, check=True)
    for program in _blocks("README.md", "python"):
        printed = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        assert "256" in printed


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []
