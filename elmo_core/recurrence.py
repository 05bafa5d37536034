"""One direction's LSTMs over lanes, for inference: weights laid out once, state updated in place, no gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, cast

import torch
from torch import Tensor

from elmo_core.cell import CellUpdate, double_gate_j
from elmo_core.lanes import Block, LanePlan
from elmo_core.lstm import LstmLayer, LstmStack, LstmState
from elmo_core.products import make_product

BLOCK_ROWS: Final = 256
"""Packed rows whose input gates are computed at once: 16 MB at the original size, which the C library keeps at hand."""
FREQUENT_TOKENS: Final = 1024
"""Tokens whose input gates of the first layer are computed once a run: 64 MB at the original size."""

Reset = Callable[[int, Tensor, Tensor], None]
"""Sets hidden and cell of the lanes in which a sentence starts at a step of a block, in place."""


class LaneLayer:
    """One LSTM layer, with the numbers of `LstmLayer`.

    Args:
        layer: The weights, which are copied.
        precision: Of the weights and their products; cells and outputs are float32 always.
    """

    def __init__(self, layer: LstmLayer, precision: torch.dtype) -> None:
        self.config = layer.config
        self.precision = precision
        bias = layer.bias.clone()
        bias.chunk(4)[2].add_(1.0)  # the forget gate's, which TensorFlow adds at run time
        self._input = make_product(double_gate_j(layer.input_weight).to(precision), double_gate_j(bias).to(precision))
        self._recurrent = make_product(double_gate_j(layer.recurrent_weight).to(precision))
        self._projection = None if layer.projection is None else make_product(layer.projection.to(precision))

    def input_gates(self, x: Tensor) -> Tensor:
        """The inputs' part of the gates, all biases included. Shape: (rows, D) -> (rows, 4H)."""
        return self._input.multiply(x.to(self.precision))

    def run(self, gates: Iterable[Tensor], reset: Reset, state: LstmState, update: CellUpdate, outputs: Tensor) -> None:
        """Run a block of steps.

        Args:
            gates: For each step, from `input_gates`; may be overwritten. Shape: (B, 4H) each.
            reset: Called before each step.
            state: Of the lanes at work, hidden in this layer's precision; updated in place. Shape: (B, D) and (B, H).
            update: The cell's arithmetic.
            outputs: Filled. Shape: (steps, B, D).
        """
        full = state.hidden if self._projection is None else torch.empty_like(state.cell, dtype=self.precision)
        clip = self.config.proj_clip
        for step, input_gates in enumerate(gates):
            reset(step, state.hidden, state.cell)
            update(self._recurrent.add_to(input_gates, state.hidden), state.cell, full, self.config.cell_clip)
            if self._projection is not None:
                projected = self._projection.multiply(full)
                state.hidden.copy_(projected if clip is None else projected.clamp_(-clip, clip))
            outputs[step] = state.hidden


class LaneLstm:
    """The LSTM layers of one direction.

    Args:
        stack: The direction's weights, which are copied.
        precision: Of the weights and their products.
    """

    def __init__(self, stack: LstmStack, precision: torch.dtype) -> None:
        self._layers = [LaneLayer(cast(LstmLayer, layer), precision) for layer in stack.layers]
        self._config = stack.config

    def run(
        self, table: Tensor, rows: Tensor, plan: LanePlan, start: LstmState, update: CellUpdate, outputs: Tensor, targets: Tensor
    ) -> int:
        """Run all lanes from their first step to their last.

        Args:
            table: Token vectors. Shape: (N, D).
            rows: The table's row for each packed row. Shape: (packed rows,).
            plan: Where each sentence is computed.
            start: The state in which each sentence starts, for one lane.
            update: The cell's arithmetic.
            outputs: Filled with every layer's vectors. Shape: (L, any, D).
            targets: The row of `outputs` for each packed row. Shape: (packed rows,).

        Returns:
            Floating-point operations of the products that were computed.
        """
        states = new_states(self._layers, plan.n_lanes, table.device)
        first_gates = _FirstGates(self._layers[0], table, rows, max(BLOCK_ROWS, plan.n_lanes))
        for block in plan.blocks(BLOCK_ROWS):
            starts = [torch.from_numpy(lanes) for lanes in plan.starts(block)]
            x = table[rows[block.rows]]
            for number, layer in enumerate(self._layers):
                gates = layer.input_gates(x).view(len(starts), block.n_lanes, -1) if number else first_gates.of(block, x)
                y = torch.empty_like(x)
                state = LstmState(states[number].hidden[: block.n_lanes], states[number].cell[: block.n_lanes])
                reset = _IndexReset(starts, start.hidden[number].to(layer.precision), start.cell[number])
                layer.run(gates, reset, state, update, y.view(len(starts), block.n_lanes, -1))
                x = y + x if number and self._config.use_skip_connections else y
                outputs[number, targets[block.rows]] = x
        n_input_rows = first_gates.n_multiplied + (len(self._layers) - 1) * len(rows)
        return n_input_rows * self._config.input_flops + len(self._layers) * len(rows) * self._config.step_flops


def new_states(layers: Sequence[LaneLayer], n_lanes: int, device: torch.device) -> list[LstmState]:
    """Room for each layer's state. Shape: (n_lanes, D) and (n_lanes, H)."""
    return [
        LstmState(
            torch.zeros(n_lanes, layer.config.projection_size, device=device, dtype=layer.precision),
            torch.zeros(n_lanes, layer.config.cell_size, device=device),
        )
        for layer in layers
    ]


class _IndexReset:
    """Reset by the numbers of the lanes: next to nothing where few lanes start."""

    def __init__(self, starts: Sequence[Tensor], hidden: Tensor, cell: Tensor) -> None:
        self._starts = starts
        self._hidden = hidden
        self._cell = cell

    def __call__(self, step: int, hidden: Tensor, cell: Tensor) -> None:
        lanes = self._starts[step]
        if len(lanes):
            hidden[lanes] = self._hidden
            cell[lanes] = self._cell


class _FirstGates:
    """The first layer's input gates. They depend on the token alone, so a run's frequent tokens are multiplied once."""

    def __init__(self, layer: LaneLayer, table: Tensor, rows: Tensor, max_rows: int) -> None:
        self._layer = layer
        counts = torch.bincount(rows, minlength=len(table))
        frequent = counts.argsort(descending=True, stable=True)[:FREQUENT_TOKENS]
        frequent = frequent[counts[frequent] > 1]
        slot_of_token = torch.full((len(table),), -1)
        slot_of_token[frequent] = torch.arange(len(frequent))
        self._slots = slot_of_token[rows]
        self._gates = table.new_empty(len(frequent) + max_rows, 4 * layer.config.cell_size, dtype=layer.precision)
        self._n_frequent = len(frequent)
        for start in range(0, len(frequent), BLOCK_ROWS):
            some = frequent[start : start + BLOCK_ROWS]
            self._gates[start : start + len(some)] = layer.input_gates(table[some])
        self.n_multiplied = len(frequent)
        """Rows of the product with the input so far."""

    def of(self, block: Block, x: Tensor) -> Iterator[Tensor]:
        """Gates of a block, step by step. Shape: (rows, D) -> (B, 4H) each."""
        slots = self._slots[block.rows]
        rare = (slots < 0).nonzero()[:, 0]
        if len(rare):
            slots[rare] = torch.arange(self._n_frequent, self._n_frequent + len(rare))
            self._gates[self._n_frequent : self._n_frequent + len(rare)] = self._layer.input_gates(x[rare])
            self.n_multiplied += len(rare)
        for step in slots.view(-1, block.n_lanes):
            yield self._gates[step]
