"""How fast a model embeds here, and how fast its products could be: the machine's own ceiling at the same shapes."""

from __future__ import annotations

import math
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from elmo_core.config import LstmConfig
from elmo_core.embedder import Embedder, plan_batches
from elmo_core.products import PackedProduct, TorchProduct, can_pack
from elmo_core.recurrence import BLOCK_ROWS

N_PASSES: Final = 3
_SECONDS: Final = 0.5
"""How long each product is repeated for a measurement of the ceiling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedReport:
    """What `measure_speed` saw.

    Args:
        n_sentences: Of the text.
        n_tokens: Of the text.
        device: Where.
        precision: Of the LSTMs' products.
        n_threads: torch's, on CPUs.
        products: `oneDNN` or `torch`, whichever multiplies here.
        cold_tokens_per_second: First pass, every distinct token new.
        tokens_per_second: Median of passes with all token vectors known: the LSTMs and the copies around them.
        computed_gflops: Operations of the LSTMs' products in a second of such a pass.
        gflops: The same, were the first layer's products with frequent tokens computed again at each of them.
        ceiling_gflops: Those products alone, in the same proportions, each at its best of both kinds.
        ratio: `gflops` as a share of the ceiling.
        mean_lanes: Rows of a step.
        lane_fill: Share of lanes times steps at which a lane was at work.
        hit_rate: Share of distinct tokens, batch by batch, whose vectors were known in the first pass.
        peak_bytes: The process's peak memory; on CUDA the device's.
    """

    n_sentences: int
    n_tokens: int
    device: str
    precision: str
    n_threads: int
    products: str
    cold_tokens_per_second: float
    tokens_per_second: float
    computed_gflops: float
    gflops: float
    ceiling_gflops: float
    ratio: float
    mean_lanes: float
    lane_fill: float
    hit_rate: float
    peak_bytes: int


def measure_speed(embedder: Embedder, sentences: Sequence[Sequence[str]]) -> SpeedReport:
    """Embed a text several times, and measure the ceiling before and after.

    Args:
        embedder: A new one: its first pass is the cold one.
        sentences: Token lists, one token at least.
    """
    embedder.embed([[str(number) for number in range(64)]] * 8)  # libraries set themselves up at a first call
    config, dtype, device = embedder.config.lstm, embedder.precision, embedder.device
    before = embedder.counts.copy()
    cold = _seconds(lambda: _embed(embedder, sentences))
    counts = embedder.counts.since(before)
    mean_lanes = counts.n_rows / counts.n_steps
    ceiling = measure_ceiling(config, dtype, device, round(mean_lanes))
    warm = statistics.median(_seconds(lambda: _embed(embedder, sentences)) for _ in range(N_PASSES))
    ceiling = max(ceiling, measure_ceiling(config, dtype, device, round(mean_lanes)))
    n_flops = counts.n_rows * 2 * config.n_layers * (config.input_flops + config.step_flops)
    return SpeedReport(
        n_sentences=len(sentences),
        n_tokens=counts.n_tokens,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        precision=str(dtype).removeprefix("torch."),
        n_threads=torch.get_num_threads(),
        products="oneDNN" if device.type == "cpu" and can_pack(dtype) else "torch",
        cold_tokens_per_second=counts.n_tokens / cold,
        tokens_per_second=counts.n_tokens / warm,
        computed_gflops=counts.n_flops / warm / 1e9,
        gflops=n_flops / warm / 1e9,
        ceiling_gflops=ceiling,
        ratio=n_flops / warm / 1e9 / ceiling,
        mean_lanes=mean_lanes,
        lane_fill=counts.n_rows / counts.n_lane_steps,
        hit_rate=counts.n_hits / counts.n_lookups,
        peak_bytes=_peak_bytes(device),
    )


@torch.inference_mode()
def measure_ceiling(config: LstmConfig, dtype: torch.dtype, device: torch.device, n_lanes: int) -> float:
    """GFLOP/s of an LSTM layer's products on their own, each with the faster of oneDNN's and torch's operators.

    Args:
        config: Sizes.
        dtype: Of weights and products.
        device: Where.
        n_lanes: Rows of a step.
    """
    gates, width, cell = 4 * config.cell_size, config.projection_size, config.cell_size
    shapes = [(BLOCK_ROWS, width, gates), (n_lanes, width, gates)]
    if config.has_projection:
        shapes.append((n_lanes, cell, width))
    n_operations = seconds = 0.0
    for n_rows, n_in, n_out in shapes:
        n_operations += 2 * n_in * n_out
        seconds += min(_product_seconds(kind, n_rows, n_in, n_out, dtype, device) for kind in _kinds(dtype, device)) / n_rows
    return n_operations / seconds / 1e9


def _kinds(dtype: torch.dtype, device: torch.device) -> list[type[PackedProduct] | type[TorchProduct]]:
    return [PackedProduct, TorchProduct] if device.type == "cpu" and can_pack(dtype) else [TorchProduct]


def _product_seconds(
    kind: type[PackedProduct] | type[TorchProduct], n_rows: int, n_in: int, n_out: int, dtype: torch.dtype, device: torch.device
) -> float:
    product = kind(torch.randn(n_out, n_in, dtype=dtype, device=device) / math.sqrt(n_in))
    x = torch.randn(n_rows, n_in, dtype=dtype, device=device)
    base = torch.zeros(n_rows, n_out, dtype=dtype, device=device)

    def multiply() -> None:
        product.add_to(base, x)
        if device.type == "cuda":
            torch.cuda.synchronize()

    multiply()
    passes = [_seconds(multiply)]
    while sum(passes) < _SECONDS:
        passes.append(_seconds(multiply))
    return statistics.median(passes)


def _embed(embedder: Embedder, sentences: Sequence[Sequence[str]]) -> None:
    batches = plan_batches([len(tokens) for tokens in sentences], embedder.batch_tokens)
    for _ in embedder.embed_batches(sentences[batch.start : batch.stop] for batch in batches):
        pass


def _seconds(function: Callable[[], None]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
