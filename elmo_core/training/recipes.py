"""Configuration files of training: a biLM's sizes as AllenAI's options have them, and how it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elmo_core.bundle import read_json_object
from elmo_core.config import BiLMConfig
from elmo_core.errors import BundleError, ConfigError
from elmo_core.training.config import TrainingConfig

NAMED: Final = ("small", "original")
_FOLDER: Final = Path(__file__).parent / "configs"


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """What a configuration file says.

    Args:
        bilm: Sizes.
        training: Values of the run.
    """

    bilm: BiLMConfig
    training: TrainingConfig


def load_recipe(name: str) -> TrainingRecipe:
    """Read a configuration.

    Args:
        name: `small` (the shipped bundle's), `original` (Peters et al. 2018), or the path of a JSON file such as these.

    Raises:
        ConfigError: The file isn't there or a value in it is wrong; the message names it.
    """
    path = _FOLDER / f"{name}.json" if name in NAMED else Path(name)
    if not path.is_file():
        raise ConfigError(f"is no configuration; give {', '.join(NAMED)} or the path of a JSON file", name)
    try:
        values = read_json_object(path)
        training = values.get("training", {})
        if not isinstance(training, Mapping):
            raise ConfigError("'training' must be an object")
        return TrainingRecipe(BiLMConfig.from_options(values), TrainingConfig.from_json(training))
    except (BundleError, ConfigError) as error:
        raise ConfigError(error.message, str(path)) from error
