"""Character ids, against values written by hand from the reference's numbering."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_core.charids import encode_tokens, is_cut, n_positions

PAD = 261


@pytest.mark.parametrize(
    ("token", "ids"),
    [
        ("a", [259, 98, 260, PAD, PAD, PAD, PAD]),
        ("", [259, 260, PAD, PAD, PAD, PAD, PAD]),
        ("abcde", [259, 98, 99, 100, 101, 102, 260]),
        ("abcdef", [259, 98, 99, 100, 101, 102, 260]),
        ("é", [259, 196, 170, 260, PAD, PAD, PAD]),
        ("aa好", [259, 98, 98, 230, 166, 190, 260]),
        ("aaa好", [259, 98, 98, 98, 230, 166, 260]),
        ("\x00", [259, 1, 260, PAD, PAD, PAD, PAD]),
        ("a\ud800b", [259, 98, 99, 260, PAD, PAD, PAD]),
        ("<S>", [259, 257, 260, PAD, PAD, PAD, PAD]),
        ("</S>", [259, 258, 260, PAD, PAD, PAD, PAD]),
    ],
)
def test_ids_of_a_token(token: str, ids: list[int]) -> None:
    assert encode_tokens([token], 7).tolist() == [ids]


@given(st.lists(st.text(max_size=20)), st.integers(3, 12))
def test_a_token_is_encoded_on_its_own(tokens: list[str], n_characters: int) -> None:
    together = encode_tokens(tokens, n_characters)
    assert together.shape == (len(tokens), n_characters)
    for token, row in zip(tokens, together, strict=True):
        np.testing.assert_array_equal(encode_tokens([token], n_characters)[0], row)


@given(st.text(st.characters(), max_size=20), st.integers(3, 60))
def test_a_token_is_cut_when_its_bytes_are_too_many(token: str, n_characters: int) -> None:
    assert is_cut(token, n_characters) == (len(token.encode("utf-8", "ignore")) > n_characters - 2)


@given(st.text(st.characters(), max_size=20))
def test_lone_surrogates_are_ignored(token: str) -> None:
    kept = "".join(character for character in token if not "\ud800" <= character <= "\udfff")
    np.testing.assert_array_equal(encode_tokens([token], 90), encode_tokens([kept], 90))


def test_positions_count_both_marks() -> None:
    assert n_positions(encode_tokens(["", "a", "好", "a" * 99], 10)).tolist() == [2, 3, 5, 10]
