"""Inputs to units to sentences."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from elmo_core import ConfigError, CorpusError
from pipelines import textunits
from pipelines.textunits import (
    TextOptions,
    check_apart,
    check_units,
    digest_units,
    measure_density,
    plan_units,
    sample_sentences,
    split_heldout,
    spread_sentences,
)

LINES = TextOptions(format="lines").source()


@pytest.fixture(autouse=True)
def _short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textunits, "RANGE_BYTES", 40)


def _write(folder: Path, name: str, n_lines: int) -> str:
    path = folder / name
    path.write_text("".join(f"{name} line {i}\n" for i in range(n_lines)))
    return str(path)


def test_an_input_that_is_named_twice_is_there_twice(tmp_path: Path) -> None:
    a, b = _write(tmp_path, "a", 9), _write(tmp_path, "b", 2)
    units = plan_units([a, b, a])
    assert [unit.repeat for unit in units] == [0, 0, 0, 0, 1, 1, 1]


def test_an_empty_file_and_a_glob_of_nothing_are_told(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(CorpusError, match="is empty; leave it out"):
        plan_units([f"{tmp_path}/*"])
    with pytest.raises(ConfigError, match="matches no file"):
        plan_units([f"{tmp_path}/*.txt"])
    with pytest.raises(ConfigError, match="no input was given"):
        plan_units([])


def test_damage_is_found_without_tokenizing(tmp_path: Path) -> None:
    whole = gzip.compress(b"some words\n" * 1000)
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorpusError, match="is damaged"):
        check_units(plan_units([f"{tmp_path}/cut.gz"]), LINES)
    (tmp_path / "latin").write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(CorpusError, match=r"byte 5: not utf-8 .*; name its encoding with --encoding"):
        check_units(plan_units([f"{tmp_path}/latin"]), LINES)


def test_some_text_is_held_out_each_time_it_is_named(tmp_path: Path) -> None:
    a = _write(tmp_path, "a", 40)  # 390 bytes, ten ranges
    units, heldout = split_heldout(plan_units([a, a]), every=4)
    assert [unit.text_range.start for unit in heldout] == [80, 240]
    assert len(units) == 16
    check_apart([], heldout)
    assert not {unit.text_range for unit in units} & {unit.text_range for unit in heldout}


def test_too_little_text_to_hold_out_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name a text with --heldout"):
        split_heldout(plan_units([_write(tmp_path, "a", 2)]), every=4)


def test_a_source_is_not_both_read_and_held_out(tmp_path: Path) -> None:
    units = plan_units([_write(tmp_path, "a", 9)])
    with pytest.raises(ConfigError, match="is an input and held out"):
        check_apart(units, units)


def test_the_digest_changes_with_the_text(tmp_path: Path) -> None:
    before = digest_units(plan_units([_write(tmp_path, "a", 9)]))
    assert digest_units(plan_units([f"{tmp_path}/a"])) == before
    assert digest_units(plan_units([_write(tmp_path, "a", 10)])) != before


def test_a_sample_has_text_of_every_unit(tmp_path: Path) -> None:
    units = plan_units([_write(tmp_path, "a", 9), _write(tmp_path, "b", 9)])
    assert len(units) == 6
    sample = sample_sentences(units, LINES, n_tokens=36)
    assert [" ".join(sentence) for sentence in sample] == [f"{name} line {i}" for name in "ab" for i in (0, 1, 5, 6)]


def test_sentences_are_spread_over_the_text_in_any_order_of_its_units(tmp_path: Path) -> None:
    units = plan_units([_write(tmp_path, name, 10) for name in "ab"])
    spread = spread_sentences(units[::-1], LINES, n_places=2, n_sentences=3)
    assert [" ".join(sentence) for sentence in spread] == [f"{name} line {i}" for name in "ab" for i in (0, 1, 2)]
    few = spread_sentences(units, LINES, n_places=100, n_sentences=1)
    assert len(few) == 20


def test_density_is_measured_in_positions(tmp_path: Path) -> None:
    assert measure_density(plan_units([_write(tmp_path, "a", 4)]), LINES) == (16, 36)
