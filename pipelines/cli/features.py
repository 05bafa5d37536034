"""Text to shards, and what an output holds: featurize, inspect, verify."""

from __future__ import annotations

import logging
import sys
from itertools import islice
from typing import Any, Final

import click

from elmo_core.embedder import Device, InitialState, Precision
from pipelines.cli.exits import DONE, FAILED, TOO_MANY_REJECTS
from pipelines.cli.group import choice, elmo, print_facts
from pipelines.config import DEFAULT_MODEL, DEFAULT_SHARD_TOKENS, FeaturizeConfig
from pipelines.corpus import Format
from pipelines.manifest import Manifest, read_manifest
from pipelines.preflight import Plan, plan_run
from pipelines.reader import read_rejects, verify_output
from pipelines.schema import DType, Vectors
from pipelines.shards import Compression

SHOWN_REJECTS: Final = 3

_logger = logging.getLogger("elmo")


class BeamArgsCommand(click.Command):
    """A command that keeps what stands after `--` for Beam."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut the arguments at the first `--`."""
        cut = args.index("--") if "--" in args else len(args)
        ctx.obj = args[cut + 1 :]
        return super().parse_args(ctx, args[:cut])


@elmo.command(cls=BeamArgsCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--output", required=True, metavar="URI", help="Folder for shards and manifest; new, empty or ours.")
@click.option("--model", default=DEFAULT_MODEL, metavar="BUNDLE", show_default="the shipped one", help="Bundle folder.")
@click.option("--format", type=choice(Format), default="lines", help="One sentence a line, or raw prose.")
@click.option(
    "--tokenizer",
    metavar="T",
    show_default="whitespace for lines, spacy:en for text",
    help="whitespace, characters or spacy:LANG.",
)
@click.option("--layers", default="all", metavar="L", help="all, numbers such as 0,2, mean, or mix:FILE.")
@click.option("--dtype", type=choice(DType), default="float16", help="Type of the stored values.")
@click.option("--vectors", type=choice(Vectors), default="list", help="Lists of lists, or one binary value a sentence.")
@click.option("--compression", type=choice(Compression), default="none", help="Of the vectors.")
@click.option("--precision", type=choice(Precision), default="float32", help="Of the model's products.")
@click.option("--device", type=choice(Device), default="auto", help="auto takes CUDA where there is one.")
@click.option("--initial-state", type=choice(InitialState), default="zero", help="Where every sentence starts.")
@click.option("--shard-tokens", type=int, default=DEFAULT_SHARD_TOKENS, metavar="N", help="Tokens of a shard, about.")
@click.option("--encoding", default="utf-8", metavar="NAME", help="Encoding of the text.")
@click.option("--max-rejects", type=int, default=0, metavar="N", help="Unreadable records allowed before exit code 3.")
@click.option("--dry-run", is_flag=True, help="Check everything, print the plan, compute nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
@click.pass_obj
def featurize(beam_args: list[str], /, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Turn text into shards of per-layer token embeddings.

    INPUT is a file or a glob, plain, gz, bz2, xz or zst, on any storage that fsspec knows. Options for Apache Beam
    follow after --.

    \b
    Examples:
        elmo featurize corpus/*.txt --output features
        elmo featurize novel.txt.gz --format text --output features --layers 0,2
        elmo featurize 's3://bucket/*.txt' --output s3://bucket/features -- --direct_running_mode=multi_processing
    """
    plan = plan_run(FeaturizeConfig(**options), runs_here=not any(argument.startswith("--runner") for argument in beam_args))
    if not plan.spec.bundle.trained:
        _logger.warning("the model is untrained: its vectors mean nothing; name a trained one with --model")
    if plan.n_left_out:
        _logger.warning(
            "the output's manifest names %d shards of other inputs or another recipe; the new manifest will not", plan.n_left_out
        )
    if dry_run:
        return print_facts(_plan_facts(plan), as_json)
    _logger.info("%d sources, about %d tokens, %d ranges", len(plan.sources), plan.n_tokens, plan.n_ranges)
    from pipelines.featurize import run  # Beam takes a second to import and logs as it does

    manifest = run(plan, beam_args)
    print_facts(_manifest_facts(options["output"], manifest), as_json)
    if manifest.has_too_many_rejects:
        _logger.error("records rejected: %d, --max-rejects is %d", manifest.totals["rejects"], manifest.max_rejects)
        for reject in islice(read_rejects(options["output"], manifest), SHOWN_REJECTS):
            _logger.error("%s, byte %d: %s (%s)", reject.source, reject.offset, reject.reason, reject.detail)
        _logger.error("rejects/ in the output has all of them")
        sys.exit(TOO_MANY_REJECTS)


@elmo.command()
@click.argument("uri")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as one JSON value.")
def inspect(uri: str, as_json: bool) -> None:
    """Show what an output holds, as its manifest says.

    \b
    Example:
        elmo inspect features
    """
    manifest = read_manifest(uri)
    if as_json:
        click.echo(manifest.to_json(), nl=False)
    else:
        print_facts(_manifest_facts(uri, manifest), as_json=False)


@elmo.command()
@click.argument("uri")
def verify(uri: str) -> None:
    """Read every shard again and hold it against the manifest; exit code 1 if one differs.

    \b
    Example:
        elmo verify features
    """
    differences = list(verify_output(uri))
    for difference in differences:
        click.echo(f"{difference.path}: {difference.problem}")
    totals = read_manifest(uri).totals
    click.echo(f"{totals['shards']} shards, {totals['rows']} rows, {totals['tokens']} tokens: {len(differences)} differ")
    sys.exit(FAILED if differences else DONE)


def _plan_facts(plan: Plan) -> dict[str, object]:
    return {
        "sources": len(plan.sources),
        "text_bytes": plan.n_text_bytes,
        "ranges": plan.n_ranges,
        "tokens_about": plan.n_tokens,
        "bytes_about": plan.n_bytes,
        "output": plan.spec.output,
        "columns": plan.spec.recipe.layers.columns,
        "model": _model_facts(plan.spec.bundle.uri, plan.spec.bundle.trained),
        "fingerprint": plan.spec.recipe.fingerprint,
    }


def _manifest_facts(uri: str, manifest: Manifest) -> dict[str, object]:
    model_seconds = sum(shard.model_seconds for shard in manifest.shards)
    computed = sum(shard.n_tokens for shard in manifest.shards if shard.model_seconds)
    reasons: dict[str, int] = {}
    for shard in manifest.shards:
        for reason, count in shard.reject_reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return {
        "output": uri,
        "model": _model_facts(manifest.bundle.uri, manifest.bundle.trained),
        **manifest.totals,
        "reject_reasons": reasons,
        "columns": manifest.layout.columns,
        "vectors": f"{manifest.layout.dtype} {manifest.layout.vectors} of width {manifest.layout.width}",
        "tokenizer": manifest.recipe["tokenizer"],
        "files": manifest.sources,
        "created": manifest.created,
        "seconds": manifest.seconds,
        "model_tokens_per_second": round(computed / model_seconds) if model_seconds else "nothing was computed",
        "versions": dict(manifest.versions),
        "fingerprint": manifest.fingerprint,
    }


def _model_facts(uri: str, trained: bool) -> str:
    return uri if trained else f"{uri} (untrained)"
