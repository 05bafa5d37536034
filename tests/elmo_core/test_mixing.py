"""The weighted sum of layers, and its file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from elmo_core import ConfigError, LayerMix, load_mix
from elmo_core.mixing import mean_mix

LAYERS = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)


def test_a_mix_is_equation_1_of_the_paper() -> None:
    scores, gamma = np.array([0.5, -1.0, 2.0]), 0.7
    softmax = np.exp(scores) / np.exp(scores).sum()
    expected = gamma * np.einsum("l,ltd->td", softmax, LAYERS)
    np.testing.assert_allclose(LayerMix(tuple(scores), gamma).apply(LAYERS), expected, rtol=1e-5, atol=1e-6)


def test_large_scores_do_not_overflow() -> None:
    np.testing.assert_allclose(LayerMix((1000.0, 0.0, 0.0)).weights(), [1, 0, 0])


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    mix = LayerMix((0.1, 0.2, -0.3), 1.5)
    mix.save(tmp_path / "mix.json")
    assert load_mix(tmp_path / "mix.json") == mix


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "[]",
        "{}",
        '{"scores": [1]}',
        '{"scores": ["a"], "gamma": 1}',
        '{"scores": "123", "gamma": 1}',
        '{"scores": [], "gamma": 1}',
        '{"scores": [NaN], "gamma": 1}',
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "mix.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(tmp_path / 'mix.json'))}: "):
        load_mix(tmp_path / "mix.json")


def test_weights_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs finite scores"):
        LayerMix((0.0, float("nan")))


def test_the_mean_is_the_plain_average() -> None:
    np.testing.assert_allclose(mean_mix(3).apply(LAYERS), LAYERS.mean(axis=0), rtol=1e-5, atol=1e-6)


def test_mixing_leaves_the_layers_alone() -> None:
    layers = LAYERS.copy()
    LayerMix((0.1, 0.2, 0.3)).apply(layers)
    np.testing.assert_array_equal(layers, LAYERS)


@pytest.mark.parametrize("n_scores", [2, 4])
def test_a_mix_of_another_number_of_layers_is_refused(n_scores: int) -> None:
    with pytest.raises(ValueError, match="argument"):
        mean_mix(n_scores).apply(LAYERS)
