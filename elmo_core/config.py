"""The sizes of a biLM, from and to AllenAI's `options.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, cast

from elmo_core.errors import BundleError

Activation = Literal["relu", "tanh"]
Number = TypeVar("Number", int, float)


MAX_DEPTH: Final = 100
MAX_WIDTH: Final = 100_000
MAX_NUMBER: Final = 1e9
"""Far beyond any model; a file that says more is damaged, and would be allocated before its weights are missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CharCnnConfig:
    """The context-free token encoder (Peters et al. 2018, section 3.1; Kim et al. 2016).

    Args:
        activation: Applied to each filter's maximum: `relu` or `tanh`.
        filters: Pairs of filter width in characters and number of filters.
        n_highway: Highway layers after the filters, 0 for none.
        embedding_dim: Width of a character's vector.
        n_characters: 262 counts the padding id, 261 does not; both mean the same table of 261 stored rows.
        max_characters_per_token: Character positions of a token, its two boundary marks included.

    Raises:
        BundleError: A value is out of range.
    """

    activation: Activation
    filters: tuple[tuple[int, int], ...]
    n_highway: int
    embedding_dim: int
    n_characters: int
    max_characters_per_token: int

    def __post_init__(self) -> None:
        _require(self.activation in ("relu", "tanh"), "char_cnn.activation", self.activation, "'relu' or 'tanh'")
        _require(0 <= self.n_highway <= MAX_DEPTH, "char_cnn.n_highway", self.n_highway, f"from 0 to {MAX_DEPTH}")
        _require_width("char_cnn.embedding.dim", self.embedding_dim)
        _require(self.n_characters in (261, 262), "char_cnn.n_characters", self.n_characters, "261 or 262")
        positions = self.max_characters_per_token
        _require(3 <= positions <= MAX_WIDTH, "char_cnn.max_characters_per_token", positions, f"from 3 to {MAX_WIDTH}")
        n_filters = len(self.filters)
        _require(0 < n_filters <= MAX_DEPTH, "char_cnn.filters", n_filters, f"from 1 to {MAX_DEPTH} [width, count] pairs")
        for width, count in self.filters:
            _require(
                0 < width <= positions and count > 0,
                "char_cnn.filters",
                [width, count],
                f"[width from 1 to {positions}, count of at least 1]",
            )

    @property
    def n_filters(self) -> int:
        """All filters of all widths: the width of a token before the projection."""
        return sum(count for _, count in self.filters)


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmConfig:
    """The stacked LSTMs, the same for both directions (Peters et al. 2018, sections 3.1 and 3.4).

    Args:
        cell_size: Width H of a cell.
        projection_size: Width D of a direction's output; equal to `cell_size` means no projection.
        n_layers: LSTM layers L in each direction.
        cell_clip: Cells are clipped to [-cell_clip, cell_clip]; None for no clip.
        proj_clip: The same for the projected output.
        use_skip_connections: Add a layer's input to its output, from the second layer on.

    Raises:
        BundleError: A value is out of range.
    """

    cell_size: int
    projection_size: int
    n_layers: int
    cell_clip: float | None
    proj_clip: float | None
    use_skip_connections: bool

    def __post_init__(self) -> None:
        _require_width("lstm.dim", self.cell_size)
        _require_width("lstm.projection_dim", self.projection_size)
        _require(0 < self.n_layers <= MAX_DEPTH, "lstm.n_layers", self.n_layers, f"from 1 to {MAX_DEPTH}")
        for key, clip in (("cell_clip", self.cell_clip), ("proj_clip", self.proj_clip)):
            _require(clip is None or clip > 0, f"lstm.{key}", clip, "null or more than 0")

    @property
    def has_projection(self) -> bool:
        """Whether cells are projected to a narrower output."""
        return self.projection_size != self.cell_size

    @property
    def input_flops(self) -> int:
        """Operations of one layer's product with its input, a row."""
        return 2 * 4 * self.cell_size * self.projection_size

    @property
    def step_flops(self) -> int:
        """Operations of one layer's products with its state and with its projection, a row."""
        return self.input_flops + (2 * self.cell_size * self.projection_size if self.has_projection else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BiLMConfig:
    """Sizes of the whole biLM."""

    char_cnn: CharCnnConfig
    lstm: LstmConfig

    @property
    def n_layers(self) -> int:
        """Layers of the output: the token layer and each LSTM layer."""
        return self.lstm.n_layers + 1

    @property
    def width(self) -> int:
        """Width of an output vector: both directions side by side."""
        return 2 * self.lstm.projection_size

    @property
    def has_cnn_projection(self) -> bool:
        """Whether the filters are projected to the width of the LSTMs' input."""
        return self.char_cnn.n_filters != self.lstm.projection_size

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> BiLMConfig:
        """Read AllenAI's options; entries that only training uses are ignored.

        Args:
            options: The parsed `options.json`.

        Raises:
            BundleError: A key is missing, of the wrong type or out of range; the message names it.
        """
        if "char_cnn" not in options:
            raise BundleError("has no 'char_cnn': models whose input is words, not characters, are not supported")
        cnn = _Section("char_cnn", options.get("char_cnn"))
        lstm = _Section("lstm", options.get("lstm"))
        return cls(
            char_cnn=CharCnnConfig(
                activation=cast(Activation, cnn.text("activation")),
                filters=_filters(cnn.required("filters")),
                n_highway=cnn.optional("n_highway", int) or 0,
                embedding_dim=_Section("char_cnn.embedding", cnn.required("embedding")).number("dim", int),
                n_characters=cnn.number("n_characters", int),
                max_characters_per_token=cnn.number("max_characters_per_token", int),
            ),
            lstm=LstmConfig(
                cell_size=lstm.number("dim", int),
                projection_size=lstm.number("projection_dim", int),
                n_layers=lstm.number("n_layers", int),
                cell_clip=lstm.optional("cell_clip", float),
                proj_clip=lstm.optional("proj_clip", float),
                use_skip_connections=lstm.flag("use_skip_connections"),
            ),
        )

    def to_options(self) -> dict[str, object]:
        """The same sizes as AllenAI's options."""
        cnn, lstm = self.char_cnn, self.lstm
        return {
            "char_cnn": {
                "activation": cnn.activation,
                "filters": [list(pair) for pair in cnn.filters],
                "n_highway": cnn.n_highway,
                "embedding": {"dim": cnn.embedding_dim},
                "n_characters": cnn.n_characters,
                "max_characters_per_token": cnn.max_characters_per_token,
            },
            "lstm": {
                "dim": lstm.cell_size,
                "projection_dim": lstm.projection_size,
                "n_layers": lstm.n_layers,
                "cell_clip": lstm.cell_clip,
                "proj_clip": lstm.proj_clip,
                "use_skip_connections": lstm.use_skip_connections,
            },
        }

    def complete_options(self, options: Mapping[str, object]) -> dict[str, object]:
        """Options with these sizes in their places and every other entry kept, inside the sections too.

        Args:
            options: As they were read; may be empty.
        """
        completed = dict(options)
        for name, sizes in self.to_options().items():
            section = completed.get(name)
            completed[name] = {**(section if isinstance(section, Mapping) else {}), **cast(Mapping[str, object], sizes)}
        return completed


class _Section:
    """One object of the options, read key by key with errors that name the key."""

    def __init__(self, name: str, values: object) -> None:
        if not isinstance(values, Mapping):
            raise BundleError(f"has no object '{name}'")
        self._name = name
        self._values = values

    def required(self, key: str) -> object:
        if key not in self._values:
            raise BundleError(f"has no '{self._name}.{key}'")
        return self._values[key]

    def number(self, key: str, kind: type[Number]) -> Number:
        return _number(f"{self._name}.{key}", self.required(key), kind)

    def optional(self, key: str, kind: type[Number]) -> Number | None:
        value = self._values.get(key)
        return None if value is None else _number(f"{self._name}.{key}", value, kind)

    def text(self, key: str) -> str:
        value = self.required(key)
        _require(isinstance(value, str), f"{self._name}.{key}", value, "a string")
        return cast(str, value)

    def flag(self, key: str) -> bool:
        value = self._values.get(key, False)
        _require(isinstance(value, bool), f"{self._name}.{key}", value, "true or false")
        return cast(bool, value)


def _number(key: str, value: object, kind: type[Number]) -> Number:
    legal = isinstance(value, int | float) and not isinstance(value, bool) and -MAX_NUMBER <= value <= MAX_NUMBER
    _require(legal and kind(cast(float, value)) == value, key, value, "a whole number" if kind is int else "a number")
    return kind(cast(float, value))


def _filters(value: object) -> tuple[tuple[int, int], ...]:
    key = "char_cnn.filters"
    _require(isinstance(value, list), key, value, "a list of [width, count] pairs")
    for pair in cast(list[object], value):
        _require(isinstance(pair, list) and len(pair) == 2, key, pair, "a [width, count] pair")
    return tuple((_number(key, width, int), _number(key, count, int)) for width, count in cast(list[list[object]], value))


def _require_width(key: str, value: int) -> None:
    _require(0 < value <= MAX_WIDTH, key, value, f"from 1 to {MAX_WIDTH}")


def _require(rule: bool, key: str, value: object, legal: str) -> None:
    if not rule:
        raise BundleError(f"'{key}' is {value!r}; it must be {legal}")
