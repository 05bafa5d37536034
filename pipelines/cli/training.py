"""Language models: vocab, train, finetune, perplexity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmo_core.embedder import Device, InitialState, Precision
from pipelines.cli.group import choice, elmo, print_facts
from pipelines.config import DEFAULT_MODEL
from pipelines.corpus import Format

if TYPE_CHECKING:
    from elmo_core.training.config import TrainingConfig
    from elmo_core.training.perplexity import Perplexity
    from pipelines.trainingrun import TrainingReport

TRAINING_OPTIONS = ("epochs", "max_steps", "evaluate_every", "learning_rate", "precision", "seed")


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
        click.option("--format", type=choice(Format), default="text", help="One sentence a line, or raw prose."),
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
        elmo vocab 'corpus/*.txt' --output vocabulary.txt --max-words 50000
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
        "unknown_share": round(max(0.0, 1 - known / counter.n_tokens), 5),
        "counted_too_high_by_at_most": counter.max_error,
    }
    print_facts(facts, as_json)


def _run_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that pretraining and fine-tuning share."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON value."),
        click.option("--licence", metavar="TEXT", help="Licence of the corpus, for the model card."),
        click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in the output."),
        click.option("--device", type=choice(Device), default="auto", help="auto takes CUDA where there is one."),
        click.option("--seed", type=int, metavar="N", help="Of weights, order, dropout and samples."),
        click.option("--precision", type=choice(Precision), help="Of the products."),
        click.option("--learning-rate", type=float, metavar="R", help="Of AdamW, at its height."),
        click.option("--evaluate-every", type=int, metavar="N", help="Steps between looks at held-out text, and checkpoints."),
        click.option("--max-steps", type=int, metavar="N", help="Steps at most."),
        click.option("--epochs", type=int, metavar="N", help="Times that the text is read."),
        click.option("--vocab", "vocabulary", metavar="FILE", help="Vocabulary, from elmo vocab."),
        click.option(
            "--max-words", type=click.IntRange(min=4), default=50_000, metavar="N", help="Words, where they are counted."
        ),
        click.option(
            "--heldout",
            multiple=True,
            metavar="GLOB",
            help="Text to measure on, a glob in quotes; a fiftieth of the input otherwise.",
        ),
        click.option("--output", required=True, metavar="BUNDLE", help="New local folder."),
    ):
        command = option(command)
    return command


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
        elmo train 'corpus/*.txt' --output my_elmo --epochs 2
        elmo train 'corpus/*.txt' --output my_elmo --epochs 2 --resume
        torchrun --nproc-per-node 8 -m pipelines.cli train 'corpus/*.txt' --output my_elmo --config original
    """
    from elmo_core.training.recipes import load_recipe
    from pipelines.textunits import TextOptions
    from pipelines.training import pretrain
    from pipelines.trainingrun import RunOptions

    recipe = load_recipe(config)
    training, run, text = _split_options(options, recipe.training)
    report = pretrain(RunOptions(inputs=inputs, **run), TextOptions(**text), replace(recipe, training=training))
    if report is not None:
        print_facts(_training_facts(report), as_json)


@elmo.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--model", default=DEFAULT_MODEL, metavar="BUNDLE", show_default="the shipped one", help="Where to start.")
@_run_options
@_text_options
def finetune(inputs: tuple[str, ...], model: str, as_json: bool, **options: Any) -> None:
    """Train a bundle further on a domain's plain text, one epoch unless told otherwise.

    \b
    Examples:
        elmo finetune 'domain/*.txt' --model my_elmo --output my_domain_elmo
    """
    from elmo_core.training.config import FINETUNING
    from pipelines.textunits import TextOptions
    from pipelines.training import finetune as run_finetuning
    from pipelines.trainingrun import RunOptions

    training, run, text = _split_options(options, FINETUNING)
    report = run_finetuning(RunOptions(inputs=inputs, **run), TextOptions(**text), training, model)
    if report is not None:
        print_facts(_training_facts(report), as_json)


@elmo.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--model", default=DEFAULT_MODEL, metavar="BUNDLE", show_default="the shipped one", help="Bundle folder.")
@click.option("--initial-state", type=choice(InitialState), default="zero", help="Where every sentence starts.")
@click.option("--device", type=choice(Device), default="auto", help="auto takes CUDA where there is one.")
@_text_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def perplexity(inputs: tuple[str, ...], model: str, initial_state: str, device: Device, as_json: bool, **text: Any) -> None:
    """Measure how well a bundle predicts a text, each sentence alone; lower is better.

    \b
    Examples:
        elmo perplexity 'heldout/*.txt' --model my_elmo
    """
    from pipelines.textunits import TextOptions
    from pipelines.training import perplexity as measure

    measured = measure(inputs, TextOptions(**text), model=model, device=device, warm=initial_state == "warm")
    print_facts({"model": model, "initial_state": initial_state, **_perplexity_facts(measured)}, as_json)


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
