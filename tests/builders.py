"""Small real things for tests, by keyword."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from elmo_core import BiLMConfig, BiLMState, Bundle, CharCnnConfig, LstmConfig, LstmState, initialize_bilm
from elmo_core.training.windows import Passage
from pipelines.layers import LayerSelection
from pipelines.manifest import Recipe, ShardReport

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


def make_recipe(**changes: Any) -> Recipe:
    """A recipe for `make_bundle`'s default model, storing float32."""
    recipe = Recipe(
        bundle_hash=make_bundle().hash,
        width=16,
        format="lines",
        encoding="utf-8",
        tokenizer="whitespace",
        tokenizer_version="1",
        layers=LayerSelection((0, 1, 2)),
        dtype="float32",
        vectors="list",
        compression="none",
        precision="float32",
        initial_state="zero",
        range_bytes=200,
    )
    return replace(recipe, **changes)


def make_report(**changes: Any) -> ShardReport:
    """A report of one row in one record of ten bytes."""
    report = ShardReport(
        path="shards/a.parquet",
        source="file:///a",
        start=0,
        stop=10,
        n_records=1,
        n_text_bytes=10,
        n_rejects=0,
        n_rows=1,
        n_tokens=2,
        n_cut_tokens=0,
        n_clipped=0,
        n_row_groups=1,
        text_sha256="0" * 64,
        reject_reasons={},
        rejects_path=None,
        n_bytes=1000,
    )
    return replace(report, **changes)


class ListPassages:
    """Passages from a list, for tests of what reads them."""

    def __init__(self, passages: list[Passage]) -> None:
        self._passages = passages
        self._n_given = 0

    @property
    def progress(self) -> float:
        """Share that was given out."""
        return self._n_given / len(self._passages)

    def next(self) -> Passage | None:
        """The next one."""
        self._n_given += 1
        return self._passages[self._n_given - 1] if self._n_given <= len(self._passages) else None

    def state_dict(self) -> dict[str, object]:
        """How many were given out."""
        return {"n_given": self._n_given}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on after so many."""
        self._n_given = state["n_given"]  # type: ignore[assignment]
