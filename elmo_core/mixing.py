"""A weighted sum of layers (Peters et al. 2018, equation 1), and the small file that keeps its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LayerMix:
    """gamma times the sum of layers, weighted by softmax(scores).

    Args:
        scores: s_j before the softmax, one a layer, token layer first.
        gamma: Scale of the whole.
    """

    scores: tuple[float, ...]
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not self.scores or not np.isfinite([*self.scores, self.gamma]).all():
            raise ConfigError(f"a mix needs finite scores, one a layer, and a finite gamma; it has {self.scores}, {self.gamma}")

    def weights(self) -> npt.NDArray[np.float32]:
        """Gamma * softmax(scores). Shape: (L + 1,)."""
        exponentials = np.exp(np.array(self.scores) - max(self.scores))
        weights: npt.NDArray[np.float32] = (self.gamma * exponentials / exponentials.sum()).astype(np.float32)
        return weights

    def apply(self, layers: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Sum over the first axis. Shape: (L + 1, ..., W) -> (..., W)."""
        weights = self.weights()
        mixed: npt.NDArray[np.float32] = weights[0] * layers[0]
        for weight, layer in zip(weights[1:], layers[1:], strict=True):
            mixed += weight * layer
        return mixed

    def save(self, path: Path) -> None:
        """Write the weights as JSON."""
        path.write_text(json.dumps({"scores": list(self.scores), "gamma": self.gamma}) + "\n", encoding="utf-8")


def mean_mix(n_layers: int) -> LayerMix:
    """The plain average of all layers."""
    return LayerMix((0.0,) * n_layers)


def load_mix(path: Path) -> LayerMix:
    """Read a mix that `LayerMix.save` wrote.

    Raises:
        ConfigError: The file is missing or holds something else.
    """
    if not path.exists():
        raise ConfigError("does not exist", str(path))
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values["scores"], list):
            raise TypeError("scores are no list")
        return LayerMix(tuple(float(score) for score in values["scores"]), float(values["gamma"]))
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise ConfigError('holds no mix such as {"scores": [0.1, 0.7, 0.2], "gamma": 1.0}', str(path)) from error
