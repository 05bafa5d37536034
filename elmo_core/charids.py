"""Tokens to character ids: UTF-8 bytes between word boundary marks, as the reference numbers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

PADDING: Final = 0
"""Id of a position outside any token; bytes and marks are numbered from 1."""
BEGIN_SENTENCE: Final = 257
END_SENTENCE: Final = 258
BEGIN_WORD: Final = 259
END_WORD: Final = 260
WORD_PADDING: Final = 261
N_STORED_CHARACTERS: Final = 261
"""Rows of a stored character table: every id but padding."""

BOS: Final = "<S>"
EOS: Final = "</S>"
"""Boundary tokens; standing in a text, these strings get the boundary tokens' characters, as in the reference."""

CharIds = npt.NDArray[np.int64]


def token_bytes(token: str) -> bytes:
    """The bytes that the char-CNN sees: UTF-8, lone surrogates left out as in bilm-tf `Vocabulary`."""
    return token.encode("utf-8", "ignore")


def is_cut(token: str, max_characters_per_token: int) -> bool:
    """Whether a token is longer than the byte limit, so that the char-CNN sees only its beginning."""
    return len(token) > (max_characters_per_token - 2) // 4 and len(token_bytes(token)) > max_characters_per_token - 2


def encode_tokens(tokens: Sequence[str], max_characters_per_token: int) -> CharIds:
    """Encode tokens, each on its own (bilm-tf `data.py`, class UnicodeCharsVocabulary).

    Args:
        tokens: Any strings; `<S>` and `</S>` are the boundary tokens.
        max_characters_per_token: Positions C of a token; its bytes are cut to C - 2.

    Returns:
        Ids from 1 to 261. Shape: (N, C).

    Example:
        >>> encode_tokens(["ab"], 6)
        array([[259,  98,  99, 260, 261, 261]])
    """
    ids = np.full((len(tokens), max_characters_per_token), WORD_PADDING, dtype=np.int64)
    ids[:, 0] = BEGIN_WORD
    for row, token in zip(ids, tokens, strict=True):
        inner = _inner_ids(token, max_characters_per_token - 2)
        row[1 : len(inner) + 1] = inner
        row[len(inner) + 1] = END_WORD
    return ids


def n_positions(ids: CharIds) -> npt.NDArray[np.int64]:
    """Positions of each token up to its end mark, both marks counted. Shape: (N, C) -> (N,)."""
    n_used: npt.NDArray[np.int64] = (ids != WORD_PADDING).sum(axis=1)
    return n_used


def _inner_ids(token: str, max_bytes: int) -> CharIds:
    if token in (BOS, EOS):
        return np.array([BEGIN_SENTENCE if token == BOS else END_SENTENCE])
    return np.frombuffer(token_bytes(token)[:max_bytes], dtype=np.uint8) + np.int64(1)
