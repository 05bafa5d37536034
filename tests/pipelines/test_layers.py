"""Which layers a shard holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmo_core import ConfigError, LayerMix
from pipelines.layers import parse_layers

LAYERS = np.arange(3 * 2 * 4, dtype=np.float32).reshape(3, 2, 4)


@pytest.mark.parametrize(("text", "numbers"), [("all", [0, 1, 2]), ("2,0", [0, 2]), ("1", [1])])
def test_layers_as_they_are(text: str, numbers: list[int]) -> None:
    selected = parse_layers(text, 3).select(LAYERS)
    assert list(selected) == [f"layer_{number}" for number in numbers]
    for number in numbers:
        np.testing.assert_array_equal(selected[f"layer_{number}"], LAYERS[number])


def test_mean_is_the_average() -> None:
    np.testing.assert_allclose(parse_layers("mean", 3).select(LAYERS)["elmo"], LAYERS.mean(axis=0), rtol=1e-6)


def test_mix_comes_from_its_file(tmp_path: Path) -> None:
    LayerMix((0.0, np.log(3.0), -100.0), 2.0).save(tmp_path / "mix.json")
    mixed = parse_layers(f"mix:{tmp_path}/mix.json", 3).select(LAYERS)["elmo"]
    np.testing.assert_allclose(mixed, 2 * (0.25 * LAYERS[0] + 0.75 * LAYERS[1]), rtol=1e-6)


@pytest.mark.parametrize("text", ["", "3", "0,0", "-1", "a", "0,", "0.5", "mix:", "all,0"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_layers(text, 3)


def test_mix_of_another_model_is_refused(tmp_path: Path) -> None:
    LayerMix((0.0, 0.0)).save(tmp_path / "mix.json")
    with pytest.raises(ConfigError, match="mixes 2 layers; the model has 3"):
        parse_layers(f"mix:{tmp_path}/mix.json", 3)
