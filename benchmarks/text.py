"""The beginning of a text as sentences of tokens, for all benchmarks."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from elmo_core import load_tokenizer
from pipelines.bench import SAMPLE


def add_options(parser: ArgumentParser, max_tokens: int) -> None:
    """Which text and model a benchmark takes."""
    parser.add_argument("--model", required=True, help="bundle folder")
    parser.add_argument("--text", type=Path, default=SAMPLE, help="raw prose; the shipped sample by default")
    parser.add_argument("--tokenizer", default="spacy:en")
    parser.add_argument("--max-tokens", type=int, default=max_tokens)


def read_lines(path: Path, tokenizer_name: str, max_tokens: int) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Lines from the beginning of a text with their sentences, until there are so many tokens."""
    tokenizer = load_tokenizer(tokenizer_name)
    lines: list[tuple[str, list[tuple[str, ...]]]] = []
    n_tokens = 0
    for line in Path(path).read_text(encoding="utf-8").split("\n"):
        lines.append((line, [sentence.tokens for sentence in tokenizer.tokenize(line, is_prose=True) if sentence.tokens]))
        n_tokens += sum(map(len, lines[-1][1]))
        if n_tokens >= max_tokens:
            break
    return lines


def read_sentences(path: Path, tokenizer_name: str, max_tokens: int) -> list[tuple[str, ...]]:
    """The sentences of `read_lines`."""
    return [tokens for _, sentences in read_lines(path, tokenizer_name, max_tokens) for tokens in sentences]
