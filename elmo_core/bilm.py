"""The bidirectional language model: token layer and both directions, state passed in and returned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo_core.charcnn import CharCnn
from elmo_core.config import BiLMConfig
from elmo_core.lanes import plan_one_lane_each
from elmo_core.lstm import LstmStack, LstmState


@dataclass(frozen=True, slots=True, eq=False)
class BiLMState:
    """State of both directions."""

    forward: LstmState
    backward: LstmState

    def repeat(self, n_lanes: int) -> BiLMState:
        """The state of one lane, for many."""
        return BiLMState(self.forward.repeat(n_lanes), self.backward.repeat(n_lanes))

    def to(self, device: torch.device) -> BiLMState:
        """The same state on another device."""
        return BiLMState(self.forward.to(device), self.backward.to(device))


@dataclass(frozen=True, slots=True, eq=False)
class BiLMOutput:
    """What the biLM says of a padded batch.

    Args:
        layers: Layer 0 is the token vector twice, layers 1..L are [forward; backward]; zeros past a sentence's end.
            Shape: (L + 1, B, T, 2D).
        state: Each direction's state after its last position of each sentence.
    """

    layers: Tensor
    state: BiLMState


def parameter_shapes(config: BiLMConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of all parameters of a biLM, by name, without making it."""
    with torch.device("meta"):
        return {name: tuple(parameter.shape) for name, parameter in BiLM(config).named_parameters()}


class BiLM(nn.Module):
    """The char-CNN and two stacks of LSTMs (Peters et al. 2018, section 3.1)."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.char_cnn = CharCnn(config)
        self.forward_lstm = LstmStack(config.lstm)
        self.backward_lstm = LstmStack(config.lstm)

    def zero_state(self, n_sentences: int) -> BiLMState:
        """The state of a biLM that has read nothing."""
        return BiLMState(self.forward_lstm.zero_state(n_sentences), self.backward_lstm.zero_state(n_sentences))

    def forward(self, ids: Tensor, lengths: list[int], state: BiLMState | None = None) -> BiLMOutput:
        """Run a padded batch, each sentence from the state given: the reference's stateful use, and training's.

        Args:
            ids: Character ids, boundary tokens included, anything past a sentence's end. Shape: (B, T, C).
            lengths: Positions of each sentence, each from 1 to T. Shape: (B,).
            state: Where each sentence starts, one lane a sentence; zeros when None.

        Returns:
            All layers and the state after each sentence.
        """
        if state is None:
            state = self.zero_state(len(lengths))
        plan, order = plan_one_lane_each(lengths)
        lanes = torch.from_numpy(order).to(ids.device)
        sentence = torch.from_numpy(plan.sentence).to(ids.device)
        position = torch.from_numpy(plan.position).to(ids.device)
        last = torch.tensor(lengths, device=ids.device)[sentence] - 1
        layers: list[Tensor] = []
        states: list[LstmState] = []
        for lstm, before, at in (
            (self.forward_lstm, state.forward, position),
            (self.backward_lstm, state.backward, last - position),
        ):
            vectors = self.char_cnn(ids[sentence, at])
            outputs, after = lstm(vectors, plan.active, before.select(lanes))
            padded = vectors.new_zeros(self.config.n_layers, *ids.shape[:2], vectors.shape[1])
            padded[:, sentence, at] = torch.cat([vectors[None], outputs])
            layers.append(padded)
            states.append(after.select(lanes.argsort()))
        return BiLMOutput(torch.cat(layers, dim=3), BiLMState(*states))
