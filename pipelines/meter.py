"""A training run's steps to what is shown and what is kept."""

from __future__ import annotations

import logging
import time
from typing import Final

from elmo_core.training.loop import Evaluation, StepReport, Trainer
from elmo_core.training.perplexity import Perplexity
from pipelines.curves import Curves
from pipelines.progress import ProgressView

LOG_STEPS: Final = 20
"""Steps whose means are kept as one point of the curves."""

_logger = logging.getLogger(__name__)


class Meter:
    """Turn steps into what is shown and kept."""

    def __init__(self, trainer: Trainer, curves: Curves) -> None:
        self._trainer, self._curves = trainer, curves
        self._began, self._n_before = time.monotonic(), trainer.n_targets
        self._rate = 0.0
        self._losses: list[tuple[float, float]] = []
        self._perplexity = ""

    def step(self, report: StepReport, view: ProgressView) -> None:
        """Show a step, and keep the mean of every few."""
        self._losses.append((report.forward_loss, report.backward_loss))
        forward, backward = (sum(way) / len(way) for way in zip(*self._losses, strict=True))
        figures = f"step {report.step}, loss {(forward + backward) / 2:.3f}, {self._perplexity}{self._rate:,.0f} tokens/s"
        view.show(report.progress, figures)
        if report.step % LOG_STEPS == 0:
            self._rate = (self._trainer.n_targets - self._n_before) / (time.monotonic() - self._began)
            self._began, self._n_before = time.monotonic(), self._trainer.n_targets
            values = {
                "loss/forward": forward,
                "loss/backward": backward,
                "gradient_norm": report.norm,
                "learning_rate": report.learning_rate,
                "tokens_per_second": self._rate,
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


def show_perplexity(measured: Perplexity) -> str:
    """The figures in a line."""
    return (
        f"{measured.average:.2f} (forward {measured.forward:.2f}, backward {measured.backward:.2f}) on "
        f"{measured.n_tokens:,} tokens, {measured.unknown_share:.2%} unknown"
    )
