"""Files and objects: what a pattern names, and that a file is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from elmo_core import ConfigError, CorpusError, ShardError
from pipelines import storage


def _write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("x", encoding="utf-8")


def test_glob_gives_visible_files_sorted(tmp_path: Path) -> None:
    _write(tmp_path, "b.txt", "a.txt", ".hidden.txt", "c.md")
    (tmp_path / "folder.txt").mkdir()
    assert [file.uri for file in storage.expand(f"{tmp_path}/*.txt")] == [f"file://{tmp_path}/a.txt", f"file://{tmp_path}/b.txt"]


def test_a_file_whose_name_looks_like_a_glob_is_itself(tmp_path: Path) -> None:
    _write(tmp_path, "a[1].txt", "a1.txt")
    assert [file.uri for file in storage.expand(f"{tmp_path}/a[1].txt")] == [f"file://{tmp_path}/a[1].txt"]


def test_a_local_name_may_hold_what_looks_like_syntax(tmp_path: Path) -> None:
    names = ["::a.txt", "b#%20?.txt", "c d.txt", "好\n.txt"]
    _write(tmp_path, *names)
    found = storage.expand(f"{tmp_path}/*")
    assert [file.uri for file in found] == [f"file://{tmp_path}/{name}" for name in names]
    assert [storage.read_bytes(file.uri) for file in found] == [b"x"] * 4


def test_one_file_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, "a.txt")
    monkeypatch.chdir(tmp_path)
    names = ("a.txt", "./a.txt", f"{tmp_path}/../{tmp_path.name}/a.txt", f"file://{tmp_path}/a.txt")
    assert {storage.expand(name)[0].uri for name in names} == {f"file://{tmp_path}/a.txt"}


def test_a_pipe_is_refused_for_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in (f"{tmp_path}/pipe", "-"):
        with pytest.raises(ConfigError, match="is no regular file"):
            storage.expand(name)


def test_links_to_files_are_files_and_broken_ones_are_told(tmp_path: Path) -> None:
    _write(tmp_path, "b.txt")
    (tmp_path / "a.txt").symlink_to(tmp_path / "b.txt")
    found = [(file.uri.rsplit("/", 1)[-1], file.n_bytes) for file in storage.expand(f"{tmp_path}/*.txt")]
    assert found == [("a.txt", 1), ("b.txt", 1)]
    (tmp_path / "c.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"c\.txt: is a broken link"):
        storage.expand(f"{tmp_path}/*.txt")


def test_a_new_local_name_may_hold_colons(tmp_path: Path) -> None:
    with storage.publishing(f"{tmp_path}/x::y/file") as scratch:
        scratch.write_text("x", encoding="utf-8")
    assert (tmp_path / "x::y" / "file").exists()


def test_a_version_changes_with_the_content(tmp_path: Path) -> None:
    _write(tmp_path, "a.txt")
    before = storage.version(f"{tmp_path}/a.txt")
    assert storage.version(f"{tmp_path}/a.txt") == before
    os.utime(tmp_path / "a.txt", (1, 1))
    assert storage.version(f"{tmp_path}/a.txt") != before


def test_memory_files_are_found_with_their_size() -> None:
    fsspec.filesystem("memory").pipe_file("/expand/a.txt", b"12345")
    assert storage.expand("memory://expand/*.txt") == [storage.StoredFile("memory:///expand/a.txt", 5)]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{}/none.txt", "none.txt: does not exist"),
        ("{}/*.none", r"\*.none: matches no file"),
        ("{}", "is a folder; name its files"),
        ("nonsense://a", "nonsense://a: is no place that can be opened"),
        ("", "an empty path names no file"),
    ],
)
def test_a_pattern_that_names_no_file_is_told(tmp_path: Path, pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        storage.expand(pattern.format(tmp_path))


@pytest.mark.parametrize("place", ["{}/out/file", "memory://publishing/file"])
def test_a_file_is_published_whole(tmp_path: Path, place: str) -> None:
    uri = place.format(tmp_path)
    with storage.publishing(uri) as scratch:
        scratch.write_bytes(b"new")
        assert storage.read_bytes(uri) is None
    assert storage.read_bytes(uri) == b"new"


@pytest.mark.parametrize("place", ["{}/out/file", "memory://failing/file"])
def test_a_failure_leaves_the_old_file_and_no_scratch(tmp_path: Path, place: str) -> None:
    uri = place.format(tmp_path)
    with storage.publishing(uri) as scratch:
        scratch.write_bytes(b"old")

    def fail_halfway() -> None:
        with storage.publishing(uri) as scratch:
            scratch.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert storage.read_bytes(uri) == b"old"
    assert storage.list_names(uri.rsplit("/", 1)[0]) == ["file"]


def test_a_place_that_cant_be_written_is_told(tmp_path: Path) -> None:
    _write(tmp_path, "file")
    with pytest.raises(ConfigError, match="can't be written"):
        storage.check_writable(f"{tmp_path}/file/below")
    with pytest.raises(ShardError, match="can't be written"), storage.publishing(f"{tmp_path}/file/below/x"):
        pass


def test_a_writable_place_is_left_as_it_was(tmp_path: Path) -> None:
    storage.check_writable(f"{tmp_path}/out")
    assert storage.list_names(f"{tmp_path}/out") == []


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    assert storage.read_bytes(f"{tmp_path}/none") is None
    assert storage.size(f"{tmp_path}/none") is None
    assert storage.list_names(f"{tmp_path}/none") == []
    with pytest.raises(CorpusError, match="can't be read: No such file"), storage.open_input(f"{tmp_path}/none"):
        pass


def test_a_remote_folder_is_fetched_for_the_block() -> None:
    fsspec.filesystem("memory").pipe({"/model/config.json": b"{}", "/model/deep/file": b"1"})
    with storage.local_folder("memory://model") as folder:
        assert (folder / "config.json").read_bytes() == b"{}"
    assert not folder.exists()
