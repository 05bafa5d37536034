"""Vectors of distinct tokens: each goes through the char-CNN once and is kept for the batches after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from elmo_core import charids
from elmo_core.charcnn import CharCnn

CHUNK_TOKENS: Final = 128
"""Tokens that go through the char-CNN at once, always this many."""
WIDTHS: Final = (8, 12, 18)
"""Positions that a chunk is cut to, where its tokens have no more; longer ones get all positions."""


class TokenTable:
    """A table of token vectors that grows up to a limit.

    A vector doesn't depend on what else is computed, to the last bit: products get the same shape whatever the tokens,
    so a row of one is the same wherever it stands in it.

    Args:
        char_cnn: The token encoder.
        max_characters_per_token: Positions C of a token.
        max_tokens: Tokens kept. When new ones don't fit, the table starts again; frequent tokens are soon back.
    """

    def __init__(self, char_cnn: CharCnn, max_characters_per_token: int, max_tokens: int) -> None:
        self._char_cnn = char_cnn
        self._n_positions = max_characters_per_token
        self._max_tokens = max_tokens
        self._rows: dict[str, int] = {}
        self._vectors = torch.empty(0, char_cnn.width, device=char_cnn.embedding.device)
        self.n_lookups = 0
        """Distinct tokens asked for so far, batch by batch."""
        self.n_hits = 0
        """How many of them were known."""

    def embed(self, tokens: Sequence[str]) -> Tensor:
        """Token vectors, computed for those tokens that aren't known yet.

        Args:
            tokens: Distinct tokens.

        Returns:
            A copy. Shape: (tokens, D).
        """
        new = [token for token in tokens if token not in self._rows]
        if len(self._rows) + len(new) > self._max_tokens:
            self._rows, new = {}, list(tokens)
            self._vectors = self._vectors.new_empty(0, self._vectors.shape[1])
        self.n_lookups += len(tokens)
        self.n_hits += len(tokens) - len(new)
        first = len(self._rows)
        self._reserve(first + len(new))
        self._fill(first, charids.encode_tokens(new, self._n_positions))
        self._rows.update(zip(new, range(first, first + len(new)), strict=True))
        rows = torch.tensor([self._rows[token] for token in tokens], dtype=torch.int64)
        return self._vectors[rows.to(self._vectors.device)]

    def _reserve(self, n_tokens: int) -> None:
        if n_tokens > len(self._vectors):
            n_rows = max(n_tokens, min(2 * len(self._vectors), self._max_tokens))
            vectors = self._vectors.new_empty(n_rows, self._vectors.shape[1])
            vectors[: len(self._vectors)] = self._vectors
            self._vectors = vectors

    def _fill(self, first: int, ids: charids.CharIds) -> None:
        device = self._vectors.device
        n_used = charids.n_positions(ids)
        narrower = 0
        for width in (*(width for width in WIDTHS if width < self._n_positions), self._n_positions):
            chosen = np.flatnonzero((n_used > narrower) & (n_used <= width))
            narrower = width
            for start in range(0, len(chosen), CHUNK_TOKENS):
                some = chosen[start : start + CHUNK_TOKENS]
                chunk = np.resize(ids[some], (CHUNK_TOKENS, self._n_positions))  # the last one repeats its tokens
                with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # full float32 convolutions on CUDA too
                    vectors = self._char_cnn(torch.from_numpy(chunk).to(device), width)
                self._vectors[torch.from_numpy(first + some).to(device)] = vectors[: len(some)]
