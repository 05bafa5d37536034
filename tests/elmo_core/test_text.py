"""Tokens and sentences, and that spans point back into the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_core import ConfigError, load_tokenizer

NAMES = ["whitespace", "characters", "spacy:en", "spacy:zh"]
TOKENIZERS = {name: load_tokenizer(name) for name in NAMES}
TEXTS = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" .!?。”\"'…\u3000\xa0")), max_size=60)


def _sentences(name: str, text: str) -> list[list[str]]:
    return [list(sentence.tokens) for sentence in TOKENIZERS[name].tokenize(text, is_prose=True)]


@given(TEXTS, st.sampled_from(NAMES), st.booleans())
def test_spans_point_back_into_the_text(text: str, name: str, is_prose: bool) -> None:
    for sentence in TOKENIZERS[name].tokenize(text, is_prose=is_prose):
        assert [text[start:stop] for start, stop in sentence.spans] == list(sentence.tokens)
        assert all(token.strip() for token in sentence.tokens)


@given(TEXTS, st.sampled_from(NAMES))
def test_prose_has_the_same_tokens_as_one_sentence(text: str, name: str) -> None:
    [whole] = TOKENIZERS[name].tokenize(text, is_prose=False)
    assert [token for sentence in _sentences(name, text) for token in sentence] == list(whole.tokens)


@given(TEXTS)
def test_whitespace_separates_as_str_split(text: str) -> None:
    assert list(TOKENIZERS["whitespace"].tokenize(text, is_prose=False)[0].tokens) == text.split()


@given(TEXTS)
def test_characters_are_all_that_is_no_white_space(text: str) -> None:
    assert list(TOKENIZERS["characters"].tokenize(text, is_prose=False)[0].tokens) == list("".join(text.split()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", "   ", "\t\u3000\xa0"])
@pytest.mark.parametrize("is_prose", [True, False])
def test_a_blank_record_is_one_sentence_without_tokens(name: str, text: str, is_prose: bool) -> None:
    assert [sentence.tokens for sentence in TOKENIZERS[name].tokenize(text, is_prose=is_prose)] == [()]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("whitespace", "One two. Three!", ["One two.", "Three!"]),
        ("whitespace", "One two . Three", ["One two .", "Three"]),
        ("whitespace", 'He said: "Go!" Then left.', ['He said: "Go!"', "Then left."]),
        ("whitespace", "Wait ... what ?! Yes", ["Wait ...", "what ?!", "Yes"]),
        ("whitespace", 'It is . " So', ['It is . "', "So"]),
        ("whitespace", "pi is 3.14 or so", ["pi is 3.14 or so"]),
        ("characters", "好。的！", ["好 。", "的 ！"]),
        ("characters", "“好。”的", ["“ 好 。 ”", "的"]),
        ("characters", "3.14 a. b", ["3 . 1 4 a .", "b"]),
        ("characters", "等…好", ["等 …", "好"]),
        ("whitespace", "So… then (he left.) Done", ["So…", "then (he left.)", "Done"]),
        ("whitespace", "你好。 再见", ["你好。", "再见"]),
        ("spacy:en", "He didn't go. Why?", ["He did n't go .", "Why ?"]),
        ("spacy:zh", "你好。再见！", ["你 好 。", "再 见 ！"]),
    ],
)
def test_where_sentences_end(name: str, text: str, expected: list[str]) -> None:
    assert [" ".join(tokens) for tokens in _sentences(name, text)] == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bpe", "tokenizer is 'bpe'; it must be whitespace, characters or spacy:LANG"),
        ("spacy", "tokenizer is 'spacy'"),
        ("spacy:", "can't load language ''"),
        ("spacy:qq", "can't load language 'qq'"),
    ],
)
def test_an_unknown_tokenizer_is_told(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_tokenizer(name)


@pytest.mark.parametrize(
    ("name", "text", "spans"),
    [
        ("whitespace", " ab  c ", [(1, 3), (5, 6)]),
        ("characters", " a\u3000好😀", [(1, 2), (3, 4), (4, 5)]),
        ("spacy:en", "I can't.", [(0, 1), (2, 4), (4, 7), (7, 8)]),
    ],
)
def test_spans_count_code_points(name: str, text: str, spans: list[tuple[int, int]]) -> None:
    [sentence] = TOKENIZERS[name].tokenize(text, is_prose=False)
    assert list(sentence.spans) == spans


@pytest.mark.parametrize("name", NAMES)
def test_a_lone_surrogate_does_no_harm(name: str) -> None:
    [sentence] = TOKENIZERS[name].tokenize("a \ud800 b", is_prose=False)
    assert sentence.tokens == ("a", "\ud800", "b")
