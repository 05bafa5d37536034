"""`elmo featurize` from text to shards, as a share of the encoder's own speed on the same text.

    python benchmarks/pipeline.py --model BUNDLE [--text TEXT] [--precision float32] [--max-tokens 100000] [--runs 3]

Each run times the encoder alone on sentences in memory, then the command, and prints the ratio. The command's time is
what its manifest says: from the job's start to its end, model loading included, Python's start not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from text import add_options, read_lines

from elmo_core import Embedder, load_bundle
from elmo_core.embedder import plan_batches


def main() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, max_tokens=100_000)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    lines = read_lines(options.text, options.tokenizer, options.max_tokens)
    tokens = [tokens for _, sentences in lines for tokens in sentences]
    n_tokens = sum(map(len, tokens))
    bundle = load_bundle(Path(options.model))
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text("".join(line + "\n" for line, _ in lines), encoding="utf-8")
        for run in range(options.runs):
            encoder = n_tokens / _encoder_seconds(Embedder(bundle, precision=options.precision), tokens)
            command = n_tokens / _command_seconds(text, Path(folder, f"output{run}"), options)
            ratios.append(command / encoder)
            print(f"{n_tokens} tokens: encoder {encoder:.0f} tokens/s, featurize {command:.0f} tokens/s, ratio {ratios[-1]:.3f}")
    print(f"median ratio {statistics.median(ratios):.3f}")


def _encoder_seconds(embedder: Embedder, sentences: list[tuple[str, ...]]) -> float:
    began = time.perf_counter()
    batches = plan_batches([len(tokens) for tokens in sentences], embedder.batch_tokens)
    for _ in embedder.embed_batches(sentences[batch.start : batch.stop] for batch in batches):
        pass
    return time.perf_counter() - began


def _command_seconds(text: Path, output: Path, options: argparse.Namespace) -> float:
    command = [sys.executable, "-m", "pipelines.cli", "featurize", str(text), "--output", str(output), "--format", "text"]
    choices = ["--model", options.model, "--precision", options.precision, "--tokenizer", options.tokenizer, "--json"]
    facts = json.loads(subprocess.run([*command, *choices], check=True, capture_output=True, text=True).stdout)
    return float(facts["seconds"])


if __name__ == "__main__":
    main()
