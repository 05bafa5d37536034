"""The cell's arithmetic: TensorFlow's formula, the same bits fused or not."""

from __future__ import annotations

from typing import NoReturn

import pytest
import torch

from elmo_core import cell as module
from elmo_core.cell import CellUpdate, double_gate_j, fuse_update_cell, update_cell

CPU = torch.device("cpu")


def _update(update: CellUpdate, gates: torch.Tensor, cell: torch.Tensor, clip: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    cell, hidden = cell.clone(), torch.empty(cell.shape, dtype=gates.dtype)
    update(gates.clone(), cell, hidden, clip)
    return cell, hidden


def _example(n_lanes: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n_lanes)
    return (3 * torch.randn(n_lanes, 64, generator=generator)).to(dtype), torch.randn(n_lanes, 16, generator=generator)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_an_update_is_the_formula(clip: float | None) -> None:
    gates, cell = _example(5)
    i, j, f, o = gates.double().chunk(4, dim=1)
    expected = torch.sigmoid(f) * cell.double() + torch.sigmoid(i) * torch.tanh(j)
    expected = expected if clip is None else expected.clamp(-clip, clip)
    found, hidden = _update(update_cell, double_gate_j(gates.t()).t(), cell, clip)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(hidden.double(), torch.sigmoid(o) * torch.tanh(expected), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("clip", [None, 3.0])
def test_fused_and_unfused_give_the_same_bits(dtype: torch.dtype, clip: float | None) -> None:
    fused = fuse_update_cell(CPU)
    for n_lanes in (1, 2, 7, 33):
        for found, expected in zip(
            _update(fused, *_example(n_lanes, dtype), clip), _update(update_cell, *_example(n_lanes, dtype), clip), strict=True
        ):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_without_a_compiler_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_badly(*_: object, **__: object) -> CellUpdate:
        def fail(*_: object) -> NoReturn:
            raise RuntimeError("no C++ compiler")

        return fail

    monkeypatch.setattr(module.torch, "compile", compile_badly)
    assert fuse_update_cell(CPU) is update_cell
