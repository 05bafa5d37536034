"""Passages: every sentence once an epoch, in a drawn order, from anywhere on."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest

from elmo_core.training.windows import Passage
from pipelines import passages, textunits
from pipelines.passages import SourcePassages, cut_passages
from pipelines.textunits import TextOptions, TextUnit, plan_units


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TextUnit]:
    monkeypatch.setattr(textunits, "RANGE_BYTES", 100)
    monkeypatch.setattr(passages, "PASSAGE_POSITIONS", 10)
    monkeypatch.setattr(passages, "BUFFER_PASSAGES", 5)
    (tmp_path / "a").write_text("".join(f"a line {i}\n" for i in range(60)))
    (tmp_path / "b.gz").write_bytes(gzip.compress("".join(f"b line {i}\n" for i in range(60)).encode()))
    return plan_units([f"{tmp_path}/*"])


def _passages(units: list[TextUnit], **options: int) -> SourcePassages:
    return SourcePassages(units, TextOptions(format="lines").source(), **{"epochs": 1, "seed": 0, **options})


def _all(given: SourcePassages) -> list[Passage]:
    return list(iter(given.next, None))


def _sentences(given: list[Passage]) -> list[str]:
    return [" ".join(sentence) for passage in given for sentence in passage]


def test_an_epoch_has_every_sentence_once(units: list[TextUnit]) -> None:
    expected = sorted(f"{name} line {i}" for name in "ab" for i in range(60))
    assert sorted(_sentences(_all(_passages(units)))) == expected
    assert sorted(_sentences(_all(_passages(units, epochs=2)))) == sorted(expected * 2)


def test_epochs_and_seeds_have_orders_of_their_own(units: list[TextUnit]) -> None:
    two = _sentences(_all(_passages(units, epochs=2)))
    orders = [two[:120], two[120:], _sentences(_all(_passages(units, seed=1)))]
    assert len({tuple(order) for order in orders}) == 3
    assert _sentences(_all(_passages(units, epochs=2))) == two


def test_sentences_of_a_passage_follow_each_other(units: list[TextUnit]) -> None:
    for passage in _all(_passages(units)):
        numbers = [int(sentence[2]) for sentence in passage]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_processes_share_the_text_without_overlap(units: list[TextUnit]) -> None:
    shares = [_sentences(_all(_passages(units, rank=rank, n_ranks=3))) for rank in range(3)]
    assert sorted(sentence for share in shares for sentence in share) == sorted(_sentences(_all(_passages(units))))


def test_a_state_restored_at_any_point_gives_the_same_rest(units: list[TextUnit]) -> None:
    whole = _all(_passages(units, epochs=2))
    going = _passages(units, epochs=2)
    for n_given in range(len(whole)):
        again = _passages(units, epochs=2)
        again.load_state_dict(going.state_dict())
        assert _all(again) == whole[n_given:]
        going.next()


def test_progress_goes_from_0_to_1(units: list[TextUnit]) -> None:
    given = _passages(units)
    shares = [given.progress]
    while given.next() is not None:
        shares.append(given.progress)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert all(later > earlier - 0.03 for earlier, later in pairwise(shares))


def test_a_passage_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "PASSAGE_POSITIONS", 5)
    sentences = [["a"] * n for n in (1, 1, 1, 9, 2, 1)]
    assert [[len(sentence) for sentence in passage] for passage in cut_passages(sentences)] == [[1, 1, 1], [9], [2, 1]]
