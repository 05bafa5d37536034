"""One direction's LSTMs on CUDA: the lanes of `recurrence`, with several steps of all layers as one captured graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import torch
from torch import Tensor

from elmo_core.cell import CellUpdate
from elmo_core.lanes import Integers, LanePlan
from elmo_core.lstm import LstmLayer, LstmStack, LstmState
from elmo_core.recurrence import LaneLayer, new_states

GRAPH_STEPS: Final = 8
MIN_GRAPH_LANES: Final = 16
"""Graphs exist for this many lanes and its doubles."""


class GraphLstm:
    """The LSTM layers of one direction, with the numbers of `LaneLstm`.

    A launch costs more than a small kernel takes, so the steps are launched as a whole. A graph's shapes are fixed:
    lanes are rounded up to the next graph, and the rows that this adds are computed and thrown away.

    Args:
        stack: The direction's weights, which are copied.
        precision: Of the weights and their products.
    """

    def __init__(self, stack: LstmStack, precision: torch.dtype) -> None:
        self._layers = [LaneLayer(cast(LstmLayer, layer), precision) for layer in stack.layers]
        self._has_skips = stack.config.use_skip_connections
        self._graphs: dict[int, StepGraph] = {}
        self._states: list[LstmState] = []

    def run(
        self, table: Tensor, rows: Tensor, plan: LanePlan, start: LstmState, update: CellUpdate, outputs: Tensor, targets: Tensor
    ) -> int:
        """See `LaneLstm.run`."""
        if plan.n_lanes > (len(self._states[0].cell) if self._states else 0):
            self._graphs.clear()
            self._states = new_states(self._layers, round_up(plan.n_lanes), table.device)
        # Idle cells of the grid read row 0 of the table and write to one row more than the outputs have.
        rows = torch.cat([rows, rows.new_zeros(1)])
        targets = torch.cat([targets, targets.new_full((1,), outputs.shape[1] - 1)])
        try:
            return self._run_grids(table, rows, plan, start, update, outputs, targets)
        except torch.OutOfMemoryError:  # fewer lanes will be tried, and need the room that these graphs take
            self._graphs.clear()
            self._states = []
            raise

    def _run_grids(
        self, table: Tensor, rows: Tensor, plan: LanePlan, start: LstmState, update: CellUpdate, outputs: Tensor, targets: Tensor
    ) -> int:
        n_cells = 0
        for grid in plan_grids(plan):
            n_lanes = grid.rows.shape[1]
            if n_lanes not in self._graphs:
                self._graphs[n_lanes] = StepGraph(self._layers, self._states, start, n_lanes, self._has_skips, update)
            graph = self._graphs[n_lanes]
            cells = torch.from_numpy(grid.rows.ravel()).to(table.device)
            graph.inputs.copy_(table[rows[cells]])
            graph.is_start.copy_(torch.from_numpy(grid.is_start)[:, :, None])
            graph.replay()
            outputs[:, targets[cells]] = graph.outputs
            n_cells += grid.rows.size
        config = self._layers[0].config
        return n_cells * len(self._layers) * (config.input_flops + config.step_flops)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """`GRAPH_STEPS` steps of some lanes.

    Args:
        rows: Packed rows; -1 where a lane has ended. Shape: (steps, lanes).
        is_start: Where a sentence starts. Shape: (steps, lanes).
    """

    rows: Integers
    is_start: np.ndarray[tuple[int, int], np.dtype[np.bool_]]


def round_up(n_lanes: int) -> int:
    """The lanes of the smallest graph that holds so many."""
    return max(MIN_GRAPH_LANES, 1 << (n_lanes - 1).bit_length())


def plan_grids(plan: LanePlan) -> Iterator[Grid]:
    """Cut a plan into grids, in the order of its steps; every packed row stands in one of them, once."""
    first_rows = np.concatenate([[0], np.cumsum(plan.active)]).astype(np.int64)
    for step in range(0, len(plan.active), GRAPH_STEPS):
        active = plan.active[step : step + GRAPH_STEPS]
        rows = np.full((GRAPH_STEPS, round_up(active[0])), -1, dtype=np.int64)
        for i, n_lanes in enumerate(active):
            rows[i, :n_lanes] = np.arange(first_rows[step + i], first_rows[step + i] + n_lanes)
        yield Grid(rows, (rows >= 0) & (plan.position[rows] == 0))


class StepGraph:
    """Steps of all layers with inputs, state and outputs in fixed places; captured on CUDA, merely called elsewhere.

    Args:
        layers: The direction's.
        states: Of all lanes, by layer; updated in place.
        start: The state in which each sentence starts, for one lane.
        n_lanes: Lanes computed.
        has_skips: Whether layers from the second on add their inputs.
        update: The cell's arithmetic.
    """

    def __init__(
        self,
        layers: list[LaneLayer],
        states: list[LstmState],
        start: LstmState,
        n_lanes: int,
        has_skips: bool,
        update: CellUpdate,
    ) -> None:
        self._layers = layers
        self._states = [LstmState(state.hidden[:n_lanes], state.cell[:n_lanes]) for state in states]
        self._start = start
        self._has_skips = has_skips
        self._update = update
        width, device = layers[0].config.projection_size, states[0].cell.device
        self.inputs = torch.zeros(GRAPH_STEPS * n_lanes, width, device=device)
        """Token vectors, step by step. Shape: (steps * lanes, D)."""
        self.is_start = torch.zeros(GRAPH_STEPS, n_lanes, 1, dtype=torch.bool, device=device)
        """Where the state is set to the start first. Shape: (steps, lanes, 1)."""
        self.outputs = torch.zeros(len(layers), GRAPH_STEPS * n_lanes, width, device=device)
        """Every layer's vectors. Shape: (L, steps * lanes, D)."""
        self._graph = self._capture() if device.type == "cuda" else None

    def replay(self) -> None:
        """Compute `outputs`, and take the states forward."""
        if self._graph is None:
            self._compute()
        else:
            self._graph.replay()

    def _capture(self) -> torch.cuda.CUDAGraph:
        kept = [LstmState(state.hidden.clone(), state.cell.clone()) for state in self._states]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's annotation is missing
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up at a first call, which can't be captured
            self._compute()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._compute()
        for state, before in zip(self._states, kept, strict=True):
            state.hidden.copy_(before.hidden)
            state.cell.copy_(before.cell)
        return graph

    def _compute(self) -> None:
        x = self.inputs
        for number, (layer, state) in enumerate(zip(self._layers, self._states, strict=True)):
            start_hidden = self._start.hidden[number].to(layer.precision)
            start_cell = self._start.cell[number]

            def reset(step: int, hidden: Tensor, cell: Tensor, h: Tensor = start_hidden, c: Tensor = start_cell) -> None:
                torch.where(self.is_start[step], h, hidden, out=hidden)
                torch.where(self.is_start[step], c, cell, out=cell)

            y = self.outputs[number]
            gates = layer.input_gates(x).view(GRAPH_STEPS, -1, 4 * layer.config.cell_size)
            layer.run(gates, reset, state, self._update, y.view(GRAPH_STEPS, -1, y.shape[1]))
            if number and self._has_skips:
                y += x
            x = y
