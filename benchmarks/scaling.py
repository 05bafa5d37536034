"""Cost against the length of the text: 10 and 100 times the text should cost 10 and 100 times as much, memory flat.

    python benchmarks/scaling.py --model BUNDLE [--text TEXT] [--max-tokens 20000] [--times 1 10 100]

The text is repeated with a number put in each sentence, so that no two sentences are the same. Every size runs in a
process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from text import add_options, read_sentences

from elmo_core import load_embedder
from elmo_core.embedder import plan_batches


def main() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, max_tokens=20_000)
    parser.add_argument("--times", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        return _measure(options)
    for times in options.times:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", str(times)], check=True)


def _measure(options: argparse.Namespace) -> None:
    sentences = read_sentences(options.text, options.tokenizer, options.max_tokens)
    embedder = load_embedder(Path(options.model), device="cpu")
    embedder.embed(sentences[:20])
    n_tokens = 0
    began = time.perf_counter()
    for number in range(options.one):
        numbered = [(str(number), *tokens[1:]) for tokens in sentences]
        batches = plan_batches([len(tokens) for tokens in numbered], embedder.batch_tokens)
        for vectors in embedder.embed_batches(numbered[batch.start : batch.stop] for batch in batches):
            n_tokens += int(vectors.offsets[-1])
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{options.one:4} x: {n_tokens:9} tokens, {seconds:8.2f} s, {1e6 * seconds / n_tokens:.1f} us/token, peak {peak:.0f} MB"
    )


if __name__ == "__main__":
    main()
