"""How a biLM is trained, beside its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, get_args

from elmo_core.embedder import Precision
from elmo_core.errors import ConfigError

FULL_SOFTMAX_TOKENS: Final = 8192
"""Vocabularies up to this size are trained under the whole softmax unless negative samples are asked for."""
DEFAULT_NEGATIVE_SAMPLES: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Values of a training run; each may stand in a configuration file under `training`.

    Args:
        n_lanes: Streams of text read side by side, in each process: bilm-tf's batch size.
        n_steps: Steps through which gradients flow; the state is carried on.
        epochs: Times that the text is read.
        max_steps: Windows after which training ends, whatever is left of the epochs; None for no limit.
        n_negative_samples: Draws of the sampled softmax, 0 for the whole softmax; None takes the whole softmax for
            vocabularies of up to 8,192 tokens and 8,192 draws for others.
        dropout: Of the LSTM layers' inputs and of the top layer's outputs (bilm-tf: 0.1).
        learning_rate: Of AdamW at its height.
        final_learning_rate: Where the cosine ends, as a share of `learning_rate`.
        warmup_steps: Windows in which the learning rate rises from zero.
        weight_decay: Of AdamW, for matrices.
        clip_norm: Gradients are scaled down to this norm.
        reset_probability: Share of sentences that start from zeros instead of the carried state.
        freeze_share: Share of the training in which the softmax alone learns, where it is new and the biLM is not.
        precision: Of the products; `bfloat16` is autocast, with float32 weights.
        seed: For initial weights, order of the text, dropout and negative samples.
        evaluate_every: Windows between looks at the held-out text; a checkpoint is written at each.
        heldout_tokens: Tokens of the held-out text that are looked at.

    Raises:
        ConfigError: A value is out of range.
    """

    n_lanes: int = 128
    n_steps: int = 20
    epochs: int = 1
    max_steps: int | None = None
    n_negative_samples: int | None = None
    dropout: float = 0.1
    learning_rate: float = 2e-3
    final_learning_rate: float = 0.02
    warmup_steps: int = 200
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    reset_probability: float = 0.1
    freeze_share: float = 0.1
    precision: Precision = "float32"
    seed: int = 0
    evaluate_every: int = 1000
    heldout_tokens: int = 20_000

    def __post_init__(self) -> None:
        for name in ("n_lanes", "n_steps", "epochs", "evaluate_every", "heldout_tokens"):
            self._require(name, self._is_int(name) and getattr(self, name) >= 1, "a whole number of at least 1")
        for name in ("warmup_steps", "seed"):
            self._require(name, self._is_int(name) and getattr(self, name) >= 0, "a whole number of at least 0")
        for name in ("learning_rate", "clip_norm"):
            self._require(name, self._is_number(name) and getattr(self, name) > 0, "a number above 0")
        for name in ("dropout", "reset_probability", "freeze_share", "final_learning_rate", "weight_decay"):
            self._require(name, self._is_number(name) and 0 <= getattr(self, name) <= 1, "a number from 0 to 1")
        for name, least in (("max_steps", 1), ("n_negative_samples", 0)):
            value = getattr(self, name)
            legal = value is None or (self._is_int(name) and value >= least)
            self._require(name, legal, f"null or a whole number of at least {least}")
        self._require("dropout", self.dropout < 1, "less than 1")
        self._require("precision", self.precision in get_args(Precision), " or ".join(get_args(Precision)))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainingConfig:
        """Read the values of a configuration file's `training`.

        Raises:
            ConfigError: A name is unknown or a value is out of range.
        """
        known = [field.name for field in fields(cls)]
        if unknown := sorted(values.keys() - set(known)):
            raise ConfigError(f"'training.{unknown[0]}' is unknown; there are {', '.join(known)}")
        return cls(**values)

    def negatives_for(self, n_tokens: int) -> int:
        """Draws of the sampled softmax for a vocabulary of this size; 0 means the whole softmax."""
        if self.n_negative_samples is not None:
            return self.n_negative_samples
        return 0 if n_tokens <= FULL_SOFTMAX_TOKENS else DEFAULT_NEGATIVE_SAMPLES

    def _require(self, name: str, rule: bool, legal: str) -> None:
        if not rule:
            raise ConfigError(f"'training.{name}' is {getattr(self, name)!r}; it must be {legal}")

    def _is_int(self, name: str) -> bool:
        return isinstance(getattr(self, name), int) and not isinstance(getattr(self, name), bool)

    def _is_number(self, name: str) -> bool:
        return isinstance(getattr(self, name), int | float) and not isinstance(getattr(self, name), bool)


FINETUNING: Final = TrainingConfig(n_lanes=32, learning_rate=1e-3, warmup_steps=50, evaluate_every=200)
"""One epoch, as in the paper's domain transfer, more gently than from random weights, in more steps: domains are small."""
