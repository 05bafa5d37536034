"""A record's text to sentences of tokens, each token with its place in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from elmo_core.errors import ConfigError

if TYPE_CHECKING:
    from spacy.tokens import Token

Span = tuple[int, int]
TOKENIZERS: Final = "whitespace, characters or spacy:LANG"

_WORD: Final = re.compile(r"\S+")
_CHARACTER: Final = re.compile(r"\S")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CLOSING: Final = "\"'”’»)]}」』】》）"
_ENDS_ANYWHERE: Final = "。！？…"
_ENDS_BEFORE_SPACE: Final = ".!?"
_CONTINUES: Final = re.compile(rf"[.!?。！？…{re.escape(_CLOSING)}]+$")


@dataclass(frozen=True, slots=True)
class Sentence:
    """What the biLM sees between two boundary tokens.

    Args:
        tokens: As read, never cut or changed.
        spans: Where each token stands in the record's text, in characters, half-open.
    """

    tokens: tuple[str, ...]
    spans: tuple[Span, ...]


EMPTY_SENTENCE: Final = Sentence((), ())


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Cut the text of a record.

    Args:
        name: As the user gave it.
        version: Changes when the same text may give other tokens.
        bytes_per_token: About; to plan ranges of about so many tokens.
        sentences: Cut raw prose into sentences of tokens.
        tokens: Cut one sentence into tokens.
    """

    name: str
    version: str
    bytes_per_token: int
    sentences: Callable[[str], Iterator[Sentence]]
    tokens: Callable[[str], Sentence]

    def tokenize(self, text: str, *, is_prose: bool) -> tuple[Sentence, ...]:
        """Cut a record's text.

        Args:
            text: The record.
            is_prose: Whether it is raw prose, of any number of sentences, or exactly one sentence.

        Returns:
            At least one sentence; a blank text gives one without tokens.
        """
        if not is_prose:
            return (self.tokens(text),)
        return tuple(self.sentences(text)) or (EMPTY_SENTENCE,)


def load_tokenizer(name: str) -> Tokenizer:
    """Make a tokenizer by its name.

    Args:
        name: `whitespace` (what `str.split` separates), `characters` (every code point that is no white space), or
            `spacy:LANG` (spaCy's rules for a language; no model is needed).

    Raises:
        ConfigError: The name is unknown, or spaCy or the language isn't there.
    """
    if name == "whitespace":
        return _pattern_tokenizer(name, _WORD, bytes_per_token=5)
    if name == "characters":
        return _pattern_tokenizer(name, _CHARACTER, bytes_per_token=2)
    if name.startswith("spacy:"):
        return _spacy_tokenizer(name)
    raise ConfigError(f"tokenizer is {name!r}; it must be {TOKENIZERS}")


def _pattern_tokenizer(name: str, pattern: re.Pattern[str], bytes_per_token: int) -> Tokenizer:
    def tokens(text: str) -> Sentence:
        matches = list(pattern.finditer(text))
        return Sentence(tuple(m[0] for m in matches), tuple(m.span() for m in matches))

    def sentences(text: str) -> Iterator[Sentence]:
        return _split_sentences(tokens(text))

    return Tokenizer(name, "1", bytes_per_token, sentences, tokens)


def _split_sentences(all_tokens: Sentence) -> Iterator[Sentence]:
    """End a sentence after a token that closes one, and after the closing marks that follow it."""
    start, words, spans = 0, all_tokens.tokens, all_tokens.spans
    for stop in range(1, len(words)):
        if _closes(words, spans, start, stop):
            yield Sentence(words[start:stop], spans[start:stop])
            start = stop
    if words:
        yield Sentence(words[start:], spans[start:])


def _closes(words: Sequence[str], spans: Sequence[Span], start: int, stop: int) -> bool:
    """Whether a sentence ends between `stop - 1` and `stop`."""
    if _CONTINUES.match(words[stop]):
        return False
    # Closing marks that stand alone belong to what they follow.
    cores = (words[last].rstrip(_CLOSING) for last in range(stop - 1, start - 1, -1))
    mark = next((core[-1] for core in cores if core), " ")
    before_space = spans[stop - 1][1] < spans[stop][0]
    return mark in _ENDS_ANYWHERE or (before_space and mark in _ENDS_BEFORE_SPACE)


def _spacy_tokenizer(name: str) -> Tokenizer:
    language = name.removeprefix("spacy:")
    try:
        import spacy  # an extra: only this tokenizer needs it
    except ImportError as error:
        raise ConfigError(f"tokenizer {name!r} needs spaCy: pip install 'spacy>=3.8.2,<4'") from error
    try:
        nlp = spacy.blank(language)
    except ImportError as error:
        raise ConfigError(f"tokenizer {name!r}: spaCy can't load language {language!r} ({_first_line(error)})") from error
    nlp.add_pipe("sentencizer")
    nlp.max_length = 2**31  # the limit guards parsers, and there is none

    def sentences(text: str) -> Iterator[Sentence]:
        with nlp.memory_zone():  # without it the vocabulary grows with the corpus
            found = [_spacy_sentence(text, sentence) for sentence in nlp(_replace_surrogates(text)).sents]
        return (sentence for sentence in found if sentence.tokens)

    def tokens(text: str) -> Sentence:
        with nlp.memory_zone():
            return _spacy_sentence(text, nlp.make_doc(_replace_surrogates(text)))

    bytes_per_token = 4 if language in ("zh", "ja", "ko", "th") else 5
    return Tokenizer(name, f"spacy {version('spacy')}", bytes_per_token, sentences, tokens)


def _spacy_sentence(text: str, tokens: Iterable[Token]) -> Sentence:
    spans = tuple((token.idx, token.idx + len(token)) for token in tokens if not token.is_space)
    return Sentence(tuple(text[start:stop] for start, stop in spans), spans)


def _replace_surrogates(text: str) -> str:
    """Lone surrogates have no UTF-8, which spaCy needs; what replaces them keeps every place."""
    return _SURROGATE.sub("\ufffd", text)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
