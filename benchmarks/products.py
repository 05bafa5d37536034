"""oneDNN's packed product against torch's own at an LSTM's shapes: the rule in `elmo_core/products.py` rests on this.

    python benchmarks/products.py [--width 512] [--cell 4096] [--seconds 0.5]

GFLOP/s of the product with the state, in place in memory that is reused, six weights in turn, as layers and directions
take turns in the encoder.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from elmo_core.products import PackedProduct, TorchProduct, can_pack

N_WEIGHTS = 6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--cell", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    print(f"{'precision':10} {'rows':>5} {'torch':>7} {'oneDNN':>7}  ratio")
    for dtype in (torch.float32, torch.bfloat16):
        if not can_pack(dtype):
            print(f"{dtype}: this torch has no packed product for this CPU")
            continue
        for n_rows in (1, 8, 32, 64, 128, 256):
            torch_gflops, packed_gflops = (_gflops(kind, n_rows, dtype, options) for kind in (TorchProduct, PackedProduct))
            name = str(dtype).removeprefix("torch.")
            print(f"{name:10} {n_rows:5} {torch_gflops:7.0f} {packed_gflops:7.0f}  {packed_gflops / torch_gflops:.2f}")


@torch.inference_mode()
def _gflops(
    kind: type[PackedProduct] | type[TorchProduct], n_rows: int, dtype: torch.dtype, options: argparse.Namespace
) -> float:
    products = [kind((torch.randn(4 * options.cell, options.width) / 30).to(dtype)) for _ in range(N_WEIGHTS)]
    x = torch.randn(n_rows, options.width).to(dtype)
    base = torch.zeros(n_rows, 4 * options.cell, dtype=dtype)
    passes: list[float] = []
    while sum(passes) < options.seconds or len(passes) < 3:
        began = time.perf_counter()
        for product in products:
            product.add_to(base, x)
        passes.append(time.perf_counter() - began)
        base.zero_()
    return 2 * n_rows * options.width * 4 * options.cell * N_WEIGHTS / statistics.median(passes[1:]) / 1e9


if __name__ == "__main__":
    main()
