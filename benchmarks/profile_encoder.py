"""Where the encoder's time goes, operator by operator.

python benchmarks/profile_encoder.py --model BUNDLE [--text TEXT] [--precision float32]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from text import add_options, read_sentences
from torch.profiler import ProfilerActivity, profile

from elmo_core import load_embedder


def main() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, max_tokens=11_000)
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args()
    sentences = read_sentences(options.text, options.tokenizer, options.max_tokens)
    embedder = load_embedder(Path(options.model), device="cpu", precision=options.precision)
    embedder.embed([["warm", "up"]] * 4)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        embedder.embed(sentences)
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=15, max_name_column_width=40))


if __name__ == "__main__":
    main()
