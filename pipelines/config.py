"""What a user may choose of the main job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

from elmo_core import DEFAULT_BUNDLE, ConfigError
from elmo_core.embedder import Device, InitialState, Precision
from pipelines.corpus import Format
from pipelines.schema import DType, Vectors
from pipelines.shards import Compression

DEFAULT_MODEL: Final = str(DEFAULT_BUNDLE)
DEFAULT_SHARD_TOKENS: Final = 100_000
MIN_SHARD_TOKENS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturizeConfig:
    """What a user may choose. Each field is an option of `elmo featurize`, where its help stands.

    Args:
        inputs: Files or globs, any URI that fsspec knows; may be empty where a pipeline brings them.
        output: Folder of the output.
        model: Folder of the bundle.
        format: `lines` or `text`.
        tokenizer: `whitespace`, `characters` or `spacy:LANG`; None takes `whitespace` for lines, `spacy:en` for text.
        layers: `all`, numbers such as `0,2`, `mean` or `mix:FILE`.
        dtype: `float16` or `float32`.
        vectors: `list` or `binary`.
        compression: `none` or `zstd`, of the vectors.
        precision: `float32` or `bfloat16`.
        device: `auto`, `cpu` or `cuda`.
        initial_state: `zero` or `warm`.
        shard_tokens: Tokens of a shard, about.
        encoding: Of the text.
        max_rejects: Records that may be rejected before the run counts as failed.

    Raises:
        ConfigError: A value is not one of the legal ones.
    """

    inputs: tuple[str, ...]
    output: str
    model: str = DEFAULT_MODEL
    format: Format = "lines"
    tokenizer: str | None = None
    layers: str = "all"
    dtype: DType = "float16"
    vectors: Vectors = "list"
    compression: Compression = "none"
    precision: Precision = "float32"
    device: Device = "auto"
    initial_state: InitialState = "zero"
    shard_tokens: int = DEFAULT_SHARD_TOKENS
    encoding: str = "utf-8"
    max_rejects: int = 0

    def __post_init__(self) -> None:
        choices = (
            ("format", Format),
            ("dtype", DType),
            ("vectors", Vectors),
            ("compression", Compression),
            ("precision", Precision),
            ("device", Device),
            ("initial_state", InitialState),
        )
        for name, legal in choices:
            value = getattr(self, name)
            if value not in get_args(legal):
                raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(get_args(legal))}")
        if self.shard_tokens < MIN_SHARD_TOKENS:
            raise ConfigError(f"shard_tokens is {self.shard_tokens}; it must be at least {MIN_SHARD_TOKENS}")
        if self.max_rejects < 0:
            raise ConfigError(f"max_rejects is {self.max_rejects}; it must be 0 or more")
