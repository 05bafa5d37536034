"""A stack of projected LSTMs in one direction, over packed rows, with gradients, state passed in and returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo_core.config import LstmConfig
from elmo_core.unroll import UnrolledLstm, Unrolling, cut_blocks

BLOCK_ROWS: Final = 4096
"""Packed rows that are unrolled at once: 256 MB of gates at the original size, and a window of training for most."""


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

    def repeat(self, n_lanes: int) -> LstmState:
        """The state of one lane, for many."""
        return LstmState(self.hidden.expand(-1, n_lanes, -1), self.cell.expand(-1, n_lanes, -1))

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

    def forward(
        self, inputs: Tensor, active: Sequence[int], state: LstmState, keep: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        """Run one block of steps.

        Args:
            inputs: Packed rows of the block. Shape: (rows, D).
            active: Lanes at work at each step; never grows. Shape: (steps,).
            state: The state of all lanes, of this layer alone, before the block. Shape: as L = 1.
            keep: 0.0 for each row that starts from zeros whatever its lane's state, 1.0 for others; None for all 1.0.
                Shape: (rows, 1).

        Returns:
            The packed outputs, shape (rows, D), and the state of all lanes after the block; a lane keeps the state of
            its last step.
        """
        config, kind = self.config, inputs.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.bias.dtype
        forget = torch.zeros_like(self.bias)
        forget[2 * config.cell_size : 3 * config.cell_size] = 1.0
        unrolling = Unrolling(active=tuple(active), cell_clip=config.cell_clip, proj_clip=config.proj_clip, precision=precision)
        with torch.autocast(kind, enabled=False):
            outputs, hidden, cell = UnrolledLstm.apply(  # type: ignore[no-untyped-call]  # torch's own
                inputs,
                keep,
                state.hidden[0],
                state.cell[0],
                self.input_weight,
                self.recurrent_weight,
                self.bias + forget,
                self.projection,
                unrolling,
            )
        return outputs, LstmState(hidden[None], cell[None])


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

    def forward(
        self,
        inputs: Tensor,
        active: Sequence[int],
        state: LstmState,
        keep: Tensor | None = None,
        dropout: float = 0.0,
    ) -> tuple[Tensor, LstmState]:
        """Run the lanes from their first step to their last, in blocks of steps.

        Args:
            inputs: Token vectors in packed order. Shape: (rows, D).
            active: Lanes at work at each step, from `LanePlan.active`. Shape: (steps,).
            state: The state of all lanes before the first step.
            keep: As in `LstmLayer.forward`. Shape: (rows, 1).
            dropout: Share of each layer's inputs that are zeroed, as in training (bilm-tf `training.py`: before the
                skip connection).

        Returns:
            Every layer's packed outputs, shape (L, rows, D), and the state of each lane after its last step.
        """
        states = [_layer_state(state, number) for number in range(len(self.layers))]
        outputs: list[Tensor] = []
        row = 0
        for block in cut_blocks(active, BLOCK_ROWS):
            rows = slice(row, row + sum(block))
            x, layers = inputs[rows], []
            for number, layer in enumerate(self.layers):
                x = F.dropout(x, dropout, training=dropout > 0)
                y, states[number] = layer(x, block, states[number], None if keep is None else keep[rows])
                x = y + x if number > 0 and self.config.use_skip_connections else y
                layers.append(x)
            outputs.append(torch.stack(layers))
            row = rows.stop
        together = torch.cat(outputs, dim=1) if outputs else inputs.new_empty(len(self.layers), 0, inputs.shape[1])
        return together, LstmState(torch.cat([s.hidden for s in states]), torch.cat([s.cell for s in states]))


def _layer_state(state: LstmState, number: int) -> LstmState:
    return LstmState(state.hidden[number : number + 1], state.cell[number : number + 1])
