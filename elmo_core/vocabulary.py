"""The words that a softmax knows: counted, sorted, one a line in a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from elmo_core.charids import BOS, EOS
from elmo_core.errors import BundleError

UNKNOWN: Final = "<UNK>"
SPECIAL_TOKENS: Final = (EOS, BOS, UNKNOWN)
"""They stand first in our files; bilm-tf `Vocabulary` finds them on any line."""
MAX_DISTINCT: Final = 5_000_000
"""Distinct tokens that a counter keeps: about 1 GB."""


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Tokens by id, the most frequent ones first, as log-uniform sampling wants them.

    Args:
        tokens: Distinct, `<S>`, `</S>` and `<UNK>` among them.

    Raises:
        BundleError: A token stands twice, is empty or holds a line break, or a special one is missing.
    """

    tokens: tuple[str, ...]
    _ids: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ids: dict[str, int] = {}
        for number, token in enumerate(self.tokens, start=1):
            if not token.strip():
                raise BundleError(f"line {number} is blank; a vocabulary has one token a line")
            if token in ids:
                raise BundleError(f"line {number} repeats {token!r} of line {ids[token] + 1}; a vocabulary has each token once")
            ids[token] = number - 1
        if missing := [token for token in SPECIAL_TOKENS if token not in ids]:
            raise BundleError(
                f"has no line {missing[0]}; a vocabulary needs {', '.join(SPECIAL_TOKENS)}, best as its first lines"
            )
        object.__setattr__(self, "_ids", ids)

    def __len__(self) -> int:
        return len(self.tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(self.tokens)

    @property
    def unknown_id(self) -> int:
        """The id of `<UNK>`."""
        return self._ids[UNKNOWN]

    def id(self, token: str) -> int | None:
        """A token's id, None where it isn't in the vocabulary."""
        return self._ids.get(token)

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Ids of tokens, `<UNK>`'s for those that aren't in the vocabulary."""
        get, unknown = self._ids.get, self.unknown_id
        return [get(token, unknown) for token in tokens]

    def save(self, path: Path) -> None:
        """Write one token a line, in UTF-8.

        Raises:
            BundleError: The file can't be written.
        """
        try:
            path.write_text("".join(f"{token}\n" for token in self.tokens), encoding="utf-8", newline="\n")
        except OSError as error:
            raise BundleError(f"can't be written: {error.strerror}", str(path)) from error


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary: one token a line, lines ending at line feeds only (bilm-tf's format).

    Raises:
        BundleError: The file can't be read, or it is no vocabulary; the message names the line.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"can't be read as UTF-8: {error}", str(path)) from error
    lines = text.removeprefix("\ufeff").removesuffix("\n").split("\n")
    try:
        return Vocabulary(tuple(line.removesuffix("\r") for line in lines))
    except BundleError as error:
        raise BundleError(error.message, str(path)) from error


@dataclass(slots=True)
class TokenCounter:
    """Count tokens in bounded memory.

    Where there are more distinct tokens than it may keep, the rarest are forgotten (lossy counting, Manku and Motwani
    2002). A token that comes back is taken to have been seen as often as a forgotten one can have been.

    Args:
        max_distinct: Distinct tokens kept.
        n_tokens: Counted so far.
        max_error: A count is too high by this at most, and never too low; what is forgotten was seen no more often.
        counts: By token.
    """

    max_distinct: int = MAX_DISTINCT
    n_tokens: int = 0
    max_error: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, tokens: Sequence[str], weight: int = 1) -> None:
        """Count the tokens of a sentence, so many times."""
        self.n_tokens += weight * len(tokens)
        counts = self.counts
        for token in tokens:
            counts[token] = counts.get(token, self.max_error) + weight
        while len(counts) > self.max_distinct:
            self.max_error += 1
            counts = self.counts = {token: count for token, count in counts.items() if count > self.max_error}

    def vocabulary(self, *, max_words: int | None = None, min_count: int = 1) -> Vocabulary:
        """The most frequent tokens after the special ones; equally frequent ones in the order of their code points.

        Args:
            max_words: Tokens at most, the special ones included; None for no limit.
            min_count: Tokens seen less often are left out.
        """
        kept = [
            (-count, token)
            for token, count in self.counts.items()
            if count >= min_count and token not in SPECIAL_TOKENS and token.strip() and not {"\n", "\r"} & set(token)
        ]
        words = [token for _, token in sorted(kept)]
        n_words = len(words) if max_words is None else max(0, max_words - len(SPECIAL_TOKENS))
        return Vocabulary((*SPECIAL_TOKENS, *words[:n_words]))
