"""Bundles: convert them, measure their speed."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from elmo_core import Bundle, load_bundle
from elmo_core.bundle import UNTRAINED_OPTION
from elmo_core.embedder import Device, Precision
from elmo_core.legacy import allenai
from pipelines.bench import SAMPLE
from pipelines.bench import bench as run_bench
from pipelines.cli.group import choice, elmo, print_facts
from pipelines.config import DEFAULT_MODEL
from pipelines.corpus import Format
from pipelines.modelcard import CARD_FILE, render_card
from pipelines.schema import DType

_logger = logging.getLogger("elmo")


@elmo.command()
@click.argument("src", type=click.Path(path_type=Path))
@click.argument("dst", type=click.Path(path_type=Path))
@click.option("--to", "kind", type=click.Choice(["bundle", "allenai"]), default="bundle", help="Format to write.")
@click.option("--dtype", type=choice(DType), show_default="as in SRC", help="Of a bundle's weights; float16 rounds them.")
def convert(src: Path, dst: Path, kind: str, dtype: str | None) -> None:
    """Turn the model in folder SRC into another format, in the new folder DST.

    \b
    Examples:
        elmo convert downloaded_elmo elmo_bundle
        elmo convert elmo_bundle for_allennlp --to allenai
        elmo convert elmo_bundle half_as_large --dtype float16
    """
    bundle = load_bundle(src, with_head=True)
    if dtype == "float16":
        bundle = bundle.to_float16()
    elif dtype == "float32":
        bundle = replace(bundle, dtype="float32")
    if kind == "allenai":
        _write_allenai(bundle, dst)
    else:
        bundle.save(dst)
        if bundle.training:
            (dst / CARD_FILE).write_text(render_card(bundle), encoding="utf-8")
    click.echo(f"{dst}: {kind}, {bundle.config.n_layers} layers of width {bundle.config.width}, hash {bundle.hash}")


@elmo.command()
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--model", default=DEFAULT_MODEL, metavar="BUNDLE", show_default="the shipped one", help="Bundle folder.")
@click.option("--format", type=choice(Format), default="text", help="One sentence a line, or raw prose.")
@click.option("--tokenizer", default="spacy:en", metavar="T", help="whitespace, characters or spacy:LANG.")
@click.option("--precision", type=choice(Precision), default="float32", help="Of the model's products.")
@click.option("--device", type=choice(Device), default="auto", help="auto takes CUDA where there is one.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=20_000, metavar="N", help="Tokens read of the text.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def bench(inputs: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Measure tokens per second here, against the machine's own ceiling for the same products.

    INPUT is text as for `elmo featurize`; without one a shipped sample is read. Nothing else should run meanwhile.

    \b
    Examples:
        elmo bench
        elmo bench corpus.txt --model elmo_bundle --precision bfloat16 --json
    """
    report = run_bench(inputs or (SAMPLE,), **options)
    print_facts({name: round(v, 3) if isinstance(v, float) else v for name, v in asdict(report).items()}, as_json)


def _write_allenai(bundle: Bundle, dst: Path) -> None:
    lost = [
        name for name, part in (("warm state", bundle.warm_state), ("softmax and vocabulary", bundle.head)) if part is not None
    ]
    if lost:
        _logger.warning("AllenAI's format can't hold the %s; the copy is without", " nor the ".join(lost))
    options = bundle.options if bundle.trained else {**bundle.options, UNTRAINED_OPTION: True}
    allenai.write_pair(dst, bundle.config, options, bundle.tensors)
