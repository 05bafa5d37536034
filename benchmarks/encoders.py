"""Our encoder against two plain ones, and bfloat16 against float32, in one run.

    python benchmarks/encoders.py --model BUNDLE [--text TEXT] [--max-tokens 11000] [--rounds 3]

Every encoder goes from token strings to arrays. Ours starts each round with an empty table of token vectors (cold), except
where it says warm. A round times all of them in turn; the ratios are medians over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from baselines import PaddedEncoder, TorchLstmEncoder
from text import add_options, read_sentences

from elmo_core import Bundle, Embedder, load_bundle

Vectors = list[np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, max_tokens=11_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sentences = read_sentences(options.text, options.tokenizer, options.max_tokens)
    n_tokens = sum(map(len, sentences))
    print(f"{n_tokens} tokens, {len(sentences)} sentences, {len({t for s in sentences for t in s})} distinct tokens")
    bundle = load_bundle(Path(options.model))
    float32 = Embedder(bundle, device="cpu")
    bfloat16 = Embedder(bundle, device="cpu", precision="bfloat16")
    encoders: dict[str, Callable[[], Vectors]] = {
        "ours, float32, cold": lambda: Embedder.embed(float32, sentences),
        "ours, float32, warm": lambda: Embedder.embed(float32, sentences),
        "ours, bfloat16, cold": lambda: Embedder.embed(bfloat16, sentences),
        "ours, bfloat16, warm": lambda: Embedder.embed(bfloat16, sentences),
        "padded batches": lambda: PaddedEncoder(bundle).embed(sentences),
        "torch.nn.LSTM": lambda: TorchLstmEncoder(bundle).embed(sentences),
    }
    _check(float32, bfloat16, bundle, sentences[:50])
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(options.rounds):
        float32, bfloat16 = Embedder(bundle, device="cpu"), Embedder(bundle, device="cpu", precision="bfloat16")
        for name, encode in encoders.items():
            began = time.perf_counter()
            encode()
            seconds[name].append(time.perf_counter() - began)
    for name, values in seconds.items():
        print(f"{name:22} {n_tokens / statistics.median(values):7.0f} tokens/s")
    for name, other in (
        ("ours, float32, cold", "padded batches"),
        ("ours, float32, cold", "torch.nn.LSTM"),
        ("ours, bfloat16, cold", "ours, float32, cold"),
        ("ours, bfloat16, warm", "ours, float32, warm"),
    ):
        ratios = [b / a for a, b in zip(seconds[name], seconds[other], strict=True)]
        print(f"{name} / {other}: {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f})")


def _check(float32: Embedder, bfloat16: Embedder, bundle: Bundle, sentences: list[tuple[str, ...]]) -> None:
    ours = float32.embed(sentences)
    for name, other in (
        ("padded batches", PaddedEncoder(bundle)),
        ("torch.nn.LSTM, which has no clips", TorchLstmEncoder(bundle)),
    ):
        print(f"largest difference to {name}: {_difference(ours, other.embed(sentences)):.1e}")
    exact, near = (np.concatenate(vectors, axis=1)[1:] for vectors in (ours, bfloat16.embed(sentences)))
    cosine = (exact * near).sum(-1) / np.linalg.norm(exact, axis=-1) / np.linalg.norm(near, axis=-1)
    print(f"cosine of bfloat16 to float32, LSTM layers: mean {cosine.mean():.6f}, least {cosine.min():.6f}")


def _difference(one: Vectors, other: Vectors) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    main()
