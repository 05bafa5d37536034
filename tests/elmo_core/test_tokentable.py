"""Token vectors computed once, within bounds, to the last bit the same whatever stands beside them."""

from __future__ import annotations

import numpy as np
import torch
from builders import make_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_core.charids import encode_tokens
from elmo_core.tokentable import TokenTable

WORDS = ["a", "b", "the", "好的", "x" * 11, "y" * 17, "z" * 30, "w" * 80, "", "<S>"]


def _table(max_tokens: int = 100) -> TokenTable:
    return TokenTable(make_bundle(n_highway=2).build_bilm().char_cnn, 50, max_tokens)


def test_vectors_equal_the_char_cnn() -> None:
    expected = make_bundle(n_highway=2).build_bilm().char_cnn(torch.from_numpy(encode_tokens(WORDS, 50)))
    torch.testing.assert_close(_table().embed(WORDS), expected, rtol=0, atol=1e-6)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(st.sampled_from(WORDS), unique=True), max_size=5), st.integers(1, 12))
def test_vectors_do_not_depend_on_what_was_asked_before(requests: list[list[str]], max_tokens: int) -> None:
    table = _table(max_tokens)
    for request in requests:
        for token, vector in zip(request, table.embed(request), strict=True):
            np.testing.assert_array_equal(vector, _table().embed([token])[0])


def test_known_tokens_are_not_computed_again() -> None:
    table = _table()
    table.embed(["a", "b"])
    table.embed(["b", "c"])
    assert (table.n_lookups, table.n_hits) == (4, 1)


def test_a_full_table_starts_again() -> None:
    table = _table(max_tokens=3)
    table.embed(["a", "b"])
    table.embed(["b", "c", "d"])
    table.embed(["b", "c", "d"])
    assert (table.n_lookups, table.n_hits) == (8, 3)


def test_a_request_larger_than_the_table_is_answered() -> None:
    tokens = [f"w{i}" for i in range(300)]
    table = _table(max_tokens=10)
    assert table.embed(tokens).shape == (300, 8)
    assert table.embed(["w7"]).shape == (1, 8)


def test_no_tokens_no_vectors() -> None:
    assert _table().embed([]).shape == (0, 8)


def test_words_shorter_than_every_width_fit_a_short_model() -> None:
    cnn = make_bundle(max_characters_per_token=10).build_bilm().char_cnn
    expected = cnn(torch.from_numpy(encode_tokens(["a", "abcdefghijk"], 10)))
    torch.testing.assert_close(TokenTable(cnn, 10, 5).embed(["a", "abcdefghijk"]), expected, rtol=0, atol=1e-6)
