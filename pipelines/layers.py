"""Which layers a shard holds, as the user says it: `all`, `0,2`, `mean` or `mix:FILE`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo_core import ConfigError, LayerMix, load_mix
from elmo_core.mixing import mean_mix

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LayerSelection:
    """Layers as they are, or one weighted sum of all.

    Args:
        numbers: Layers kept, rising; empty for a mix.
        mix: The weights of the sum, None for layers as they are.
    """

    numbers: tuple[int, ...]
    mix: LayerMix | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the shard's columns."""
        return ("elmo",) if self.mix is not None else tuple(f"layer_{number}" for number in self.numbers)

    def select(self, layers: Float32Array) -> dict[str, Float32Array]:
        """Vectors by column. Shape: (L + 1, tokens, width) -> (tokens, width) each."""
        if self.mix is not None:
            return {"elmo": self.mix.apply(layers)}
        return {column: layers[number] for column, number in zip(self.columns, self.numbers, strict=True)}


def parse_layers(text: str, n_layers: int) -> LayerSelection:
    """Read a selection.

    Args:
        text: `all`, layer numbers separated by commas, `mean`, or `mix:` and a file that holds a mix.
        n_layers: Layers of the model, the token layer included.

    Raises:
        ConfigError: The text says something else, or names layers that the model doesn't have.
    """
    if text == "all":
        return LayerSelection(tuple(range(n_layers)))
    if text == "mean":
        return LayerSelection((), mean_mix(n_layers))
    if text.startswith("mix:"):
        mix = load_mix(Path(text.removeprefix("mix:")))
        if len(mix.scores) != n_layers:
            raise ConfigError(f"layers is {text!r}, which mixes {len(mix.scores)} layers; the model has {n_layers}")
        return LayerSelection((), mix)
    numbers = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if len(numbers) != len(text.split(",")) or len(set(numbers)) != len(numbers) or max(numbers) >= n_layers:
        last = n_layers - 1
        raise ConfigError(
            f"layers is {text!r}; it must be all, mean, mix:FILE, or distinct numbers up to {last} such as 0,{last}"
        )
    return LayerSelection(tuple(sorted(numbers)))
