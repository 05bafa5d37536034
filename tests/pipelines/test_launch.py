"""The folder of a run: whose it is, and what may lie in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import make_bundle

from elmo_core import BundleError, ConfigError, load_bundle
from elmo_core.bundle import unfinished_files
from pipelines.launch import hold_output, prepare_output


def _leave_unfinished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("elmo_core.bundle.os.replace", fill)
        with pytest.raises(BundleError, match="No space left on device"):
            make_bundle().save(folder)


def test_a_folder_is_held_by_one_run(tmp_path: Path) -> None:
    told = pytest.raises(ConfigError, match="another run trains into it; wait for its end")
    with hold_output(tmp_path), told, hold_output(tmp_path):
        pass
    with hold_output(tmp_path):
        pass


def test_a_bundle_that_was_cut_short_stands_in_no_resumed_run_s_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _leave_unfinished(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match="holds files already"):
        prepare_output(str(tmp_path), resume=False)
    assert prepare_output(str(tmp_path), resume=True) == tmp_path
    for path in unfinished_files(tmp_path):
        path.unlink()
    make_bundle().save(tmp_path)
    assert load_bundle(tmp_path).hash == make_bundle().hash
    assert unfinished_files(tmp_path) == []


def test_what_others_left_stands_in_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _leave_unfinished(tmp_path, monkeypatch)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds files already"):
        prepare_output(str(tmp_path), resume=True)
