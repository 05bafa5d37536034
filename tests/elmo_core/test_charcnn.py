"""The token encoder, against the same sums done over every position."""

from __future__ import annotations

import pytest
import torch
from builders import make_config
from torch.nn import functional

from elmo_core import initialize_bilm
from elmo_core.charcnn import CharCnn
from elmo_core.charids import encode_tokens

TOKENS = ["a", "word", "", "好的", "a" * 47, "b" * 48, "c" * 60, "<S>"]


def _over_all_positions(cnn: CharCnn, ids: torch.Tensor) -> torch.Tensor:
    characters = cnn.embedding[ids - 1].transpose(1, 2)
    maxima = [functional.conv1d(characters, conv.weight, conv.bias).amax(2) for conv in cnn.filters]
    x = cnn.activation(torch.cat(maxima, 1))
    for highway in cnn.highways:
        gate = torch.sigmoid(x @ highway.carry.weight.T + highway.carry.bias)
        x = gate * torch.relu(x @ highway.transform.weight.T + highway.transform.bias) + (1 - gate) * x
    return x if cnn.projection is None else x @ cnn.projection.weight.T + cnn.projection.bias


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("n_highway", [0, 2])
@pytest.mark.parametrize("filters", [((1, 4), (2, 4), (3, 8)), ((7, 8),), ((50, 3), (1, 2))])
@pytest.mark.parametrize("token", [*TOKENS, None])
def test_leaving_padding_out_changes_nothing(
    activation: str, n_highway: int, filters: tuple[tuple[int, int], ...], token: str | None
) -> None:
    config = make_config(activation=activation, n_highway=n_highway, filters=filters)
    cnn = initialize_bilm(config, 1).char_cnn
    ids = torch.from_numpy(encode_tokens(TOKENS if token is None else [token], 50))
    torch.testing.assert_close(cnn(ids), _over_all_positions(cnn, ids), rtol=1e-5, atol=1e-6)


def test_no_token_gives_no_vector() -> None:
    cnn = initialize_bilm(make_config(), 1).char_cnn
    assert cnn(torch.zeros(0, 50, dtype=torch.long)).shape == (0, 8)


def test_a_token_does_not_depend_on_those_beside_it() -> None:
    cnn = initialize_bilm(make_config(), 1).char_cnn.requires_grad_(False)
    together = cnn(torch.from_numpy(encode_tokens(TOKENS, 50)))
    for token, vector in zip(TOKENS, together, strict=True):
        torch.testing.assert_close(cnn(torch.from_numpy(encode_tokens([token], 50)))[0], vector, rtol=0, atol=1e-6)
