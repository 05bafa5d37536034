"""A stack of projected LSTMs in one direction, over packed rows, with gradients, state passed in and returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo_core.config import LstmConfig

BLOCK_ROWS = 1024
"""Packed rows whose input projections are computed as one product: 64 MB of gates at the original size."""


@dataclass(frozen=True, slots=True, eq=False)
class LstmState:
    """State of every layer of one direction.

    Args:
        hidden: Projected outputs. Shape: (L, B, D).
        cell: Cells. Shape: (L, B, H).
    """

    hidden: Tensor
    cell: Tensor

    def select(self, lanes: Tensor) -> LstmState:
        """The state of some lanes, in the order given. Shape of `lanes`: (n,)."""
        return LstmState(self.hidden[:, lanes], self.cell[:, lanes])

    def to(self, device: torch.device) -> LstmState:
        """The same state on another device."""
        return LstmState(self.hidden.to(device), self.cell.to(device))


class LstmLayer(nn.Module):
    """One LSTM with clipped cells and a clipped projection (TensorFlow `LSTMCell`; Sak et al. 2014).

    Gates stand in TensorFlow's order i, j, f, o; 1.0 is added to the forget gate at run time.
    """

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.config = config
        cell, width = config.cell_size, config.projection_size
        self.input_weight = nn.Parameter(torch.empty(4 * cell, width))
        self.recurrent_weight = nn.Parameter(torch.empty(4 * cell, width))
        self.bias = nn.Parameter(torch.empty(4 * cell))
        self.projection = nn.Parameter(torch.empty(width, cell)) if config.has_projection else None

    def project_inputs(self, inputs: Tensor) -> Tensor:
        """The inputs' part of the gates, all biases included. Shape: (rows, D) -> (rows, 4H)."""
        cell = self.config.cell_size
        forget = torch.zeros_like(self.bias)
        forget[2 * cell : 3 * cell] = 1.0
        return F.linear(inputs, self.input_weight, self.bias + forget)

    def step(self, input_gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the lanes at work.

        Args:
            input_gates: From `project_inputs`. Shape: (B, 4H).
            hidden: Shape: (B, D).
            cell: Shape: (B, H).

        Returns:
            The new hidden and cell.
        """
        i, j, f, o = (input_gates + F.linear(hidden, self.recurrent_weight)).chunk(4, dim=1)
        cell = _clip(torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(j), self.config.cell_clip)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        if self.projection is not None:
            hidden = _clip(F.linear(hidden, self.projection), self.config.proj_clip)
        return hidden, cell

    def forward(self, inputs: Tensor, active: Sequence[int], state: LstmState) -> tuple[Tensor, LstmState]:
        """Run one block of steps.

        Args:
            inputs: Packed rows of the block. Shape: (rows, D).
            active: Lanes at work at each step; never grows. Shape: (steps,).
            state: The state of all lanes, of this layer alone, before the block. Shape: as L = 1.

        Returns:
            The packed outputs, shape (rows, D), and the state of all lanes after the block; a lane keeps the state of
            its last step.
        """
        gates = torch.split(self.project_inputs(inputs), list(active))
        hidden, cell = state.hidden[0], state.cell[0]
        outputs: list[Tensor] = []
        ended: list[tuple[Tensor, Tensor]] = []
        for step_gates, n_lanes in zip(gates, active, strict=True):
            if n_lanes < len(hidden):
                ended.append((hidden[n_lanes:], cell[n_lanes:]))
                hidden, cell = hidden[:n_lanes], cell[:n_lanes]
            hidden, cell = self.step(step_gates, hidden, cell)
            outputs.append(hidden)
        ended.append((hidden, cell))
        hiddens, cells = zip(*reversed(ended), strict=True)
        return torch.cat(outputs), LstmState(torch.cat(hiddens)[None], torch.cat(cells)[None])


class LstmStack(nn.Module):
    """The LSTM layers of one direction, with skip connections from the second layer on."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(LstmLayer(config) for _ in range(config.n_layers))

    def zero_state(self, n_lanes: int) -> LstmState:
        """The state of a direction that has read nothing."""
        config = self.config
        device = next(self.parameters()).device
        return LstmState(
            torch.zeros(config.n_layers, n_lanes, config.projection_size, device=device),
            torch.zeros(config.n_layers, n_lanes, config.cell_size, device=device),
        )

    def forward(self, inputs: Tensor, active: Sequence[int], state: LstmState) -> tuple[Tensor, LstmState]:
        """Run the lanes from their first step to their last, in blocks of steps.

        Args:
            inputs: Token vectors in packed order. Shape: (rows, D).
            active: Lanes at work at each step, from `LanePlan.active`. Shape: (steps,).
            state: The state of all lanes before the first step.

        Returns:
            Every layer's packed outputs, shape (L, rows, D), and the state of each lane after its last step.
        """
        outputs = inputs.new_empty(len(self.layers), len(inputs), self.config.projection_size)
        states = [_layer_state(state, number) for number in range(len(self.layers))]
        row = 0
        for block in _blocks(active):
            rows = slice(row, row + sum(block))
            x = inputs[rows]
            for number, layer in enumerate(self.layers):
                y, states[number] = layer(x, block, states[number])
                x = y + x if number > 0 and self.config.use_skip_connections else y
                outputs[number, rows] = x
            row = rows.stop
        return outputs, LstmState(torch.cat([s.hidden for s in states]), torch.cat([s.cell for s in states]))


def _clip(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else x.clamp(-limit, limit)


def _layer_state(state: LstmState, number: int) -> LstmState:
    return LstmState(state.hidden[number : number + 1], state.cell[number : number + 1])


def _blocks(active: Sequence[int]) -> Iterator[list[int]]:
    block: list[int] = []
    for n_lanes in active:
        if block and sum(block) + n_lanes > BLOCK_ROWS:
            yield block
            block = []
        block.append(n_lanes)
    if block:
        yield block
