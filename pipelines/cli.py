"""The `elmo` command: parse, call one function, print."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import click

from elmo_core import Bundle, ConfigError, ElmoError, load_bundle
from elmo_core.bundle import UNTRAINED_OPTION
from elmo_core.embedder import Device, InitialState, Precision
from elmo_core.legacy import allenai
from pipelines.bench import SAMPLE
from pipelines.bench import bench as run_bench
from pipelines.config import DEFAULT_MODEL, DEFAULT_SHARD_TOKENS, FeaturizeConfig
from pipelines.corpus import Format
from pipelines.manifest import Manifest, read_manifest
from pipelines.preflight import Plan, plan_run
from pipelines.reader import read_rejects, verify_output
from pipelines.schema import DType, Vectors
from pipelines.shards import Compression

if TYPE_CHECKING:
    from elmo_core.training.config import TrainingConfig
    from elmo_core.training.perplexity import Perplexity
    from pipelines.trainingrun import TrainingReport

SHOWN_REJECTS = 3
DONE, FAILED, WRONG_CALL, TOO_MANY_REJECTS = 0, 1, 2, 3

_logger = logging.getLogger("elmo")


class BeamArgsCommand(click.Command):
    """A command that keeps what stands after `--` for Beam."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut the arguments at the first `--`."""
        cut = args.index("--") if "--" in args else len(args)
        ctx.obj = args[cut + 1 :]
        return super().parse_args(ctx, args[:cut])


def _choice(values: object) -> click.Choice[str]:
    return click.Choice(get_args(values))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100})
@click.version_option(package_name="elmo-corpus")
@click.option("-v", "--verbose", is_flag=True, help="Log more, Beam's own messages and tracebacks included.")
def elmo(verbose: bool) -> None:
    """ELMo features for whole corpora: text in, per-layer token embeddings in Parquet out."""
    logging.basicConfig(
        level=logging.WARNING if verbose else logging.CRITICAL,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    for name in ("elmo", "elmo_core", "pipelines"):
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("apache_beam").setLevel(logging.INFO if verbose else logging.CRITICAL)


@elmo.command(cls=BeamArgsCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--output", required=True, metavar="URI", help="Folder for shards and manifest; new, empty or ours.")
@click.option("--model", default=DEFAULT_MODEL, metavar="BUNDLE", show_default="the shipped one", help="Bundle folder.")
@click.option("--format", type=_choice(Format), default="lines", help="One sentence a line, or raw prose.")
@click.option(
    "--tokenizer",
    metavar="T",
    show_default="whitespace for lines, spacy:en for text",
    help="whitespace, characters or spacy:LANG.",
)
@click.option("--layers", default="all", metavar="L", help="all, numbers such as 0,2, mean, or mix:FILE.")
@click.option("--dtype", type=_choice(DType), default="float16", help="Type of the stored values.")
@click.option("--vectors", type=_choice(Vectors), default="list", help="Lists of lists, or one binary value a sentence.")
@click.option("--compression", type=_choice(Compression), default="none", help="Of the vectors.")
@click.option("--precision", type=_choice(Precision), default="float32", help="Of the model's products.")
@click.option("--device", type=_choice(Device), default="auto", help="auto takes CUDA where there is one.")
@click.option("--initial-state", type=_choice(InitialState), default="zero", help="Where every sentence starts.")
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
        return _print(_plan_facts(plan), as_json)
    _logger.info("%d sources, about %d tokens, %d ranges", len(plan.sources), plan.n_tokens, plan.n_ranges)
    from pipelines.featurize import run  # Beam takes a second to import and logs as it does

    manifest = run(plan, beam_args)
    _print(_manifest_facts(options["output"], manifest), as_json)
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
        _print(_manifest_facts(uri, manifest), as_json=False)


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


@elmo.command()
@click.argument("src", type=click.Path(path_type=Path))
@click.argument("dst", type=click.Path(path_type=Path))
@click.option("--to", "kind", type=click.Choice(["bundle", "allenai"]), default="bundle", help="Format to write.")
@click.option("--dtype", type=_choice(DType), show_default="as in SRC", help="Of a bundle's weights; float16 rounds them.")
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
    click.echo(f"{dst}: {kind}, {bundle.config.n_layers} layers of width {bundle.config.width}, hash {bundle.hash}")


@elmo.command()
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--model", default=DEFAULT_MODEL, metavar="BUNDLE", show_default="the shipped one", help="Bundle folder.")
@click.option("--format", type=_choice(Format), default="text", help="One sentence a line, or raw prose.")
@click.option("--tokenizer", default="spacy:en", metavar="T", help="whitespace, characters or spacy:LANG.")
@click.option("--precision", type=_choice(Precision), default="float32", help="Of the model's products.")
@click.option("--device", type=_choice(Device), default="auto", help="auto takes CUDA where there is one.")
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
    _print({name: round(v, 3) if isinstance(v, float) else v for name, v in asdict(report).items()}, as_json)


def _text_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say how text is read, in the commands of training."""
    for option in (
        click.option("--encoding", default="utf-8", metavar="NAME", help="Encoding of the text."),
        click.option(
            "--tokenizer",
            metavar="T",
            show_default="whitespace for lines, spacy:en for text",
            help="whitespace, characters or spacy:LANG.",
        ),
        click.option("--format", type=_choice(Format), default="text", help="One sentence a line, or raw prose."),
    ):
        command = option(command)
    return command


@elmo.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="File to write, one word a line.")
@click.option("--max-words", type=click.IntRange(min=4), metavar="N", help="Most frequent words kept, special ones included.")
@click.option("--min-count", type=click.IntRange(min=1), default=1, metavar="N", help="Words seen less often are left out.")
@_text_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def vocab(inputs: tuple[str, ...], output: Path, max_words: int | None, min_count: int, as_json: bool, **text: Any) -> None:
    """Count the words of a corpus and write them, most frequent first, after </S>, <S> and <UNK>.

    \b
    Examples:
        elmo vocab corpus/*.txt --output vocabulary.txt --max-words 50000
        elmo vocab sentences.txt.gz --format lines --output vocabulary.txt --min-count 3
    """
    from pipelines.counting import count_vocabulary
    from pipelines.textunits import TextOptions

    counter = count_vocabulary(inputs, TextOptions(**text))
    vocabulary = counter.vocabulary(max_words=max_words, min_count=min_count)
    vocabulary.save(output)
    known = sum(counter.counts.get(token, 0) for token in vocabulary.tokens)
    facts = {
        "output": str(output),
        "words": len(vocabulary),
        "tokens": counter.n_tokens,
        "distinct_tokens": len(counter.counts),
        "unknown_share": round(1 - known / counter.n_tokens, 5),
        "counted_too_low_by_at_most": counter.max_error,
    }
    _print(facts, as_json)


def _run_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that pretraining and fine-tuning share."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON value."),
        click.option("--licence", metavar="TEXT", help="Licence of the corpus, for the model card."),
        click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in the output."),
        click.option("--device", type=_choice(Device), default="auto", help="auto takes CUDA where there is one."),
        click.option("--seed", type=int, metavar="N", help="Of weights, order, dropout and samples."),
        click.option("--precision", type=_choice(Precision), help="Of the products."),
        click.option("--learning-rate", type=float, metavar="R", help="Of AdamW, at its height."),
        click.option("--evaluate-every", type=int, metavar="N", help="Steps between looks at held-out text, and checkpoints."),
        click.option("--max-steps", type=int, metavar="N", help="Steps at most."),
        click.option("--epochs", type=int, metavar="N", help="Times that the text is read."),
        click.option("--vocab", "vocabulary", metavar="FILE", help="Vocabulary, from elmo vocab."),
        click.option(
            "--max-words", type=click.IntRange(min=4), default=50_000, metavar="N", help="Words, where they are counted."
        ),
        click.option("--heldout", multiple=True, metavar="GLOB", help="Text to measure on; a fiftieth of the input otherwise."),
        click.option("--output", required=True, metavar="BUNDLE", help="New local folder."),
    ):
        command = option(command)
    return command


TRAINING_OPTIONS = ("epochs", "max_steps", "evaluate_every", "learning_rate", "precision", "seed")


@elmo.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--config", default="small", metavar="C", help="small, original or a JSON file of sizes and values.")
@_run_options
@_text_options
def train(inputs: tuple[str, ...], config: str, as_json: bool, **options: Any) -> None:
    """Train a biLM on plain text, from random weights to a bundle.

    An INPUT that is named twice is read twice in each epoch. Under torchrun, each process takes its share of the text.

    \b
    Examples:
        elmo train corpus/*.txt --output my_elmo --epochs 2
        elmo train corpus/*.txt --output my_elmo --epochs 2 --resume
        torchrun --nproc-per-node 8 -m pipelines.cli train corpus/*.txt --output my_elmo --config original
    """
    from elmo_core.training.recipes import load_recipe
    from pipelines.textunits import TextOptions
    from pipelines.training import pretrain
    from pipelines.trainingrun import RunOptions

    recipe = load_recipe(config)
    training, run, text = _split_options(options, recipe.training)
    report = pretrain(RunOptions(inputs=inputs, **run), TextOptions(**text), replace(recipe, training=training))
    _print(_training_facts(report), as_json)


@elmo.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--model", default=DEFAULT_MODEL, metavar="BUNDLE", show_default="the shipped one", help="Where to start.")
@_run_options
@_text_options
def finetune(inputs: tuple[str, ...], model: str, as_json: bool, **options: Any) -> None:
    """Train a bundle further on a domain's plain text, one epoch unless told otherwise.

    \b
    Examples:
        elmo finetune domain/*.txt --model my_elmo --output my_domain_elmo
    """
    from elmo_core.training.config import FINETUNING
    from pipelines.textunits import TextOptions
    from pipelines.training import finetune as run_finetuning
    from pipelines.trainingrun import RunOptions

    training, run, text = _split_options(options, FINETUNING)
    report = run_finetuning(RunOptions(inputs=inputs, **run), TextOptions(**text), training, model)
    _print(_training_facts(report), as_json)


@elmo.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--model", default=DEFAULT_MODEL, metavar="BUNDLE", show_default="the shipped one", help="Bundle folder.")
@click.option("--initial-state", type=_choice(InitialState), default="zero", help="Where every sentence starts.")
@click.option("--device", type=_choice(Device), default="auto", help="auto takes CUDA where there is one.")
@_text_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def perplexity(inputs: tuple[str, ...], model: str, initial_state: str, device: Device, as_json: bool, **text: Any) -> None:
    """Measure how well a bundle predicts a text, each sentence alone; lower is better.

    \b
    Examples:
        elmo perplexity heldout/*.txt --model my_elmo
    """
    from pipelines.textunits import TextOptions
    from pipelines.training import perplexity as measure

    measured = measure(inputs, TextOptions(**text), model=model, device=device, warm=initial_state == "warm")
    _print({"model": model, "initial_state": initial_state, **_perplexity_facts(measured)}, as_json)


def main() -> NoReturn:
    """Run the command and turn errors into one line and an exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's request to stop is an interrupt
    sys.exit(run_command(lambda: elmo(standalone_mode=False)))


def run_command(command: Callable[[], object]) -> int:
    """Call a click command; the one place where errors become exit codes."""
    try:
        command()
        return DONE
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else FAILED
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return WRONG_CALL
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        click.echo("elmo: interrupted; finished shards are kept, run again to go on", err=True)
        return FAILED
    except ElmoError as error:
        _logger.debug("traceback:", exc_info=True)
        click.echo(f"elmo: {error}", err=True)
        return WRONG_CALL if isinstance(error, ConfigError) else FAILED
    except Exception as error:  # a fault of ours, or of a machine in a state nobody thought of
        _logger.debug("traceback:", exc_info=True)
        click.echo(f"elmo: {type(error).__name__}: {error}; elmo -v shows where", err=True)
        return FAILED


def _write_allenai(bundle: Bundle, dst: Path) -> None:
    lost = [
        name for name, part in (("warm state", bundle.warm_state), ("softmax and vocabulary", bundle.head)) if part is not None
    ]
    if lost:
        _logger.warning("AllenAI's format can't hold the %s; the copy is without", " nor the ".join(lost))
    options = bundle.options if bundle.trained else {**bundle.options, UNTRAINED_OPTION: True}
    allenai.write_pair(dst, bundle.config, options, bundle.tensors)


def _split_options(options: dict[str, Any], base: TrainingConfig) -> tuple[TrainingConfig, dict[str, Any], dict[str, Any]]:
    given = {name: options.pop(name) for name in TRAINING_OPTIONS}
    text = {name: options.pop(name) for name in ("format", "tokenizer", "encoding")}
    return replace(base, **{name: value for name, value in given.items() if value is not None}), options, text


def _training_facts(report: TrainingReport) -> dict[str, object]:
    before = {} if report.before is None else {"perplexity_before": round(report.before.average, 2)}
    return {
        "output": report.output,
        "softmax": report.softmax,
        "steps": report.steps,
        "best_step": report.best_step,
        "tokens": report.n_tokens,
        **before,
        "perplexity": round(report.zero.average, 2),
        "forward": round(report.zero.forward, 2),
        "backward": round(report.zero.backward, 2),
        "perplexity_from_warm_state": round(report.warm.average, 2),
        "heldout_tokens": report.zero.n_tokens,
        "unknown_share": round(report.zero.unknown_share, 5),
        "hash": report.hash,
    }


def _perplexity_facts(measured: Perplexity) -> dict[str, object]:
    return {
        "perplexity": round(measured.average, 3),
        "forward": round(measured.forward, 3),
        "backward": round(measured.backward, 3),
        "sentences": measured.n_sentences,
        "tokens": measured.n_tokens,
        "unknown_tokens": measured.n_unknown,
        "unknown_share": round(measured.unknown_share, 5),
    }


def _print(facts: dict[str, object], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {_show(value)}")


def _show(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value[:5]) + (f" and {len(value) - 5} more" if len(value) > 5 else "")
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


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


if __name__ == "__main__":
    main()
