"""Vocabulary files and counting."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_core import BundleError
from elmo_core.vocabulary import TokenCounter, Vocabulary, read_vocabulary

SPECIAL = "</S>\n<S>\n<UNK>\n"


def test_ids_are_line_numbers_and_unknown_ones_are_told(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("<S>\nthe\n</S>\n<UNK>\n", encoding="utf-8")  # bilm-tf's files have them anywhere
    assert read_vocabulary(path).ids(["the", "<S>", "</S>", "zebra", "<UNK>"]) == [1, 0, 2, 3, 3]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SPECIAL + "a\nb\na\n", "line 6 repeats 'a' of line 4"),
        (SPECIAL + "a\n\nb\n", "line 5 is blank"),
        (SPECIAL + "a\n\n", "line 5 is blank"),
        ("</S>\n<S>\nthe\n", "has no line <UNK>"),
        ("", "line 1 is blank"),
    ],
)
def test_a_wrong_file_is_told_by_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "v.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BundleError, match=problem) as caught:
        read_vocabulary(path)
    assert caught.value.where == str(path)


def test_bytes_that_are_no_utf8_are_told(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(b"</S>\n<S>\n<UNK>\ncaf\xe9\n")
    with pytest.raises(BundleError, match="can't be read as UTF-8"):
        read_vocabulary(path)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4), max_size=20))
def test_what_is_counted_can_be_saved_and_read(tmp_path_factory: pytest.TempPathFactory, tokens: list[str]) -> None:
    counter = TokenCounter()
    counter.add(tokens)
    vocabulary = counter.vocabulary()
    path = tmp_path_factory.mktemp("v") / "v.txt"
    vocabulary.save(path)
    assert read_vocabulary(path) == vocabulary


def test_the_most_frequent_words_come_first() -> None:
    counter = TokenCounter()
    counter.add(["b", "a", "c", "a", "b", "a", "<UNK>", "<S>"])
    counter.add(["c"], weight=3)
    assert counter.vocabulary().tokens == ("</S>", "<S>", "<UNK>", "c", "a", "b")
    assert counter.vocabulary(max_words=4, min_count=3).tokens == ("</S>", "<S>", "<UNK>", "c")
    assert counter.vocabulary(min_count=3).tokens == ("</S>", "<S>", "<UNK>", "c", "a")


@given(st.lists(st.sampled_from([f"w{i}" for i in range(40)]), max_size=300))
def test_bounded_counting_errs_by_what_it_says(tokens: list[str]) -> None:
    counter = TokenCounter(max_distinct=10)
    for token in tokens:
        counter.add([token])
    assert len(counter.counts) <= 10
    for token, count in Counter(tokens).items():
        assert count <= counter.counts.get(token, counter.max_error) <= count + counter.max_error


def test_a_token_stands_once() -> None:
    with pytest.raises(BundleError, match="repeats"):
        Vocabulary(("</S>", "<S>", "<UNK>", "a", "a"))


def test_a_frequent_word_among_many_rare_ones_is_counted_exactly() -> None:
    counter = TokenCounter(max_distinct=10)
    for i in range(200):
        counter.add(["the", f"rare{i}"])
    assert counter.counts["the"] == 200
