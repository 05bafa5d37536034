"""The context-free token encoder: characters, filters, highways, projection."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo_core import charids
from elmo_core.config import BiLMConfig


class Highway(nn.Module):
    """One highway layer, g * relu(transform(x)) + (1 - g) * x with g = sigmoid(carry(x)) (Srivastava et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.carry = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (N, F) -> (N, F)."""
        gate = torch.sigmoid(self.carry(x))
        return gate * F.relu(self.transform(x)) + (1 - gate) * x


class CharCnn(nn.Module):
    """Encode tokens from their characters alone (reference: bilm-tf `model.py`, `_build_word_char_embeddings`)."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        cnn = config.char_cnn
        self.embedding = nn.Parameter(torch.empty(charids.N_STORED_CHARACTERS, cnn.embedding_dim))
        self.filters = nn.ModuleList(nn.Conv1d(cnn.embedding_dim, count, width) for width, count in cnn.filters)
        self.highways = nn.ModuleList(Highway(cnn.n_filters) for _ in range(cnn.n_highway))
        self.projection = nn.Linear(cnn.n_filters, config.lstm.projection_size) if config.has_cnn_projection else None
        self.activation = torch.relu if cnn.activation == "relu" else torch.tanh
        self.width = config.lstm.projection_size
        self.max_width = max(width for width, _ in cnn.filters)

    def forward(self, ids: Tensor, n_positions: int | None = None) -> Tensor:
        """Encode tokens.

        Windows that hold only word padding all give the same value, so positions past the tokens' ends and one such
        window of each filter are left out: the maximum is the same.

        Args:
            ids: Character ids. Shape: (N, C).
            n_positions: Positions within which every token ends; the longest token's when None.

        Returns:
            Token vectors. Shape: (N, D).
        """
        if n_positions is None:
            n_positions = int((ids != charids.WORD_PADDING).sum(dim=1).max()) if len(ids) else 0
        # The padding id has a row of zeros, which files do not store.
        table = torch.cat([torch.zeros_like(self.embedding[:1]), self.embedding])
        characters = F.embedding(ids[:, : n_positions + self.max_width], table).transpose(1, 2)  # (N, width, C)
        maxima = [conv(characters).amax(dim=2) for conv in self.filters]
        x = self.activation(torch.cat(maxima, dim=1))
        for highway in self.highways:
            x = highway(x)
        return x if self.projection is None else self.projection(x)
