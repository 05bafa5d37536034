"""Products with a weight that never changes: laid out once, multiplied many times.

oneDNN multiplies by a weight that it has laid out for itself. torch offers that only as private operators, so they are
tried once on a small example; where one is missing or wrong, torch's own product takes their place.
`benchmarks/products.py` compares the two.
"""

from __future__ import annotations

from functools import cache
from typing import Final, Protocol

import torch
from torch import Tensor

TYPICAL_ROWS: Final = 64
"""Rows for which oneDNN chooses its layout; other numbers of rows are as exact, and about as fast."""


class Product(Protocol):
    """x W^T for one weight W. Shape of W: (N, K)."""

    def multiply(self, x: Tensor) -> Tensor:
        """The product, and the bias where there is one. Shape: (rows, K) -> (rows, N)."""

    def add_to(self, base: Tensor, x: Tensor) -> Tensor:
        """`base` plus the product, without the bias; `base` may be overwritten. Shape: (rows, N), (rows, K) -> (rows, N)."""


class TorchProduct:
    """With torch's public operators; on every device.

    Args:
        weight: Shape: (N, K).
        bias: Shape: (N,).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight.t().contiguous()
        self._bias = bias

    def multiply(self, x: Tensor) -> Tensor:
        """See `Product`."""
        return torch.mm(x, self._weight) if self._bias is None else torch.addmm(self._bias, x, self._weight)

    def add_to(self, base: Tensor, x: Tensor) -> Tensor:
        """See `Product`; overwrites `base`."""
        return base.addmm_(x, self._weight)


class PackedProduct:
    """With oneDNN's own layout of the weight; on CPUs.

    Args:
        weight: Shape: (N, K).
        bias: Shape: (N,).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), TYPICAL_ROWS)
        self._bias = bias

    def multiply(self, x: Tensor) -> Tensor:
        """See `Product`."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return product

    def add_to(self, base: Tensor, x: Tensor) -> Tensor:
        """See `Product`; leaves `base` as it is."""
        total: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, base, self._weight, None, "add")
        return total


def make_product(weight: Tensor, bias: Tensor | None = None) -> Product:
    """Lay a weight out in the way that is fastest on its device.

    Args:
        weight: Shape: (N, K).
        bias: Of the weight's type. Shape: (N,).
    """
    if weight.device.type == "cpu" and can_pack(weight.dtype):
        return PackedProduct(weight, bias)
    return TorchProduct(weight, bias)


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this torch has oneDNN's packed product on this CPU, and it gives the numbers that torch gives."""
    with torch.inference_mode():
        x = torch.linspace(-1, 1, 4 * 32).view(4, 32).to(dtype)
        weight = torch.linspace(1, -1, 48 * 32).view(48, 32).to(dtype)
        base = torch.linspace(-1, 1, 4 * 48).view(4, 48).to(dtype)
        bias = base[0]
        try:
            packed = PackedProduct(weight, bias)
            found = torch.cat([packed.multiply(x), packed.add_to(base, x)])
        except (AttributeError, RuntimeError):  # an operator that isn't there, or not for this type on this CPU
            return False
        exact = x.double() @ weight.double().t()
        expected = torch.cat([exact + bias.double(), exact + base.double()])
        return bool((found.double() - expected).abs().max() <= 4 * torch.finfo(dtype).eps * expected.abs().max())
