"""The law of imports: two packages, one direction, one door for each outside library, no cycles."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import elmo_core
import pipelines

ROOT = Path(__file__).parents[1]
FILES = sorted([*(ROOT / "elmo_core").rglob("*.py"), *(ROOT / "pipelines").rglob("*.py")])
DOORS = {
    "apache_beam": {"pipelines.transforms", "pipelines.featurize"},
    "fsspec": {"pipelines.storage"},
    "pyarrow": {"pipelines.schema", "pipelines.shards", "pipelines.reader"},
    "click": {
        "pipelines.cli.exits",
        "pipelines.cli.features",
        "pipelines.cli.group",
        "pipelines.cli.models",
        "pipelines.cli.training",
    },
    "h5py": {"elmo_core.legacy.allenai"},
}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    for_types = {node for guard in guards for node in ast.walk(guard)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


IMPORTS = {_name(path): _imports(path) for path in FILES}


@pytest.mark.parametrize("library", DOORS)
def test_each_library_has_its_door(library: str) -> None:
    users = {name for name, imports in IMPORTS.items() if any(i.split(".")[0] == library for i in imports)}
    assert users == DOORS[library]


def test_elmo_core_does_not_know_pipelines() -> None:
    assert [
        name for name, imports in IMPORTS.items() if name.startswith("elmo_core") and any("pipelines" in i for i in imports)
    ] == []


def test_nothing_imports_the_command_line() -> None:
    outside = {name: imports for name, imports in IMPORTS.items() if not name.startswith("pipelines.cli")}
    assert [name for name, imports in outside.items() if any(i.startswith("pipelines.cli") for i in imports)] == []


def test_no_import_cycles() -> None:
    packages = {"elmo_core", "pipelines", "pipelines.cli"}  # a package's public names come from its own modules
    graph = {name: (imports & IMPORTS.keys()) - packages for name, imports in IMPORTS.items() if name not in packages}
    TopologicalSorter(graph).prepare()


def test_public_names_are_there_once() -> None:
    for package in (elmo_core, pipelines):
        assert len(package.__all__) == len(set(package.__all__))
        assert [name for name in package.__all__ if getattr(package, name, None) is None] == []
