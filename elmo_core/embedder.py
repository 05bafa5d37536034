"""Token lists to per-layer vectors: the only file that chooses devices, precision and batches."""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo_core import charids
from elmo_core.bilm import BiLM, BiLMState
from elmo_core.bundle import Bundle, load_bundle
from elmo_core.cell import fuse_update_cell, update_cell
from elmo_core.config import BiLMConfig
from elmo_core.cuda import GraphLstm
from elmo_core.errors import ConfigError
from elmo_core.lanes import Integers, LanePlan, plan_lanes
from elmo_core.recurrence import LaneLstm
from elmo_core.tokentable import TokenTable

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bfloat16"]
InitialState = Literal["zero", "warm"]
Float32Array = npt.NDArray[np.float32]

BATCH_TOKENS: Final = {"cpu": 32_768, "cuda": 65_536}
"""Tokens embedded at once, by device: lanes long enough to fill evenly. 400 MB of vectors at the original size on CPUs."""
MAX_LANES: Final = {"cpu": 256, "cuda": 512}
TABLE_BYTES: Final = 128 * 2**20
"""Token vectors kept from batch to batch: 65,536 of them at the original size."""
FUSE_AFTER_TOKENS: Final = 300_000
"""Tokens after which compiling the cell's arithmetic pays on a CPU; it changes no number there."""
FUSE_CELL_SIZE: Final = 2048
"""Cells of a layer from which it pays; in smaller ones a compiled function's call costs more than it saves."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class SentenceVectors:
    """Vectors of some sentences, one after another.

    Args:
        layers: Shape: (L + 1, tokens, 2D).
        offsets: Sentence i owns tokens `offsets[i]` to `offsets[i + 1]`. Shape: (sentences + 1,).
    """

    layers: Float32Array
    offsets: npt.NDArray[np.int64]

    def sentence(self, i: int) -> Float32Array:
        """Vectors of one sentence, a view. Shape: (L + 1, T, 2D)."""
        return self.layers[:, self.offsets[i] : self.offsets[i + 1]]


@dataclass(slots=True)
class EmbedderCounts:
    """What an embedder has done so far.

    Args:
        n_tokens: Tokens embedded.
        n_rows: Rows that went through each direction's LSTMs: tokens and one boundary token a sentence.
        n_steps: Steps of the lanes, batch by batch.
        n_lane_steps: Lanes times steps, whether or not a lane was still at work.
        n_lookups: Distinct tokens, batch by batch.
        n_hits: How many of them were in the table already.
        n_flops: Floating-point operations of the LSTMs' products.
        n_halvings: Times that the lanes were halved for want of memory.
    """

    n_tokens: int = 0
    n_rows: int = 0
    n_steps: int = 0
    n_lane_steps: int = 0
    n_lookups: int = 0
    n_hits: int = 0
    n_flops: int = 0
    n_halvings: int = 0

    def copy(self) -> EmbedderCounts:
        """The counts of this moment."""
        return replace(self)

    def since(self, before: EmbedderCounts) -> EmbedderCounts:
        """What was done since an earlier moment."""
        return EmbedderCounts(**{f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)})


class Embedder:
    """Embed tokenized sentences; each vector depends on the sentence and the bundle alone.

    Safe to share between threads: one embeds at a time, with all the cores that torch was given.

    Args:
        bundle: The model.
        device: `auto` takes CUDA where there is one.
        precision: Of the LSTMs' weights and products; cells and vectors are float32 always.
        initial_state: Where every sentence starts: zeros, or the bundle's warm state.

    Raises:
        ConfigError: The device isn't there, or the bundle has no warm state.
    """

    def __init__(
        self, bundle: Bundle, *, device: Device = "auto", precision: Precision = "float32", initial_state: InitialState = "zero"
    ) -> None:
        _check_choice("precision", precision, Precision)
        _check_choice("initial_state", initial_state, InitialState)
        self.device = resolve_device(device)
        warn_of_slow_precision(self.device, precision)
        self.config: BiLMConfig = bundle.config
        """Sizes of the biLM."""
        self.counts = EmbedderCounts()
        """What was done so far."""
        bilm = bundle.build_bilm().to(self.device)
        self.precision: torch.dtype = getattr(torch, precision)
        """Of the LSTMs' weights and products."""
        lstm = GraphLstm if self.device.type == "cuda" else LaneLstm
        self._forward, self._backward = lstm(bilm.forward_lstm, self.precision), lstm(bilm.backward_lstm, self.precision)
        self._start = _initial_state(bundle, bilm, initial_state).to(self.device)
        self._max_lanes = MAX_LANES[self.device.type]
        self._update = fuse_update_cell(self.device) if self.device.type == "cuda" else update_cell
        self._lock = threading.Lock()
        with torch.inference_mode():
            max_tokens = TABLE_BYTES // (4 * self.config.lstm.projection_size)
            self._table = TokenTable(bilm.char_cnn, self.config.char_cnn.max_characters_per_token, max_tokens)

    @property
    def batch_tokens(self) -> int:
        """Tokens that are embedded at once at best."""
        return BATCH_TOKENS[self.device.type]

    def embed(self, sentences: Sequence[Sequence[str]]) -> list[Float32Array]:
        """Embed sentences, in the order given.

        Args:
            sentences: Token lists; boundary tokens are added here and their vectors dropped. A list may be empty.

        Returns:
            For each sentence an array of its own. Shape: (L + 1, T, 2D).

        Raises:
            TypeError: A sentence is a string, or a token is none.
        """
        for i, tokens in enumerate(sentences):
            if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
                raise TypeError(f"sentence {i} is {tokens!r:.60}; a sentence is a list of strings, one for each token")
        batches = plan_batches([len(tokens) for tokens in sentences], self.batch_tokens)
        return [
            np.ascontiguousarray(vectors.sentence(i))
            for vectors in self.embed_batches(sentences[batch.start : batch.stop] for batch in batches)
            for i in range(len(vectors.offsets) - 1)
        ]

    def embed_batches(self, batches: Iterable[Sequence[Sequence[str]]]) -> Iterator[SentenceVectors]:
        """Embed batches in turn; on CUDA a batch's vectors are copied to the host while the next one is computed.

        Args:
            batches: Token lists few enough for memory: 12 bytes times width a token and layer, about.

        Yields:
            All vectors of a batch in one array.
        """
        before: _HostCopy | None = None
        for batch in batches:
            now = self._embed_batch(batch)
            if self.device.type == "cpu":  # nothing to wait for, and memory to save
                yield now.wait()
                continue
            if before is not None:
                yield before.wait()
            before = now
        if before is not None:
            yield before.wait()

    def n_cut(self, tokens: Sequence[str]) -> int:
        """Tokens longer than the model's byte limit, whose vectors know only their beginning."""
        return sum(charids.is_cut(token, self.config.char_cnn.max_characters_per_token) for token in tokens)

    def _embed_batch(self, sentences: Sequence[Sequence[str]]) -> _HostCopy:
        with self._lock, torch.inference_mode():
            is_large = self.config.lstm.cell_size >= FUSE_CELL_SIZE
            if is_large and self._update is update_cell and self.counts.n_tokens >= FUSE_AFTER_TOKENS:
                self._update = fuse_update_cell(self.device)
            while True:
                try:
                    return self._embed_locked(sentences)
                except torch.OutOfMemoryError as error:
                    self._halve_lanes(error)

    def _embed_locked(self, sentences: Sequence[Sequence[str]]) -> _HostCopy:
        lengths = np.array([len(tokens) for tokens in sentences], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        n_tokens = int(offsets[-1])
        numbers = {charids.BOS: 0, charids.EOS: 1}
        token_numbers = np.array([numbers.setdefault(t, len(numbers)) for tokens in sentences for t in tokens], dtype=np.int64)
        table = self._table.embed(list(numbers))
        # Only the boundary token before a sentence matters to its vectors, so each direction reads n + 1 positions.
        plan = plan_lanes([n + 1 if n else 0 for n in lengths.tolist()], self._max_lanes)
        width = self.config.lstm.projection_size
        # The last row takes what comes out at boundary tokens.
        layers = torch.empty(self.config.n_layers, n_tokens + 1, 2 * width, device=self.device)
        layers[0, :-1] = table[self._send(token_numbers)].repeat(1, 2)
        begin, end = offsets[plan.sentence], (offsets + np.append(lengths, 0))[plan.sentence]
        for lstm, start, tokens, boundary, columns in (
            (self._forward, self._start.forward, begin + plan.position - 1, 0, slice(width)),
            (self._backward, self._start.backward, end - plan.position, 1, slice(width, None)),
        ):
            is_token = plan.position > 0
            rows = np.full(len(tokens), boundary)
            rows[is_token] = token_numbers[tokens[is_token]]
            targets = np.where(is_token, tokens, n_tokens)
            outputs = layers[1:, :, columns]
            self.counts.n_flops += lstm.run(table, self._send(rows), plan, start, self._update, outputs, self._send(targets))
        self._count(n_tokens, plan)
        return _HostCopy(layers[:, :-1], offsets)

    def _send(self, integers: Integers) -> Tensor:
        return torch.from_numpy(integers).to(self.device)

    def _count(self, n_tokens: int, plan: LanePlan) -> None:
        self.counts.n_tokens += n_tokens
        self.counts.n_rows += len(plan.position)
        self.counts.n_steps += len(plan.active)
        self.counts.n_lane_steps += plan.n_lanes * len(plan.active)
        self.counts.n_lookups, self.counts.n_hits = self._table.n_lookups, self._table.n_hits

    def _halve_lanes(self, error: torch.OutOfMemoryError) -> None:
        if self._max_lanes == 1:
            raise ConfigError(f"the device has too little memory for this model, even with one lane: {error}") from error
        self._max_lanes //= 2
        self.counts.n_halvings += 1
        torch.cuda.empty_cache()
        _logger.warning("out of memory on %s; going on with %d lanes", self.device, self._max_lanes)


def load_embedder(
    path: str | Path, *, device: Device = "auto", precision: Precision = "float32", initial_state: InitialState = "zero"
) -> Embedder:
    """Load a bundle and make an embedder of it.

    Args:
        path: A bundle's folder.
        device: `auto`, `cpu` or `cuda`.
        precision: `float32` or `bfloat16`.
        initial_state: `zero` or `warm`.

    Raises:
        BundleError: The bundle is damaged, incomplete or of an unknown kind.
        ConfigError: The device isn't there, or the bundle has no warm state.

    Example:
        >>> from elmo_core import DEFAULT_BUNDLE, load_embedder
        >>> load_embedder(DEFAULT_BUNDLE, device="cpu").embed([["Hello", "world"]])[0].shape
        (3, 2, 256)
    """
    return Embedder(load_bundle(Path(path)), device=device, precision=precision, initial_state=initial_state)


def resolve_device(device: Device) -> torch.device:
    """The device that a name stands for.

    Raises:
        ConfigError: The name is unknown, or CUDA was asked for and isn't there.
    """
    _check_choice("device", device, Device)
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ConfigError("device 'cuda' was asked for, but torch finds no CUDA device here; take 'cpu' or 'auto'")
    return torch.device("cuda" if has_cuda and device != "cpu" else "cpu")


def warn_of_slow_precision(device: torch.device, precision: Precision) -> None:
    """Log a warning where products in this precision run without instructions of their own."""
    bare = platform.machine().lower() in ("x86_64", "amd64") and torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")
    if device.type == "cpu" and precision == "bfloat16" and bare:
        _logger.warning("this processor has no AVX-512, so bfloat16 is many times slower here than float32")


def plan_batches(lengths: Sequence[int], max_tokens: int) -> Iterator[range]:
    """Group sentences in their order into batches of about the same size.

    Args:
        lengths: Tokens of each sentence.
        max_tokens: A batch holds at most this many tokens, or one longer sentence.
    """
    n_batches = max(1, -(-sum(lengths) // max_tokens))
    target = -(-sum(lengths) // n_batches)
    start, n_tokens = 0, 0
    for i, length in enumerate(lengths):
        if i > start and length and (n_tokens >= target or n_tokens + length > max_tokens):
            yield range(start, i)
            start, n_tokens = i, 0
        n_tokens += length
    if start < len(lengths):
        yield range(start, len(lengths))


def _initial_state(bundle: Bundle, bilm: BiLM, initial_state: InitialState) -> BiLMState:
    if initial_state == "zero":
        return bilm.zero_state(1)
    if bundle.warm_state is None:
        raise ConfigError("the bundle has no warm state; take initial_state 'zero'")
    return bundle.warm_state


class _HostCopy:
    """Vectors on their way to the host."""

    def __init__(self, layers: Tensor, offsets: Integers) -> None:
        self._offsets = offsets
        self._copied: torch.cuda.Event | None = None
        if layers.device.type == "cpu":
            self._layers = layers
            return
        self._layers = torch.empty(layers.shape, pin_memory=True)
        computed = torch.cuda.current_stream().record_event()
        copies = _copy_stream(layers.device)
        with torch.cuda.stream(copies):
            copies.wait_event(computed)
            self._layers.copy_(layers, non_blocking=True)
            layers.record_stream(copies)
            self._copied = copies.record_event()

    def wait(self) -> SentenceVectors:
        if self._copied is not None:
            self._copied.synchronize()
        return SentenceVectors(self._layers.numpy(), self._offsets)


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's annotation is missing


def _check_choice(name: str, value: str, choices: object) -> None:
    legal = get_args(choices)
    if value not in legal:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(legal)}")
