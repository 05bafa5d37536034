"""Sizes from and to AllenAI's options, and what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from builders import make_config

from elmo_core import BiLMConfig, BundleError

OPTIONS: dict[str, Any] = json.loads(json.dumps(make_config().to_options()))


def _changed(key: str, value: object) -> dict[str, Any]:
    options = copy.deepcopy(OPTIONS)
    *sections, last = key.split(".")
    part = options
    for section in sections:
        part = part[section]
    part[last] = value
    return options


def _without(key: str) -> dict[str, Any]:
    options = copy.deepcopy(OPTIONS)
    section, last = key.split(".")
    del options[section][last]
    return options


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_highway": 0, "activation": "tanh", "n_characters": 261},
        {"cell_clip": None, "proj_clip": 0.5, "use_skip_connections": False},
        {"cell_size": 8, "n_layers": 3, "max_characters_per_token": 20},
    ],
)
def test_options_go_there_and_back(changes: dict[str, object]) -> None:
    options = json.loads(json.dumps(make_config(**changes).to_options()))
    assert BiLMConfig.from_options(options) == make_config(**changes)
    assert BiLMConfig.from_options(options).to_options() == options


def test_entries_for_training_are_ignored() -> None:
    extended = _changed("char_cnn.note", "x") | {"n_train_tokens": 768648884, "dropout": 0.1, "bidirectional": True}
    assert BiLMConfig.from_options(extended) == make_config()


@pytest.mark.golden
def test_every_reference_has_legal_options(golden: Path) -> None:
    for path in golden.rglob("options.json"):
        options = json.loads(path.read_text(encoding="utf-8"))
        again = BiLMConfig.from_options(options).to_options()
        assert options == {**again, **{key: value for key, value in options.items() if key not in again}}, path


@pytest.mark.parametrize(
    "key",
    [
        "char_cnn.activation",
        "char_cnn.filters",
        "char_cnn.embedding",
        "char_cnn.n_characters",
        "char_cnn.max_characters_per_token",
        "lstm.dim",
        "lstm.projection_dim",
        "lstm.n_layers",
    ],
)
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(BundleError, match=f"has no '{key}'"):
        BiLMConfig.from_options(_without(key))


@pytest.mark.parametrize("key", ["char_cnn.n_highway", "lstm.cell_clip", "lstm.proj_clip", "lstm.use_skip_connections"])
def test_what_may_be_missing_means_none(key: str) -> None:
    config = BiLMConfig.from_options(_without(key))
    section, last = key.split(".")
    assert not config.to_options()[section][last]  # type: ignore[index]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("char_cnn.activation", "gelu"),
        ("char_cnn.activation", 1),
        ("char_cnn.filters", []),
        ("char_cnn.filters", 7),
        ("char_cnn.filters", [[1, 2, 3]]),
        ("char_cnn.filters", [[51, 8]]),
        ("char_cnn.filters", [[0, 8]]),
        ("char_cnn.filters", [[1, 0]]),
        ("char_cnn.n_highway", -1),
        ("char_cnn.embedding.dim", 0),
        ("char_cnn.n_characters", 256),
        ("char_cnn.max_characters_per_token", 2),
        ("lstm.dim", 0),
        ("lstm.dim", 1.5),
        ("lstm.dim", "4096"),
        ("lstm.dim", True),
        ("lstm.dim", float("nan")),
        ("lstm.cell_clip", float("inf")),
        ("lstm.projection_dim", -8),
        ("lstm.n_layers", 0),
        ("lstm.cell_clip", 0),
        ("lstm.proj_clip", -3),
        ("lstm.use_skip_connections", "yes"),
    ],
)
def test_an_illegal_value_is_named_with_its_key(key: str, value: object) -> None:
    with pytest.raises(BundleError, match=f"'{key}' is "):
        BiLMConfig.from_options(_changed(key, value))


def test_a_word_model_is_refused_as_such() -> None:
    with pytest.raises(BundleError, match="models whose input is words"):
        BiLMConfig.from_options({"lstm": OPTIONS["lstm"]})


@pytest.mark.parametrize("key", ["char_cnn", "lstm"])
@pytest.mark.parametrize("value", [None, [], "small", 3])
def test_a_section_that_is_no_object_is_named(key: str, value: object) -> None:
    with pytest.raises(BundleError, match=f"has no object '{key}'"):
        BiLMConfig.from_options(OPTIONS | {key: value})


def test_a_model_without_lstm_is_refused() -> None:
    with pytest.raises(BundleError, match="has no object 'lstm'"):
        BiLMConfig.from_options({"char_cnn": OPTIONS["char_cnn"]})
