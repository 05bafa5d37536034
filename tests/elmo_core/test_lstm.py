"""One direction of LSTMs: its arithmetic, its state, its blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from builders import make_config

from elmo_core import LstmState, initialize_bilm, lstm
from elmo_core.lanes import plan_one_lane_each
from elmo_core.lstm import LstmLayer, LstmStack


def _stack(**changes: object) -> LstmStack:
    return initialize_bilm(make_config(**changes), 3).forward_lstm


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _step_by_hand(layer: LstmLayer, x: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weights = {name: parameter.detach().double().numpy() for name, parameter in layer.named_parameters()}
    gates = x @ weights["input_weight"].T + hidden @ weights["recurrent_weight"].T + weights["bias"]
    i, j, f, o = np.split(gates, 4, axis=1)
    cell = _sigmoid(f + 1) * cell + _sigmoid(i) * np.tanh(j)
    clip, proj_clip = layer.config.cell_clip or np.inf, layer.config.proj_clip or np.inf
    cell = np.clip(cell, -clip, clip)
    hidden = _sigmoid(o) * np.tanh(cell)
    if "projection" in weights:
        hidden = np.clip(hidden @ weights["projection"].T, -proj_clip, proj_clip)
    return hidden, cell


@pytest.mark.parametrize(
    "changes",
    [{}, {"cell_clip": 0.1, "proj_clip": 0.05}, {"cell_clip": None, "proj_clip": None}, {"cell_size": 8, "proj_clip": 0.01}],
)
def test_a_step_is_the_formula(changes: dict[str, object]) -> None:
    layer = _stack(**changes).layers[0]
    assert isinstance(layer, LstmLayer)
    torch.nn.init.normal_(layer.bias)
    rng = np.random.default_rng(0)
    x, hidden, cell = (rng.standard_normal((3, n)) for n in (8, 8, layer.config.cell_size))
    tensors = [torch.tensor(array, dtype=torch.float32) for array in (x, hidden, cell)]
    _, state = layer(tensors[0], [3], LstmState(tensors[1][None], tensors[2][None]))
    for got, expected in zip((state.hidden[0], state.cell[0]), _step_by_hand(layer, x, hidden, cell), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=0, atol=1e-5)


def test_small_clips_are_reached() -> None:
    layer = _stack(cell_clip=0.1, proj_clip=0.005).layers[0]
    assert isinstance(layer, LstmLayer)
    x, hidden, cell = (torch.randn(3, n, generator=torch.Generator().manual_seed(n)) for n in (8, 8, 24))
    _, state = layer(x, [3], LstmState(hidden[None], cell[None]))
    hidden, cell = state.hidden, state.cell
    assert (hidden.abs().max().item(), cell.abs().max().item()) == (pytest.approx(0.005), pytest.approx(0.1))


def _run(stack: LstmStack, lengths: list[int]) -> tuple[torch.Tensor, LstmState]:
    plan, _ = plan_one_lane_each(lengths)
    inputs = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))[: len(plan.sentence)]
    return stack(inputs, plan.active, stack.zero_state(plan.n_lanes))


@pytest.mark.parametrize("block_rows", [1, 3, 10])
def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, block_rows: int) -> None:
    stack = _stack()
    expected = _run(stack, [5, 4, 3, 9, 1])
    monkeypatch.setattr(lstm, "BLOCK_ROWS", block_rows)
    actual = _run(stack, [5, 4, 3, 9, 1])
    torch.testing.assert_close(actual[0], expected[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(actual[1].cell, expected[1].cell, rtol=0, atol=1e-6)


def test_state_is_carried() -> None:
    stack = _stack()
    inputs = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    zero = stack.zero_state(1)
    together, end = stack(inputs, [1] * 6, zero)
    _, middle = stack(inputs[:3], [1] * 3, zero)
    second, second_end = stack(inputs[3:], [1] * 3, middle)
    torch.testing.assert_close(together[:, 3:], second)
    torch.testing.assert_close(end.cell, second_end.cell)


def test_a_lane_keeps_the_state_of_its_last_step() -> None:
    stack = _stack()
    inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    _, state = stack(inputs, [2, 1, 1], stack.zero_state(2))
    _, short = stack(inputs[1:2], [1], stack.zero_state(1))
    torch.testing.assert_close(state.hidden[:, 1], short.hidden[:, 0])


def test_gradients_reach_every_weight() -> None:
    stack = _stack()
    outputs, _ = _run(stack, [5, 4, 3])
    outputs.square().sum().backward()
    assert [name for name, parameter in stack.named_parameters() if not parameter.grad.abs().sum() > 0] == []
