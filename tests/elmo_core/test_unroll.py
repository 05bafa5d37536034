"""The gradient that is written by hand is that of the formula."""

from __future__ import annotations

import pytest
import torch

from elmo_core.unroll import UnrolledLstm, Unrolling, cut_blocks


@pytest.mark.parametrize("cell_clip", [None, 0.5])
@pytest.mark.parametrize("proj_clip", [None, 0.3])
@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("resets", [True, False])
def test_gradients_equal_numeric_ones(cell_clip: float | None, proj_clip: float | None, projected: bool, resets: bool) -> None:
    generator = torch.Generator().manual_seed(1)

    def values(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    width, cells = 3, 4 if projected else 3
    keep = (torch.rand(9, 1, generator=generator) > 0.4).double() if resets else None
    tensors = (
        values(9, width),
        keep,
        values(3, width),
        values(3, cells),
        values(4 * cells, width),
        values(4 * cells, width),
        values(4 * cells),
        values(width, cells) if projected else None,
    )
    unrolling = Unrolling(active=(3, 3, 2, 1), cell_clip=cell_clip, proj_clip=proj_clip, precision=torch.float64)
    assert torch.autograd.gradcheck(lambda *args: UnrolledLstm.apply(*args, unrolling), tensors)


def test_blocks_hold_every_step_once() -> None:
    assert list(cut_blocks([5, 5, 3, 2, 2, 1], 8)) == [(5,), (5, 3), (2, 2, 1)]
