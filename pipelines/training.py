"""Corpora to trained bundles: what is checked first, what is read, what is kept."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import nn

from elmo_core import BundleError, ConfigError, CorpusError, initialize_bilm, load_bundle
from elmo_core.bundle import Head
from elmo_core.embedder import Device, resolve_device
from elmo_core.training.config import TrainingConfig
from elmo_core.training.model import LanguageModel
from elmo_core.training.objective import Softmax
from elmo_core.training.perplexity import Perplexity, measure_perplexity
from elmo_core.training.recipes import TrainingRecipe
from elmo_core.vocabulary import Vocabulary
from pipelines import storage
from pipelines.meter import show_perplexity
from pipelines.textunits import TextOptions, plan_units
from pipelines.trainingrun import RunOptions, TrainingReport, TrainingRun

_logger = logging.getLogger(__name__)


def pretrain(options: RunOptions, text: TextOptions, recipe: TrainingRecipe) -> TrainingReport | None:
    """Train a biLM from random weights (Peters et al. 2018, section 3.1).

    Returns:
        How it ended, in the first of several processes; None in the others.

    Raises:
        ConfigError: An option, an input or the output is wrong, or a checkpoint is of another configuration.
        CorpusError: A source can't be read.
        BundleError: The vocabulary is wrong, training diverges, or the output can't be written.
    """
    run = TrainingRun(options, text, recipe.training)
    vocabulary = run.vocabulary()
    bilm = initialize_bilm(recipe.bilm, recipe.training.seed)
    softmax = Softmax(len(vocabulary), recipe.bilm.lstm.projection_size)
    softmax.initialize(recipe.training.seed)
    facts: dict[str, object] = {"softmax": "new"}
    return run.train(LanguageModel(bilm, softmax, **run.objective(vocabulary)), vocabulary, facts, before=None)


def finetune(options: RunOptions, text: TextOptions, training: TrainingConfig, model: str) -> TrainingReport | None:
    """Train a bundle further on a domain's text (Peters et al. 2018, section 3.4).

    The softmax is kept where the vocabulary is the same, extended by new words where some differ, and made anew where
    the bundle has none; it learns alone at first then.

    Returns:
        As for `pretrain`.

    Raises:
        ConfigError: As for `pretrain`.
        CorpusError: As for `pretrain`.
        BundleError: As for `pretrain`, or the model can't be used.
    """
    run = TrainingRun(options, text, training)
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
