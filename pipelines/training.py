"""Corpora to trained bundles: what is checked first, what is read, what is kept."""

from __future__ import annotations

import hashlib
import logging
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch
from lightning_fabric import Fabric
from torch import nn

from elmo_core import BiLMState, Bundle, BundleError, ConfigError, CorpusError, initialize_bilm, load_bundle, load_tokenizer
from elmo_core.bundle import Head
from elmo_core.embedder import Device, resolve_device
from elmo_core.training.checkpoints import Checkpoints
from elmo_core.training.config import TrainingConfig
from elmo_core.training.loop import Evaluation, StepReport, Trainer
from elmo_core.training.model import LanguageModel
from elmo_core.training.objective import Softmax
from elmo_core.training.perplexity import WARM_LANES, WARM_SENTENCES, Perplexity, make_warm_state, measure_perplexity
from elmo_core.training.recipes import TrainingRecipe
from elmo_core.training.windows import Windows
from elmo_core.vocabulary import TokenCounter, Vocabulary, read_vocabulary
from pipelines import storage
from pipelines.corpus import Format, check_encoding
from pipelines.curves import Curves
from pipelines.passages import SourcePassages, TextSource, TextUnit, digest_units, plan_units, split_heldout
from pipelines.progress import ProgressView, show_seconds

TRAINING_FOLDER: Final = "training"
"""Beside the bundle's own files: checkpoints, curves, vocabulary of the run."""
HELDOUT_EVERY: Final = 50
"""One range of so many is held out where no held-out text is named."""
DEFAULT_MAX_WORDS: Final = 50_000
LOG_STEPS: Final = 20
TRIAL_WINDOWS: Final = 3

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How text is read. Each field is an option of the training commands.

    Args:
        format: `lines` or `text`.
        tokenizer: None takes `whitespace` for lines, `spacy:en` for text.
        encoding: Of the text.
    """

    format: Format = "text"
    tokenizer: str | None = None
    encoding: str = "utf-8"

    def source(self) -> TextSource:
        """The reader that they describe.

        Raises:
            ConfigError: One is wrong.
        """
        name = self.tokenizer or ("spacy:en" if self.format == "text" else "whitespace")
        return TextSource(self.format, load_tokenizer(name), check_encoding(self.encoding))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a training run reads and writes.

    Args:
        inputs: Files or globs; one named twice is read twice an epoch.
        output: Local folder of the bundle.
        heldout: Files or globs to measure perplexity on; empty to hold some of the inputs out.
        vocabulary: File; None counts the inputs.
        max_words: Of a vocabulary that is counted.
        device: `auto`, `cpu` or `cuda`.
        resume: Whether to go on from the output's newest checkpoint.
        licence: Of the corpus, for the model card.
    """

    inputs: tuple[str, ...]
    output: str
    heldout: tuple[str, ...] = ()
    vocabulary: str | None = None
    max_words: int = DEFAULT_MAX_WORDS
    device: Device = "auto"
    resume: bool = False
    licence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport:
    """How a run ended.

    Args:
        output: Folder of the bundle.
        steps: Windows read.
        best_step: After which the kept weights were measured best.
        n_tokens: Predictions in each direction.
        before: Perplexity of the starting weights on the held-out text, where it can be compared.
        zero: Of the bundle, each sentence from zeros.
        warm: Of the bundle, each sentence from its warm state.
        softmax: `new`, `kept`, `extended` or `made anew`.
        hash: Of the bundle.
    """

    output: str
    steps: int
    best_step: int
    n_tokens: int
    before: Perplexity | None
    zero: Perplexity
    warm: Perplexity
    softmax: str
    hash: str


def count_vocabulary(inputs: Sequence[str], text: TextOptions) -> TokenCounter:
    """Count the tokens of a corpus, each file once.

    Raises:
        ConfigError: An option or an input is wrong.
        CorpusError: A source can't be read, or there is no token in any.
    """
    source = text.source()
    counter = TokenCounter()
    units = [unit for unit in plan_units(inputs) if unit.repeat == 0]
    n_bytes, n_done = sum(unit.n_bytes for unit in units), 0
    with ProgressView("counting") as view:
        for unit in units:
            for sentences in source.sentences(unit.text_range):
                for sentence in sentences:
                    counter.add(sentence)
            n_done += unit.n_bytes
            view.show(n_done / n_bytes, f"{counter.n_tokens:,} tokens, {len(counter.counts):,} distinct")
    if not counter.n_tokens:
        raise CorpusError("holds no token", ", ".join(inputs))
    return counter


def pretrain(options: RunOptions, text: TextOptions, recipe: TrainingRecipe) -> TrainingReport:
    """Train a biLM from random weights (Peters et al. 2018, section 3.1).

    Raises:
        ConfigError: An option, an input or the output is wrong, or a checkpoint is of another configuration.
        CorpusError: A source can't be read.
        BundleError: The vocabulary is wrong, training diverges, or the output can't be written.
    """
    run = _Run(options, text, recipe.training)
    vocabulary = run.vocabulary()
    bilm = initialize_bilm(recipe.bilm, recipe.training.seed)
    softmax = Softmax(len(vocabulary), recipe.bilm.lstm.projection_size)
    softmax.initialize(recipe.training.seed)
    facts: dict[str, object] = {"softmax": "new"}
    return run.train(LanguageModel(bilm, softmax, **run.objective(vocabulary)), vocabulary, facts, before=None)


def finetune(options: RunOptions, text: TextOptions, training: TrainingConfig, model: str) -> TrainingReport:
    """Train a bundle further on a domain's text (Peters et al. 2018, section 3.4).

    The softmax is kept where the vocabulary is the same, extended by new words where some differ, and made anew where
    the bundle has none; it learns alone at first then.

    Raises:
        ConfigError: As for `pretrain`.
        CorpusError: As for `pretrain`.
        BundleError: As for `pretrain`, or the model can't be used.
    """
    run = _Run(options, text, training)
    with storage.local_folder(model) as folder:
        bundle = load_bundle(folder, with_head=True)
    own = bundle.head.vocabulary if bundle.head is not None and options.vocabulary is None else None
    vocabulary = run.vocabulary(own)
    softmax = Softmax(len(vocabulary), bundle.config.lstm.projection_size)
    softmax.initialize(training.seed)
    kind = "made anew" if bundle.head is None else _copy_rows(softmax, vocabulary, bundle.head)
    _logger.info("softmax of %s words: %s", f"{len(vocabulary):,}", kind)
    bilm = bundle.build_bilm().requires_grad_(True)
    language_model = LanguageModel(bilm, softmax, **run.objective(vocabulary))
    before = run.measure(language_model, vocabulary) if kind == "kept" else None
    if before is not None:
        _logger.info("held-out perplexity before: %s", show_perplexity(before))
    facts: dict[str, object] = {"softmax": kind, "finetuned_from": {"hash": bundle.hash, **dict(bundle.training)}}
    return run.train(language_model, vocabulary, facts, before=before, frozen=kind == "made anew")


def perplexity(inputs: Sequence[str], text: TextOptions, *, model: str, device: Device, warm: bool) -> Perplexity:
    """Measure how well a bundle predicts text.

    Raises:
        ConfigError: An option or an input is wrong.
        CorpusError: A source can't be read, or there is no token in any.
        BundleError: The model can't be used, or has no softmax.
    """
    source, units = text.source(), [unit for unit in plan_units(inputs) if unit.repeat == 0]
    with storage.local_folder(model) as folder:
        bundle = load_bundle(folder, with_head=True)
    if bundle.head is None:
        raise BundleError("has no softmax, so it predicts nothing; elmo finetune makes one", model)
    if warm and bundle.warm_state is None:
        raise ConfigError("has no warm state; take --initial-state zero", model)
    place = resolve_device(device)
    sentences = (s for unit in units for found in source.sentences(unit.text_range) for s in found)
    start = bundle.warm_state.to(place) if warm and bundle.warm_state is not None else None
    measured = measure_perplexity(
        bundle.build_bilm().to(place), _softmax(bundle.head).to(place), bundle.head.vocabulary, sentences, start=start
    )
    if not measured.n_tokens:
        raise CorpusError("holds no token", ", ".join(inputs))
    return measured


def show_perplexity(measured: Perplexity) -> str:
    """The figures in a line."""
    return (
        f"{measured.average:.2f} (forward {measured.forward:.2f}, backward {measured.backward:.2f}) on "
        f"{measured.n_tokens:,} tokens, {measured.unknown_share:.2%} unknown"
    )


class _Run:
    """One run: its text, its device, its folder."""

    def __init__(self, options: RunOptions, text: TextOptions, config: TrainingConfig) -> None:
        self._options, self._text, self._config = options, text, config
        self._source = text.source()
        self._output = _local_output(options)
        self._folder = self._output / TRAINING_FOLDER
        units = plan_units(options.inputs)
        if options.heldout:
            self._units, heldout = units, plan_units(options.heldout)
        else:
            self._units, heldout = split_heldout(units, HELDOUT_EVERY)
        self._fabric = _launch(resolve_device(options.device), config)
        self._heldout = _sample_sentences(heldout, self._source, config.heldout_tokens)
        if not self._heldout:
            raise CorpusError("the held-out text holds no token", ", ".join(options.heldout) or None)

    @property
    def _is_first(self) -> bool:
        return self._fabric.is_global_zero

    def vocabulary(self, own: Vocabulary | None = None) -> Vocabulary:
        """The named vocabulary, or the model's own, or the one that an earlier try counted, or one counted now."""
        if own is not None:
            return own
        if self._options.vocabulary is not None:
            return read_vocabulary(Path(self._options.vocabulary))
        path = self._folder / "vocabulary.txt"
        if self._is_first and not (self._options.resume and path.exists()):
            counter = count_vocabulary([unit.text_range.source for unit in self._units], self._text)
            counted = counter.vocabulary(max_words=self._options.max_words)
            path.parent.mkdir(parents=True, exist_ok=True)
            counted.save(path)
        self._fabric.barrier()
        return read_vocabulary(path)

    def objective(self, vocabulary: Vocabulary) -> dict[str, Any]:
        """How the softmax is trained."""
        return {"n_negatives": self._config.negatives_for(len(vocabulary)), "dropout": self._config.dropout}

    def measure(self, model: LanguageModel, vocabulary: Vocabulary, start: BiLMState | None = None) -> Perplexity:
        """Perplexity on the held-out text."""
        return measure_perplexity(model.bilm, model.softmax, vocabulary, self._heldout, start=start)

    def train(
        self,
        model: LanguageModel,
        vocabulary: Vocabulary,
        facts: dict[str, object],
        *,
        before: Perplexity | None,
        frozen: bool = False,
    ) -> TrainingReport:
        """Train, and save the best weights as a bundle with its warm state."""
        config = self._config
        checkpoints = Checkpoints(self._folder / "checkpoints", rank=self._fabric.global_rank)
        if not self._options.resume and checkpoints.latest() is not None:
            raise ConfigError(
                "holds checkpoints of an earlier run; give --resume to go on, or name a new --output", str(self._output)
            )
        self._log_estimate(model, vocabulary)
        trainer = Trainer(
            self._fabric,
            model,
            self._windows(model, vocabulary),
            config,
            checkpoints=checkpoints,
            recipe=self._recipe(model, vocabulary),
            evaluate=lambda trained: self.measure(trained, vocabulary),
            frozen=frozen,
        )
        step = trainer.resume() if self._options.resume else None
        if step is not None:
            _logger.info("going on after step %d", step)
        self._watch(trainer, step or 0)
        report = None
        if self._is_first:
            report = self._save(model, vocabulary, checkpoints, trainer, facts, before)
        self._fabric.barrier()
        if report is None:
            raise SystemExit(0)  # the first process alone reports
        return report

    def _watch(self, trainer: Trainer, step: int) -> None:
        if not self._is_first:
            return trainer.run(lambda _: None, lambda _: None)
        curves = Curves(self._folder, step=step)
        meter = _Meter(trainer, curves)
        with ProgressView("training", start=meter.share) as view:
            trainer.run(lambda report: meter.step(report, view), meter.look)
        curves.close()

    def _save(
        self,
        model: LanguageModel,
        vocabulary: Vocabulary,
        checkpoints: Checkpoints,
        trainer: Trainer,
        facts: dict[str, object],
        before: Perplexity | None,
    ) -> TrainingReport:
        best = checkpoints.load_best()
        model.load_state_dict(best["model"])
        model.eval()
        first = sorted(self._units, key=lambda unit: (unit.text_range.source, unit.text_range.start))
        warm = make_warm_state(model.bilm, _first_sentences(first, self._source, WARM_LANES * WARM_SENTENCES))
        zero_start, warm_start = self.measure(model, vocabulary), self.measure(model, vocabulary, warm)
        model.cpu()
        report = TrainingReport(
            output=str(self._output),
            steps=trainer.step,
            best_step=best["step"],
            n_tokens=trainer.n_targets,
            before=before,
            zero=zero_start,
            warm=warm_start,
            softmax=str(facts["softmax"]),
            hash="",
        )
        bundle = Bundle(
            config=model.bilm.config,
            tensors={name: tensor.detach() for name, tensor in model.bilm.state_dict().items()},
            warm_state=warm.to(torch.device("cpu")),
            head=Head(weight=model.softmax.weight.detach(), bias=model.softmax.bias.detach(), vocabulary=vocabulary),
            training={**facts, **self._card(report, model)},
        )
        bundle.save(self._output)
        return replace(report, hash=bundle.hash)

    def _windows(self, model: LanguageModel, vocabulary: Vocabulary) -> Windows:
        config, fabric = self._config, self._fabric
        passages = SourcePassages(
            self._units,
            self._source,
            epochs=config.epochs,
            seed=config.seed,
            rank=fabric.global_rank,
            n_ranks=fabric.world_size,
        )
        return Windows(
            passages,
            vocabulary,
            n_lanes=config.n_lanes,
            n_steps=config.n_steps,
            max_characters_per_token=model.bilm.config.char_cnn.max_characters_per_token,
            reset_probability=config.reset_probability,
            seed=config.seed + fabric.global_rank,
        )

    def _recipe(self, model: LanguageModel, vocabulary: Vocabulary) -> dict[str, object]:
        return {
            **{f"training.{name}": value for name, value in asdict(self._config).items()},
            "sizes": str(model.bilm.config),
            "vocabulary": hashlib.sha256("\n".join(vocabulary.tokens).encode("utf-8", "surrogatepass")).hexdigest(),
            "inputs": digest_units(self._units),
            "format": self._source.format,
            "tokenizer": f"{self._source.tokenizer.name} {self._source.tokenizer.version}",
            "encoding": self._source.encoding,
            "processes": self._fabric.world_size,
        }

    def _card(self, report: TrainingReport, model: LanguageModel) -> dict[str, object]:
        n_bytes: dict[str, int] = {}
        for unit in self._units:
            name = unit.text_range.source.rsplit("/", 1)[-1]
            n_bytes[name] = n_bytes.get(name, 0) + unit.n_bytes
        return {
            "corpus": n_bytes,
            "licence": self._options.licence,
            "tokens": report.n_tokens,
            "steps": report.steps,
            "best_step": report.best_step,
            "vocabulary": len(model.softmax.bias),
            "negative_samples": model.n_negatives,
            "heldout": {
                "tokens": report.zero.n_tokens,
                "unknown_share": round(report.zero.unknown_share, 5),
                "perplexity_zero_start": round(report.zero.average, 3),
                "perplexity_warm_start": round(report.warm.average, 3),
            },
            "format": self._source.format,
            "tokenizer": f"{self._source.tokenizer.name} ({self._source.tokenizer.version})",
            "configuration": asdict(self._config),
            "processes": self._fabric.world_size,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "versions": {package: version(package) for package in ("elmo-corpus", "torch", "lightning-fabric")},
        }

    def _log_estimate(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        """Try a few windows with gradients, take no step, and say what the run will take."""
        windows = self._windows(model, vocabulary)
        n_positions, n_bytes = _measure_density(self._units, self._source)
        epoch = round(sum(unit.n_bytes for unit in self._units) * n_positions / max(1, n_bytes))
        model.to(self._fabric.device)
        state, seconds, n_targets = model.zero_state(self._config.n_lanes), 0.0, 0
        for number in range(TRIAL_WINDOWS):
            window = windows.next()
            if window is None:
                break
            began = time.perf_counter()
            on = window.to(self._fabric.device)
            with self._fabric.autocast():
                ways, state = model(on.characters, on.inputs, on.targets, on.keep, on.n_targets, state)
            ways.mean().backward()
            ways.tolist()
            if number > 0:  # the first one also sets up
                seconds, n_targets = seconds + time.perf_counter() - began, n_targets + window.n_targets
        model.zero_grad()
        n_parameters = sum(parameter.numel() for parameter in model.parameters())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + 8 * n_parameters
        rate = n_targets * self._fabric.world_size / seconds if seconds else float("nan")
        hours = show_seconds(epoch / rate) if seconds else "?"
        if self._is_first:
            _logger.info(
                "%s parameters (%s in the softmax of %s words, %s), about %d MB of memory; about %s positions an epoch, "
                "%s a second: %s an epoch, %d epochs",
                f"{n_parameters:,}",
                f"{sum(p.numel() for p in model.softmax.parameters()):,}",
                f"{len(vocabulary):,}",
                f"{model.n_negatives:,} negative draws" if model.n_negatives else "whole",
                peak // 2**20,
                f"{epoch:,}",
                f"{rate:,.0f}" if seconds else "?",
                hours,
                self._config.epochs,
            )


class _Meter:
    """Turn steps into what is shown and kept."""

    def __init__(self, trainer: Trainer, curves: Curves) -> None:
        self._trainer, self._curves = trainer, curves
        self.share = 0.0
        self._began, self._n_before = time.monotonic(), trainer.n_targets
        self._losses: list[tuple[float, float]] = []
        self._perplexity = ""

    def step(self, report: StepReport, view: ProgressView) -> None:
        """Show a step, and keep the mean of every few."""
        self.share = report.progress
        self._losses.append((report.forward_loss, report.backward_loss))
        rate = (self._trainer.n_targets - self._n_before) / (time.monotonic() - self._began)
        forward, backward = (sum(way) / len(way) for way in zip(*self._losses, strict=True))
        figures = f"step {report.step}, loss {(forward + backward) / 2:.3f}, {self._perplexity}{rate:,.0f} tokens/s"
        view.show(report.progress, figures)
        if report.step % LOG_STEPS == 0:
            values = {
                "loss/forward": forward,
                "loss/backward": backward,
                "gradient_norm": report.norm,
                "learning_rate": report.learning_rate,
                "tokens_per_second": rate,
            }
            self._curves.add(report.step, values)
            self._losses = []

    def look(self, evaluation: Evaluation) -> None:
        """Keep a look at the held-out text."""
        measured = evaluation.perplexity
        self._perplexity = f"held-out perplexity {measured.average:.1f}, "
        _logger.info("step %d: held-out perplexity %s", evaluation.step, show_perplexity(measured))
        values = {
            "heldout/perplexity": measured.average,
            "heldout/forward": measured.forward,
            "heldout/backward": measured.backward,
        }
        self._curves.add(evaluation.step, values)


def _local_output(options: RunOptions) -> Path:
    output = storage.absolute(options.output)
    if not output.startswith("file://"):
        raise ConfigError("is not a local folder; train into one, then copy the bundle", options.output)
    folder = Path(output.removeprefix("file://"))
    if folder.is_file():
        raise ConfigError("is a file; name a new folder", options.output)
    if folder.is_dir() and any(path.is_file() for path in folder.iterdir()):
        raise ConfigError("holds files already, perhaps a finished bundle; name a new folder", options.output)
    storage.check_writable(str(folder))
    return folder


def _launch(device: torch.device, config: TrainingConfig) -> Fabric:
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    n_ranks, n_local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    fabric = Fabric(
        accelerator="cuda" if device.type == "cuda" else "cpu",
        devices=n_local,
        num_nodes=n_ranks // n_local,
        strategy="ddp" if n_ranks > 1 else "auto",
        precision="bf16-mixed" if config.precision == "bfloat16" else "32-true",
    )
    fabric.launch()
    return fabric


def _copy_rows(softmax: Softmax, vocabulary: Vocabulary, head: Head) -> str:
    """Copy what the bundle's softmax knows into a new one."""
    pairs = [(row, old) for row, token in enumerate(vocabulary.tokens) if (old := head.vocabulary.id(token)) is not None]
    rows, olds = (torch.tensor(column) for column in zip(*pairs, strict=True))
    with torch.no_grad():
        softmax.weight[rows] = head.weight[olds]
        softmax.bias[:] = head.bias.min()
        softmax.bias[rows] = head.bias[olds]
    return (
        "kept" if vocabulary == head.vocabulary else f"extended: {len(rows):,} words known, {len(vocabulary) - len(rows):,} new"
    )


def _softmax(head: Head) -> Softmax:
    softmax = Softmax(*head.weight.shape)
    softmax.weight, softmax.bias = nn.Parameter(head.weight), nn.Parameter(head.bias)
    return softmax


def _sample_sentences(units: Sequence[TextUnit], source: TextSource, n_tokens: int) -> list[list[str]]:
    """Sentences from the beginning of each unit, so many tokens of all together."""
    share = -(-n_tokens // max(1, len(units)))
    sample: list[list[str]] = []
    for unit in units:
        n_left = share
        for sentence in (s for found in source.sentences(unit.text_range) for s in found):
            sample.append(sentence)
            n_left -= len(sentence)
            if n_left <= 0:
                break
    return sample


def _first_sentences(units: Sequence[TextUnit], source: TextSource, n_sentences: int) -> list[list[str]]:
    sentences = (s for unit in units for found in source.sentences(unit.text_range) for s in found)
    return list(islice(sentences, n_sentences))


def _measure_density(units: Sequence[TextUnit], source: TextSource) -> tuple[int, int]:
    """Positions of a unit and its bytes, from the middle of the text."""
    unit = sorted(units, key=lambda unit: (unit.text_range.source, unit.text_range.start))[len(units) // 2]
    sentences = [s for found in source.sentences(unit.text_range) for s in found]
    return sum(len(sentence) + 1 for sentence in sentences), unit.n_bytes
