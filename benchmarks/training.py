"""Our training step against a plain loop over `torch.nn.LSTM`, and the share of time that reading takes, in one run.

    python benchmarks/training.py TEXT... --vocab VOCABULARY [--config small] [--steps 20] [--rounds 3]

Both loops get the same windows, made beforehand, and share everything but the LSTMs: the char-CNN over distinct tokens, the
sampled softmax, clipping, AdamW. The plain one can't start sentences from zeros within a window, and has no clips. They
take turns; the ratio is the median over the rounds. Then `elmo train`'s own loop reads the text, and what it spends on
reading, tokenizing and cutting windows is timed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from baselines import torch_lstm
from torch import Tensor, nn

from elmo_core import BiLM, initialize_bilm
from elmo_core.training.checkpoints import Checkpoints
from elmo_core.training.config import TrainingConfig
from elmo_core.training.loop import StepReport, Trainer
from elmo_core.training.model import LanguageModel
from elmo_core.training.objective import Softmax, draw_candidates
from elmo_core.training.perplexity import measure_perplexity
from elmo_core.training.recipes import TrainingRecipe, load_recipe
from elmo_core.training.windows import Window, Windows
from elmo_core.vocabulary import Vocabulary, read_vocabulary
from pipelines.launch import launch
from pipelines.passages import SourcePassages
from pipelines.textunits import TextOptions, plan_units

State = list[tuple[Tensor, Tensor]]


class PlainLanguageModel(nn.Module):
    """The same language model with `torch.nn.LSTM` for its layers.

    Args:
        bilm: Whose weights are taken.
        softmax: Shared by both directions.
        n_negatives: Draws of the sampled softmax; 0 for the whole softmax.
        dropout: Of the layers' inputs and the top layer's outputs.
    """

    def __init__(self, bilm: BiLM, softmax: Softmax, *, n_negatives: int, dropout: float) -> None:
        super().__init__()
        self.char_cnn, self.softmax = bilm.char_cnn, softmax
        stacks = (bilm.forward_lstm, bilm.backward_lstm)
        self.lstms = nn.ModuleList([torch_lstm(layer).requires_grad_(True) for stack in stacks for layer in stack.layers])
        self.n_layers, self.skips = len(stacks[0].layers), bilm.config.lstm.use_skip_connections
        self.n_negatives, self.dropout = n_negatives, dropout

    def forward(self, window: Window, state: State | None) -> tuple[Tensor, State]:
        """The mean loss in nats, and the state after the window."""
        vectors = self.char_cnn(window.characters)
        tops, after = [], []
        for way in range(2):
            x = F.embedding(window.inputs[way], vectors)
            for number in range(self.n_layers):
                place = way * self.n_layers + number
                y, end = self.lstms[place](F.dropout(x, self.dropout, self.training), None if state is None else state[place])
                x = y + x if number and self.skips else y
                after.append((end[0].detach(), end[1].detach()))
            tops.append(F.dropout(x.flatten(0, 1), self.dropout, self.training))
        hidden, targets = torch.cat(tops), window.targets.flatten()
        if not self.n_negatives:
            return self.softmax.losses(hidden, targets).mean(), after
        candidates = draw_candidates(len(self.softmax.bias), self.n_negatives, hidden.device)
        return self.softmax.sampled_losses(hidden, targets, candidates, self.n_negatives).mean(), after


class TimedWindows(Windows):
    """Windows that count the seconds they take."""

    seconds = 0.0

    def next(self) -> Window | None:
        """See `Windows`."""
        began = time.perf_counter()
        window = super().next()
        self.seconds += time.perf_counter() - began
        return window


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="+", help="raw prose")
    parser.add_argument("--vocab", type=Path, required=True, help="from elmo vocab")
    parser.add_argument("--config", default="small")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    recipe, vocabulary = load_recipe(options.config), read_vocabulary(options.vocab)
    reader = _windows(options.text, vocabulary, recipe)
    windows = [window for _ in range(options.steps) if (window := reader.next()) is not None]
    n_targets = sum(window.n_targets for window in windows)
    print(f"{len(windows)} windows, {n_targets} targets in each direction, {torch.get_num_threads()} threads")
    _check(recipe, vocabulary, windows[0])
    ours, plain = [], []
    for _ in range(options.rounds):
        ours.append(_time_ours(_model(recipe, vocabulary), recipe.training, windows))
        plain.append(_time_plain(_plain_model(recipe, vocabulary), recipe.training, windows))
    for name, seconds in (("ours", ours), ("torch.nn.LSTM", plain)):
        print(f"{name:14} {n_targets / statistics.median(seconds):7.0f} targets/s")
    ratios = [b / a for a, b in zip(ours, plain, strict=True)]
    print(f"ours / torch.nn.LSTM: {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f})")
    share, rate = _time_loop(options.text, recipe, vocabulary, options.steps * options.rounds)
    print(f"elmo train's loop: {rate:.0f} targets/s, {share:.1%} of the time in reading, tokenizing and cutting windows")


def _model(recipe: TrainingRecipe, vocabulary: Vocabulary) -> LanguageModel:
    bilm = initialize_bilm(recipe.bilm, recipe.training.seed).requires_grad_(True)
    softmax = Softmax(len(vocabulary), recipe.bilm.lstm.projection_size)
    softmax.initialize(recipe.training.seed)
    negatives = recipe.training.negatives_for(len(vocabulary))
    return LanguageModel(bilm, softmax, n_negatives=negatives, dropout=recipe.training.dropout)


def _plain_model(recipe: TrainingRecipe, vocabulary: Vocabulary) -> PlainLanguageModel:
    model = _model(recipe, vocabulary)
    return PlainLanguageModel(model.bilm, model.softmax, n_negatives=model.n_negatives, dropout=model.dropout)


def _windows(text: list[str], vocabulary: Vocabulary, recipe: TrainingRecipe) -> TimedWindows:
    training = recipe.training
    passages = SourcePassages(plan_units(text), TextOptions().source(), epochs=1000, seed=training.seed)
    return TimedWindows(
        passages,
        vocabulary,
        n_lanes=training.n_lanes,
        n_steps=training.n_steps,
        max_characters_per_token=recipe.bilm.char_cnn.max_characters_per_token,
        reset_probability=training.reset_probability,
        seed=training.seed,
    )


def _check(recipe: TrainingRecipe, vocabulary: Vocabulary, window: Window) -> None:
    model, plain = _model(recipe, vocabulary).eval(), _plain_model(recipe, vocabulary).eval()
    with torch.no_grad():
        state = model.zero_state(recipe.training.n_lanes)
        torch.manual_seed(0)
        ways, _ = model(window.characters, window.inputs, window.targets, None, window.n_targets, state)
        torch.manual_seed(0)
        loss, _ = plain(window, None)
    print(f"difference of the first window's loss, the same weights: {abs(float(ways.mean() - loss)):.1e}")


def _time_ours(model: LanguageModel, training: TrainingConfig, windows: list[Window]) -> float:
    optimizer, state = _optimizer(model, training), model.zero_state(training.n_lanes)
    began = time.perf_counter()
    for window in windows:
        ways, state = model(window.characters, window.inputs, window.targets, window.keep, window.n_targets, state)
        _step(model, optimizer, ways.mean(), training)
    return time.perf_counter() - began


def _time_plain(model: PlainLanguageModel, training: TrainingConfig, windows: list[Window]) -> float:
    optimizer, state = _optimizer(model, training), None
    began = time.perf_counter()
    for window in windows:
        loss, state = model(window, state)
        _step(model, optimizer, loss, training)
    return time.perf_counter() - began


def _optimizer(model: nn.Module, training: TrainingConfig) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=training.learning_rate, betas=(0.9, 0.98), fused=True)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, training: TrainingConfig) -> None:
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
    optimizer.step()
    optimizer.zero_grad()


def _time_loop(text: list[str], recipe: TrainingRecipe, vocabulary: Vocabulary, n_steps: int) -> tuple[float, float]:
    """The share of time in making windows, and targets a second, after a first step that sets up."""
    training = replace(recipe.training, max_steps=n_steps + 1, evaluate_every=n_steps + 2)
    windows = _windows(text, vocabulary, recipe)
    marks: list[tuple[float, float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            launch(torch.device("cpu"), training),
            _model(recipe, vocabulary),
            windows,
            training,
            checkpoints=Checkpoints(Path(folder)),
            recipe={},
            evaluate=lambda model: measure_perplexity(model.bilm, model.softmax, vocabulary, [["a"]]),
        )

        def mark(_: StepReport) -> None:
            marks.append((time.perf_counter(), windows.seconds, trainer.n_targets))

        trainer.run(mark, lambda _: None)
    (began, reading, n_before), (ended, reading_after, n_targets) = marks[0], marks[-1]
    return (reading_after - reading) / (ended - began), (n_targets - n_before) / (ended - began)


if __name__ == "__main__":
    main()
