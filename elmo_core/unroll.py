"""One LSTM layer over packed rows with its gradient: a product a step, and the weights' gradients as one product each.

Automatic differentiation of a loop of steps multiplies for the weights' gradients at every step and keeps each step's
intermediate values as tensors of their own. Here a window's rows lie in a few buffers, a step works in place, and what
doesn't depend on the step before is multiplied for all rows at once, forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrolling:
    """How a layer is unrolled over packed rows.

    Args:
        active: Lanes at work at each step; never grows. Shape: (steps,).
        cell_clip: Limit of the cells; None for no limit.
        proj_clip: Limit of the projected outputs; None for no limit.
        precision: Of the products.
    """

    active: tuple[int, ...]
    cell_clip: float | None
    proj_clip: float | None
    precision: torch.dtype

    def steps(self) -> list[slice]:
        """The packed rows of each step."""
        rows, start = [], 0
        for n_lanes in self.active:
            rows.append(slice(start, start + n_lanes))
            start += n_lanes
        return rows


class UnrolledLstm(torch.autograd.Function):
    """The formula of `LstmLayer`, over all rows of a window; differentiable once.

    Takes, in this order: inputs (rows, D); keep (rows, 1), 0 where a row starts from zeros and 1 where it goes on, or
    None for 1 everywhere; hidden (B, D) and cell (B, H) before the window; the layer's input weight (4H, D), recurrent
    weight (4H, D), bias (4H,) with the forget gate's 1 included, and projection (D, H) or None; the `Unrolling`.

    Gives outputs (rows, D) and hidden and cell after each lane's last step.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  # torch's own type allows no None among what is saved
        inputs: Tensor,
        keep: Tensor | None,
        hidden: Tensor,
        cell: Tensor,
        input_weight: Tensor,
        recurrent_weight: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        unrolling: Unrolling,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run the steps forward, keeping what the gradient needs."""
        low = unrolling.precision
        n_rows, n_cells = len(inputs), cell.shape[1]
        x = inputs.to(low)
        # Gate j is doubled, which is exact: tanh(j) is 2 sigmoid(2j) - 1, and one sigmoid serves all gates.
        recurrent = _double_gate_j(recurrent_weight).to(low).t()
        gates = torch.addmm(_double_gate_j(bias).to(low), x, _double_gate_j(input_weight).to(low).t())
        project = None if projection is None else projection.to(low).t()
        hidden, cell = hidden.clone(), cell.clone()
        befores = x.new_empty(n_rows, hidden.shape[1])
        acts = gates if low == cell.dtype else cell.new_empty(gates.shape)
        cells_before, cells, tanhs = (cell.new_empty(n_rows, n_cells) for _ in range(3))
        inner = x.new_empty(n_rows, n_cells)
        outputs = hidden.new_empty(n_rows, hidden.shape[1])
        for rows in unrolling.steps():
            n_lanes = rows.stop - rows.start
            h, c = hidden[:n_lanes], cell[:n_lanes]
            if keep is not None:
                h.mul_(keep[rows])
                c.mul_(keep[rows])
            before = befores[rows].copy_(h)
            cells_before[rows] = c
            step = gates[rows].addmm_(before, recurrent)
            if acts is not gates:
                step = acts[rows].copy_(step)
            i, j, f, o = step.sigmoid_().chunk(4, dim=1)
            j.mul_(2).sub_(1)
            c.mul_(f).addcmul_(i, j)
            if unrolling.cell_clip is not None:
                c.clamp_(-unrolling.cell_clip, unrolling.cell_clip)
            cells[rows] = c
            tanh = torch.mul(c, 2, out=tanhs[rows]).sigmoid_().mul_(2).sub_(1)
            m = inner[rows].copy_(tanh * o)
            output = outputs[rows].copy_(m if project is None else m @ project)
            if project is not None and unrolling.proj_clip is not None:
                output.clamp_(-unrolling.proj_clip, unrolling.proj_clip)
            h.copy_(output)
        ctx.save_for_backward(
            x, keep, befores, acts, cells_before, cells, tanhs, inner, outputs, input_weight, recurrent_weight, projection
        )
        ctx.unrolling = unrolling
        ctx.inputs_dtype = inputs.dtype
        return outputs, hidden, cell

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        d_outputs: Tensor,
        d_hidden: Tensor,
        d_cell: Tensor,
    ) -> tuple[Tensor | None, ...]:
        """Run the steps backward, then multiply once for each weight."""
        x, keep, befores, acts, cells_before, cells, tanhs, inner, outputs, input_weight, recurrent_weight, projection = (
            ctx.saved_tensors
        )
        unrolling: Unrolling = ctx.unrolling
        low = unrolling.precision
        recurrent = recurrent_weight.to(low)
        project = None if projection is None else projection.to(low)
        dh, dc = d_hidden.clone(), d_cell.clone()
        d_gates = x.new_empty(acts.shape)
        d_bias = acts.new_zeros(acts.shape[1])
        d_projected = x.new_empty(outputs.shape) if project is not None else None
        cell_is_free = None if unrolling.cell_clip is None else cells.abs() < unrolling.cell_clip
        output_is_free = None
        if project is not None and unrolling.proj_clip is not None:
            output_is_free = outputs.abs() < unrolling.proj_clip
        for rows in reversed(unrolling.steps()):
            n_lanes = rows.stop - rows.start
            h, c = dh[:n_lanes], dc[:n_lanes]
            h.add_(d_outputs[rows])
            if project is not None and d_projected is not None:
                if output_is_free is not None:
                    h.mul_(output_is_free[rows])
                dm = (d_projected[rows].copy_(h) @ project).to(dc.dtype)
            else:
                dm = h
            i, j, f, o = acts[rows].chunk(4, dim=1)
            tanh = tanhs[rows]
            c.addcmul_(dm * o, 1 - tanh * tanh)
            if cell_is_free is not None:
                c.mul_(cell_is_free[rows])
            step = d_gates[rows] if low == acts.dtype else acts.new_empty(n_lanes, acts.shape[1])
            di, dj, df, do = step.chunk(4, dim=1)
            torch.mul(c * j, i - i * i, out=di)
            torch.mul(c * i, 1 - j * j, out=dj)
            torch.mul(c * cells_before[rows], f - f * f, out=df)
            torch.mul(dm * tanh, o - o * o, out=do)
            c.mul_(f)
            if low != acts.dtype:
                d_bias.add_(step.sum(dim=0))
                step = d_gates[rows].copy_(step)
            h.copy_(step @ recurrent)
            if keep is not None:
                h.mul_(keep[rows])
                c.mul_(keep[rows])
        wide = input_weight.dtype
        if low == acts.dtype:
            d_bias = d_gates.sum(dim=0)
        return (
            (d_gates @ input_weight.to(low)).to(ctx.inputs_dtype),
            None,
            dh,
            dc,
            (d_gates.t() @ x).to(wide),
            (d_gates.t() @ befores).to(wide),
            d_bias,
            None if d_projected is None else (d_projected.t() @ inner).to(wide),
            None,
        )


def cut_blocks(active: Sequence[int], max_rows: int) -> Iterator[tuple[int, ...]]:
    """Cut steps into blocks of at most `max_rows` packed rows, or one step."""
    block: list[int] = []
    for n_lanes in active:
        if block and sum(block) + n_lanes > max_rows:
            yield tuple(block)
            block = []
        block.append(n_lanes)
    if block:
        yield tuple(block)


def _double_gate_j(gates: Tensor) -> Tensor:
    doubled = gates.detach().clone()
    doubled.chunk(4)[1].mul_(2)
    return doubled
