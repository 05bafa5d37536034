"""The arithmetic between an LSTM's products: one pass over memory where torch.compile works, the same numbers elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

CellUpdate = Callable[[Tensor, Tensor, Tensor, float | None], None]
"""Takes gates, cell, hidden and the cell's clip; see `update_cell`."""

_logger = logging.getLogger(__name__)


def double_gate_j(gates: Tensor) -> Tensor:
    """Double gate j's part of a weight or bias, which is exact, as `update_cell` wants it. Shape: (4H, ...)."""
    i, j, f, o = gates.chunk(4)
    return torch.cat([i, 2 * j, f, o])


def update_cell(gates: Tensor, cell: Tensor, hidden: Tensor, cell_clip: float | None) -> None:
    """One step of an LSTM's cells (TensorFlow `LSTMCell`), in place.

    tanh(x) is taken as 2 sigmoid(2x) - 1, which torch computes faster; so gate j comes in doubled, and one sigmoid
    serves all four gates.

    Args:
        gates: Gates i, j, f, o before their sigmoids, j doubled; may be overwritten. Shape: (B, 4H).
        cell: The cells, float32; becomes the new ones. Shape: (B, H).
        hidden: Becomes o * tanh(cell), in its own type. Shape: (B, H).
        cell_clip: Limit of the cells; None for no limit.
    """
    i, j, f, o = gates.float().sigmoid_().chunk(4, dim=1)
    cell.mul_(f).add_(j.mul_(2).sub_(1).mul_(i))
    if cell_clip is not None:
        cell.clamp_(-cell_clip, cell_clip)
    hidden.copy_((cell * 2).sigmoid_().mul_(2).sub_(1).mul_(o))


def fuse_update_cell(device: torch.device) -> CellUpdate:
    """Compile `update_cell` into one pass over memory, which takes some seconds.

    Args:
        device: Where it will run.

    Returns:
        The compiled function, on CPUs equal to `update_cell` to the last bit; `update_cell` itself where torch.compile
        doesn't work, as on a machine without a C++ compiler.
    """
    fused: CellUpdate = torch.compile(_update_cell_at_once, dynamic=True, fullgraph=True)
    try:
        fused(torch.zeros(3, 64, device=device), torch.zeros(3, 16, device=device), torch.zeros(3, 16, device=device), 3.0)
    except Exception as error:  # whatever torch.compile meets: no compiler, a full disk, an unknown platform
        _logger.debug("torch.compile doesn't work here: %s", error)
        return update_cell
    return fused


def _update_cell_at_once(gates: Tensor, cell: Tensor, hidden: Tensor, cell_clip: float | None) -> None:
    i, j, f, o = torch.sigmoid(gates.float()).chunk(4, dim=1)
    new = cell * f + (j * 2 - 1) * i
    if cell_clip is not None:
        new = new.clamp(-cell_clip, cell_clip)
    cell.copy_(new)
    hidden.copy_((torch.sigmoid(new * 2) * 2 - 1) * o)
