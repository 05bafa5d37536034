"""Values of a training run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elmo_core import ConfigError
from elmo_core.training.config import TrainingConfig
from elmo_core.training.recipes import NAMED, load_recipe


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"n_lanes": 0}, "'training.n_lanes' is 0; it must be a whole number of at least 1"),
        ({"dropout": 1.0}, "'training.dropout' is 1.0; it must be less than 1"),
        ({"learning_rate": "fast"}, "'training.learning_rate' is 'fast'; it must be a number above 0"),
        ({"learning_rate": float("nan")}, "it must be a number above 0"),
        ({"max_steps": 0}, "'training.max_steps' is 0; it must be null or a whole number of at least 1"),
        ({"precision": "float16"}, "it must be float32 or bfloat16"),
        ({"epochs": True}, "it must be a whole number"),
        ({"batch": 3}, "'training.batch' is unknown; there are n_lanes"),
    ],
)
def test_wrong_values_are_told(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        TrainingConfig.from_json(values)


def test_large_vocabularies_are_sampled() -> None:
    config = TrainingConfig()
    assert [config.negatives_for(n) for n in (8192, 8193)] == [0, 8192]
    assert TrainingConfig(n_negative_samples=0).negatives_for(100_000) == 0


@pytest.mark.parametrize("name", NAMED)
def test_named_configurations_load(name: str) -> None:
    assert load_recipe(name).bilm.lstm.use_skip_connections


def test_the_original_sizes_are_the_papers() -> None:
    lstm = load_recipe("original").bilm.lstm
    assert (lstm.cell_size, lstm.projection_size, lstm.n_layers) == (4096, 512, 2)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    named = Path(load_recipe.__code__.co_filename).parent / "configs" / "small.json"
    values = json.loads(named.read_text())
    path.write_text(json.dumps({**values, "training": {"n_steps": 7}}))
    assert load_recipe(str(path)).training.n_steps == 7


def test_faults_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"lstm": {}}')
    with pytest.raises(ConfigError, match="char_cnn") as caught:
        load_recipe(str(path))
    assert caught.value.where == str(path)
    with pytest.raises(ConfigError, match="give small, original or the path"):
        load_recipe("big")
