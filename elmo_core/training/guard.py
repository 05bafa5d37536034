"""Whether a step may be taken: numbers in, a verdict out."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Final, Literal

Verdict = Literal["good", "skip", "roll back"]

LOSS_SPIKE_NATS: Final = 2.0
"""A window whose loss is so much above the running mean is no ordinary text, or the weights have gone wrong."""
NORM_SPIKE: Final = 50.0
"""Gradient norms above this multiple of the running mean."""
MAX_SKIPPED: Final = 3
"""Bad steps one after another that are skipped; the next one rolls back."""
_DECAY: Final = 0.99
_SETTLING_STEPS: Final = 50


@dataclass(slots=True)
class Guard:
    """Running means of loss and gradient norm, and how many bad steps there were.

    Args:
        loss: Running mean, in nats.
        norm: Running mean.
        n_good: Steps taken.
        n_skipped: Steps skipped, in all.
        n_in_a_row: Bad steps since the last good one.
        n_rollbacks: Times that weights went back to a checkpoint.
    """

    loss: float = 0.0
    norm: float = 0.0
    n_good: int = 0
    n_skipped: int = 0
    n_in_a_row: int = 0
    n_rollbacks: int = 0

    def judge(self, loss: float, norm: float) -> Verdict:
        """Say what to do with a step, and remember it.

        Args:
            loss: Of the window, in nats a token.
            norm: Of the gradient, before it is clipped.
        """
        if self._is_good(loss, norm):
            weight = max(1 - _DECAY, 1 / (self.n_good + 1))
            self.loss += weight * (loss - self.loss)
            self.norm += weight * (norm - self.norm)
            self.n_good += 1
            self.n_in_a_row = 0
            return "good"
        self.n_skipped += 1
        self.n_in_a_row += 1
        if self.n_in_a_row <= MAX_SKIPPED:
            return "skip"
        self.n_in_a_row = 0
        self.n_rollbacks += 1
        return "roll back"

    def state_dict(self) -> dict[str, float]:
        """All its numbers."""
        return asdict(self)

    def _is_good(self, loss: float, norm: float) -> bool:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            return False
        if self.n_good < _SETTLING_STEPS:
            return True
        return loss < self.loss + LOSS_SPIKE_NATS and norm < NORM_SPIKE * self.norm
