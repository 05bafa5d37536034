"""Small real things for tests, by keyword."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from elmo_core import BiLMConfig, BiLMState, Bundle, CharCnnConfig, LstmConfig, LstmState, initialize_bilm

CNN_KEYS = {"activation", "filters", "n_highway", "embedding_dim", "n_characters", "max_characters_per_token"}


def make_config(**changes: Any) -> BiLMConfig:
    """A tiny biLM of 2 layers and width 16; `changes` are fields of `CharCnnConfig` or `LstmConfig`."""
    cnn = CharCnnConfig(
        activation="relu",
        filters=((1, 4), (2, 4), (3, 8)),
        n_highway=1,
        embedding_dim=4,
        n_characters=262,
        max_characters_per_token=50,
    )
    lstm = LstmConfig(cell_size=24, projection_size=8, n_layers=2, cell_clip=3.0, proj_clip=3.0, use_skip_connections=True)
    cnn_changes = {key: value for key, value in changes.items() if key in CNN_KEYS}
    lstm_changes = {key: value for key, value in changes.items() if key not in CNN_KEYS}
    return BiLMConfig(char_cnn=replace(cnn, **cnn_changes), lstm=replace(lstm, **lstm_changes))


def make_bundle(*, seed: int = 0, warm: bool = False, trained: bool = True, **changes: Any) -> Bundle:
    """A bundle of random weights; with a warm state of random values on request."""
    config = make_config(**changes)
    generator = torch.Generator().manual_seed(seed)

    def state() -> LstmState:
        lstm = config.lstm
        return LstmState(
            torch.rand(lstm.n_layers, 1, lstm.projection_size, generator=generator),
            torch.rand(lstm.n_layers, 1, lstm.cell_size, generator=generator),
        )

    return Bundle(
        config=config,
        tensors=initialize_bilm(config, seed).state_dict(),
        warm_state=BiLMState(state(), state()) if warm else None,
        trained=trained,
    )
