"""Both kinds of lane runners give the numbers of `LstmStack`, which has gradients and no lanes."""

from __future__ import annotations

import pytest
import torch
from builders import make_config

from elmo_core import LstmState, initialize_bilm
from elmo_core.cell import update_cell
from elmo_core.cuda import GraphLstm, plan_grids
from elmo_core.lanes import plan_lanes
from elmo_core.lstm import LstmStack
from elmo_core.recurrence import LaneLstm

LENGTHS = [5, 4, 0, 3, 9, 1, 20]
CHANGES: list[dict[str, object]] = [
    {},
    {"n_layers": 1},
    {"n_layers": 3},
    {"cell_size": 8},
    {"use_skip_connections": False},
    {"cell_clip": None, "proj_clip": None},
    {"cell_clip": 0.1, "proj_clip": 0.01},
]


def _state(stack: LstmStack) -> LstmState:
    config, generator = stack.config, torch.Generator().manual_seed(1)
    return LstmState(
        torch.rand(config.n_layers, 1, config.projection_size, generator=generator) / 100,
        torch.rand(config.n_layers, 1, config.cell_size, generator=generator) / 10,
    )


@torch.inference_mode()
def _run(kind: type[LaneLstm] | type[GraphLstm], stack: LstmStack, max_lanes: int, precision: torch.dtype) -> list[torch.Tensor]:
    """Each sentence's vectors of all layers, of tokens that are its number and position."""
    plan = plan_lanes(LENGTHS, max_lanes)
    table = torch.randn(11, 8, generator=torch.Generator().manual_seed(0))
    rows = torch.from_numpy((plan.sentence + plan.position) % 11)
    outputs = torch.full((stack.config.n_layers, 7 * 20 + 1, 8), torch.nan)
    targets = torch.from_numpy(plan.sentence * 20 + plan.position)
    lstm = kind(stack, precision)
    for _ in range(2):  # a second run starts from nothing, too
        lstm.run(table, rows, plan, _state(stack), update_cell, outputs, targets)
    return [outputs[:, 20 * i : 20 * i + length] for i, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("kind", [LaneLstm, GraphLstm])
@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("max_lanes", [1, 3, 30])
def test_lanes_give_the_numbers_of_the_stack(kind: type[LaneLstm], changes: dict[str, object], max_lanes: int) -> None:
    stack = initialize_bilm(make_config(**changes), 3).forward_lstm
    table = torch.randn(11, 8, generator=torch.Generator().manual_seed(0))
    for i, found in enumerate(_run(kind, stack, max_lanes, torch.float32)):
        if LENGTHS[i]:
            inputs = table[(i + torch.arange(LENGTHS[i])) % 11]
            expected, _ = stack(inputs, [1] * LENGTHS[i], _state(stack))
            torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [LaneLstm, GraphLstm])
def test_bfloat16_is_near(kind: type[LaneLstm]) -> None:
    stack = initialize_bilm(make_config(), 3).forward_lstm
    exact, near = (torch.cat(_run(kind, stack, 3, p), dim=1) for p in (torch.float32, torch.bfloat16))
    assert 0 < (exact - near).abs().max() < 0.01
    assert near.dtype == torch.float32


@pytest.mark.parametrize("max_lanes", [1, 3, 30, 100])
def test_grids_hold_every_row_once_in_order(max_lanes: int) -> None:
    plan = plan_lanes([*LENGTHS, *range(60)], max_lanes)
    rows = [int(row) for grid in plan_grids(plan) for step in grid.rows for row in step if row >= 0]
    assert rows == list(range(len(plan.sentence)))
    starts = [int(row) for grid in plan_grids(plan) for row in grid.rows[grid.is_start]]
    assert starts == [row for row in rows if plan.position[row] == 0]
