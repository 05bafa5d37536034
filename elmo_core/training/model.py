"""The language model: a biLM, its softmax, and what a window costs under it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo_core.bilm import BiLM
from elmo_core.lstm import LstmState
from elmo_core.training.objective import Softmax, draw_candidates
from elmo_core.training.windows import IGNORED

LaneState = tuple[Tensor, Tensor, Tensor, Tensor]
"""Hidden and cell of the forward direction, hidden and cell of the backward one; shapes as in `LstmState`."""


class LanguageModel(nn.Module):
    """Forward and backward likelihood of text; token layer and softmax are shared between the directions.

    Args:
        bilm: With gradients.
        softmax: Of the same width.
        n_negatives: Candidates drawn for the sampled softmax; 0 for the whole softmax.
        dropout: Of the LSTM layers' inputs and of the top layer's outputs, as in bilm-tf.
    """

    def __init__(self, bilm: BiLM, softmax: Softmax, *, n_negatives: int, dropout: float) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax
        self.n_negatives = n_negatives
        self.dropout = dropout

    def zero_state(self, n_lanes: int) -> LaneState:
        """The state of lanes that have read nothing."""
        state = self.bilm.zero_state(n_lanes)
        return (state.forward.hidden, state.forward.cell, state.backward.hidden, state.backward.cell)

    def forward(
        self, characters: Tensor, inputs: Tensor, targets: Tensor, keep: Tensor | None, n_targets: int, state: LaneState
    ) -> tuple[Tensor, LaneState]:
        """Run a window from the state that the one before left. The first five are those of `Window`.

        Args:
            characters: Shape: (N, C).
            inputs: Shape: (2, T, B).
            targets: Shape: (2, T, B).
            keep: Shape: (T * B, 1), or None.
            n_targets: Targets in each direction that are not ignored.
            state: Each lane's state before the window.

        Returns:
            The mean loss of each direction in nats a target, shape (2,), and each lane's state after the window,
            without gradients.
        """
        vectors = self.bilm.char_cnn(characters)
        _, n_steps, n_lanes = inputs.shape
        dropout = self.dropout if self.training else 0.0
        tops: list[Tensor] = []
        after: list[Tensor] = []
        for way, lstm in enumerate((self.bilm.forward_lstm, self.bilm.backward_lstm)):
            before = LstmState(state[2 * way], state[2 * way + 1])
            read = F.embedding(inputs[way].flatten(), vectors)
            outputs, end = lstm(read, [n_lanes] * n_steps, before, keep, dropout)
            tops.append(F.dropout(outputs[-1], dropout, self.training))
            after += [end.hidden.detach(), end.cell.detach()]
        losses = self._losses(torch.cat(tops), targets.flatten(), n_targets)
        return losses.reshape(2, n_targets).sum(dim=1) / max(1, n_targets), (after[0], after[1], after[2], after[3])

    def _losses(self, hidden: Tensor, targets: Tensor, n_targets: int) -> Tensor:
        if 2 * n_targets < len(targets):
            told = targets != IGNORED
            hidden, targets = hidden[told], targets[told]
        if not self.n_negatives:
            return self.softmax.losses(hidden, targets)
        candidates = draw_candidates(len(self.softmax.bias), self.n_negatives, hidden.device)
        return self.softmax.sampled_losses(hidden, targets, candidates, self.n_negatives)
