"""Text that a measurement of speed reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import make_bundle

from elmo_core import CorpusError, SpeedReport, speed
from pipelines.bench import SAMPLE, bench


@pytest.fixture(autouse=True)
def _measure_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_SECONDS", 0.001)


def _bench(tmp_path: Path, *inputs: str, max_tokens: int = 1000, format: str = "lines") -> SpeedReport:
    make_bundle().save(tmp_path / "bundle")
    model = str(tmp_path / "bundle")
    tokenizer = "whitespace"
    return bench(
        inputs, model=model, format=format, tokenizer=tokenizer, precision="float32", device="cpu", max_tokens=max_tokens
    )


def test_all_inputs_are_read(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one two\n\nthree\n", encoding="utf-8")
    report = _bench(tmp_path, str(tmp_path / "*.txt"))
    assert (report.n_sentences, report.n_tokens) == (4, 6)


def test_reading_stops_when_there_is_enough(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three\n" * 50, encoding="utf-8")
    assert _bench(tmp_path, str(tmp_path / "a.txt"), max_tokens=10).n_tokens == 12


def test_the_sample_is_in_the_package(tmp_path: Path) -> None:
    assert _bench(tmp_path, SAMPLE, format="text").n_tokens >= 1000


def test_text_without_tokens_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"a\.txt: holds no token"):
        _bench(tmp_path, str(tmp_path / "a.txt"))
