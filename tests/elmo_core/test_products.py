"""Products laid out once equal torch's own, and the packed kind has a fallback."""

from __future__ import annotations

from typing import NoReturn

import pytest
import torch
import torch.nn.functional as F

from elmo_core import products
from elmo_core.products import PackedProduct, TorchProduct, can_pack, make_product

KINDS = [
    TorchProduct,
    pytest.param(PackedProduct, marks=pytest.mark.skipif(not can_pack(torch.float32), reason="no oneDNN here")),
]


@pytest.fixture(autouse=True)
def _forget_the_probe() -> None:
    can_pack.cache_clear()


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_rows", [1, 5, 64, 300])
def test_a_product_is_the_linear_function(kind: type[TorchProduct], n_rows: int) -> None:
    x, weight, bias, base = _random(n_rows, 24), _random(40, 24), _random(40), _random(n_rows, 40)
    product = kind(weight, bias)
    torch.testing.assert_close(product.multiply(x), F.linear(x, weight, bias), rtol=0, atol=1e-5)
    torch.testing.assert_close(product.add_to(base.clone(), x), base + F.linear(x, weight), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_without_bias_has_none(kind: type[TorchProduct]) -> None:
    x, weight = _random(3, 24), _random(40, 24)
    torch.testing.assert_close(kind(weight).multiply(x), F.linear(x, weight), rtol=0, atol=1e-5)


@pytest.mark.parametrize("error", [AttributeError, RuntimeError])
def test_an_operator_that_is_missing_has_a_fallback(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def refuse(*_: object) -> NoReturn:
        raise error("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")

    monkeypatch.setattr(products.PackedProduct, "multiply", refuse)
    assert isinstance(make_product(_random(8, 4)), TorchProduct)


def test_an_operator_that_is_wrong_has_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products.PackedProduct, "add_to", lambda self, base, x: base)
    assert isinstance(make_product(_random(8, 4)), TorchProduct)
