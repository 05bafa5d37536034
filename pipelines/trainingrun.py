"""One training run: its text, its device, its folder."""

from __future__ import annotations

import hashlib
import logging
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from elmo_core import BiLMState, Bundle, CorpusError
from elmo_core.bundle import Head, unfinished_files
from elmo_core.embedder import Device, resolve_device
from elmo_core.training.checkpoints import Checkpoints
from elmo_core.training.config import TrainingConfig
from elmo_core.training.estimate import measure_cost
from elmo_core.training.loop import Trainer
from elmo_core.training.model import LanguageModel
from elmo_core.training.perplexity import WARM_LANES, WARM_SENTENCES, Perplexity, make_warm_state, measure_perplexity
from elmo_core.training.windows import Windows
from elmo_core.vocabulary import Vocabulary, read_vocabulary
from pipelines.counting import count_vocabulary
from pipelines.curves import Curves
from pipelines.launch import TRAINING_FOLDER, hold_output, launch, prepare_output
from pipelines.meter import Meter
from pipelines.modelcard import CARD_FILE, describe_training, render_card
from pipelines.passages import SourcePassages
from pipelines.progress import ProgressView, show_seconds
from pipelines.textunits import (
    TextOptions,
    check_apart,
    check_units,
    digest_units,
    measure_density,
    plan_units,
    sample_sentences,
    show_size,
    split_heldout,
    spread_sentences,
)

HELDOUT_EVERY: Final = 50
"""One range of so many is held out where no held-out text is named."""
DEFAULT_MAX_WORDS: Final = 50_000

_logger = logging.getLogger(__name__)


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


class TrainingRun:
    """One run: its text, its device, its folder."""

    def __init__(self, options: RunOptions, text: TextOptions, config: TrainingConfig) -> None:
        self._options, self._text, self._config = options, text, config
        self._source = text.source()
        self._output = prepare_output(options.output, resume=options.resume)
        self._folder = self._output / TRAINING_FOLDER
        units = plan_units(options.inputs)
        if options.heldout:
            self._units, heldout = units, plan_units(options.heldout)
            check_apart(units, heldout)
        else:
            self._units, heldout = split_heldout(units, HELDOUT_EVERY)
        self._fabric = launch(resolve_device(options.device), config)
        if self._is_first:
            _logger.info("training on %s, held out: %s", show_size(self._units), show_size(heldout))
        self._heldout = sample_sentences(heldout, self._source, config.heldout_tokens)
        if not self._heldout:
            raise CorpusError("the held-out text holds no token", ", ".join(options.heldout) or None)

    @property
    def _is_first(self) -> bool:
        return self._fabric.is_global_zero

    def vocabulary(self, own: Vocabulary | None = None) -> Vocabulary:
        """The named vocabulary, or the model's own, or the one that an earlier try counted, or one counted now."""
        if own is not None:
            self._check_text()
            return own
        if self._options.vocabulary is not None:
            self._check_text()
            return read_vocabulary(Path(self._options.vocabulary))
        path = self._folder / "vocabulary.txt"
        if self._is_first and not (self._options.resume and path.exists()):
            counter = count_vocabulary(self._options.inputs, self._text)
            counted = counter.vocabulary(max_words=self._options.max_words)
            path.parent.mkdir(parents=True, exist_ok=True)
            counted.save(path)
        self._fabric.barrier()
        return read_vocabulary(path)

    def _check_text(self) -> None:
        """Read this process's share once, so that damage is found before the first step; a counted text was read."""
        if not self._options.resume:
            check_units(self._units[self._fabric.global_rank :: self._fabric.world_size], self._source)

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
    ) -> TrainingReport | None:
        """Train, and save the best weights as a bundle with its warm state. The first process alone reports."""
        config = self._config
        checkpoints = Checkpoints(self._folder / "checkpoints", rank=self._fabric.global_rank)
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
        report = None
        with hold_output(self._output) if self._is_first else nullcontext():
            step = trainer.resume() if self._options.resume else None
            if step is not None and self._is_first:
                _logger.info("going on after step %d", step)
            self._watch(trainer, step or 0)
            if self._is_first:
                report = self._save(model, vocabulary, checkpoints, trainer, facts, before)
            self._fabric.barrier()
        return report

    def _watch(self, trainer: Trainer, step: int) -> None:
        if not self._is_first:
            return trainer.run(lambda _: None, lambda _: None)
        curves = Curves(self._folder, step=step)
        meter = Meter(trainer, curves)
        with ProgressView("training") as view:
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
        spread = spread_sentences(self._units, self._source, WARM_LANES, WARM_SENTENCES)
        warm = make_warm_state(model.bilm, spread)
        zero_start, warm_start = self.measure(model, vocabulary), self.measure(model, vocabulary, warm)
        model.cpu()
        described = describe_training(
            self._units,
            self._source,
            self._config,
            licence=self._options.licence,
            zero=zero_start,
            warm=warm_start,
            facts={
                **facts,
                "steps": trainer.step,
                "best_step": best["step"],
                "tokens": trainer.n_targets,
                "vocabulary": len(vocabulary),
                "negative_samples": model.n_negatives,
                "processes": self._fabric.world_size,
            },
        )
        bundle = Bundle(
            config=model.bilm.config,
            tensors={name: tensor.detach() for name, tensor in model.bilm.state_dict().items()},
            warm_state=warm.to(torch.device("cpu")),
            head=Head(weight=model.softmax.weight.detach(), bias=model.softmax.bias.detach(), vocabulary=vocabulary),
            training=described,
        )
        for path in unfinished_files(self._output):
            path.unlink()
        bundle.save(self._output)
        (self._output / CARD_FILE).write_text(render_card(bundle), encoding="utf-8")
        return TrainingReport(
            output=str(self._output),
            steps=trainer.step,
            best_step=best["step"],
            n_tokens=trainer.n_targets,
            before=before,
            zero=zero_start,
            warm=warm_start,
            softmax=str(facts["softmax"]),
            hash=bundle.hash,
        )

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

    def _log_estimate(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        """Say what the run will take, from a few windows without a step."""
        cost = measure_cost(self._fabric, model, self._windows(model, vocabulary))
        if not self._is_first:
            return
        n_positions, n_bytes = measure_density(self._units, self._source)
        epoch = round(sum(unit.n_bytes for unit in self._units) * n_positions / max(1, n_bytes))
        rate = cost.targets_per_second * self._fabric.world_size
        _logger.info(
            "%s parameters, %s of them in the softmax of %s words (%s); about %d MB of memory",
            f"{cost.n_parameters:,}",
            f"{cost.n_softmax_parameters:,}",
            f"{len(model.softmax.bias):,}",
            f"{model.n_negatives:,} negative draws" if model.n_negatives else "whole",
            cost.n_bytes // 2**20,
        )
        _logger.info(
            "about %s positions an epoch, %s a second: %s an epoch, %d to read",
            f"{epoch:,}",
            f"{rate:,.0f}",
            show_seconds(epoch / rate) if rate else "?",
            self._config.epochs,
        )
