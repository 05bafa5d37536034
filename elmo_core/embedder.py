"""Token lists to per-layer vectors: the only file that knows devices, precision and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo_core import charids
from elmo_core.bilm import BiLM, BiLMState
from elmo_core.bundle import Bundle, load_bundle
from elmo_core.config import BiLMConfig
from elmo_core.errors import ConfigError
from elmo_core.lanes import LanePlan, plan_lanes
from elmo_core.lstm import LstmStack, LstmState

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bfloat16"]
InitialState = Literal["zero", "warm"]
Float32Array = npt.NDArray[np.float32]

BATCH_TOKENS: Final = 8192
"""Tokens embedded at once: 100 MB of vectors at the original size, and lanes long enough to fill evenly."""
MAX_LANES: Final = 128
CNN_TOKENS: Final = 256
"""Distinct tokens that go through the char-CNN at once."""


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


class Embedder:
    """Embed tokenized sentences; each vector depends on the sentence and the bundle alone.

    Safe to share between threads.

    Args:
        bundle: The model.
        device: `auto` takes CUDA where there is one.
        precision: Of the LSTMs' weights and products; states and vectors are float32 always.
        initial_state: Where every sentence starts: zeros, or the bundle's warm state.

    Raises:
        ConfigError: The device isn't there, or the bundle has no warm state.
    """

    def __init__(
        self, bundle: Bundle, *, device: Device = "auto", precision: Precision = "float32", initial_state: InitialState = "zero"
    ) -> None:
        self.device = resolve_device(device)
        self._bilm = _place(bundle.build_bilm(), self.device, precision)
        self._start = self._initial_state(bundle, initial_state)

    @property
    def config(self) -> BiLMConfig:
        """Sizes of the biLM."""
        return self._bilm.config

    def embed(self, sentences: Sequence[Sequence[str]]) -> list[Float32Array]:
        """Embed sentences, in the order given.

        Args:
            sentences: Token lists; boundary tokens are added here and their vectors dropped. A list may be empty.

        Returns:
            For each sentence an array of its own. Shape: (L + 1, T, 2D).
        """
        return [
            np.ascontiguousarray(vectors.sentence(i))
            for batch in plan_batches([len(tokens) for tokens in sentences], BATCH_TOKENS)
            for vectors in [self.embed_batch(sentences[batch.start : batch.stop])]
            for i in range(len(batch))
        ]

    @torch.inference_mode()
    def embed_batch(self, sentences: Sequence[Sequence[str]]) -> SentenceVectors:
        """Embed sentences that are few enough for memory: 12 bytes times width a token and layer, about.

        Args:
            sentences: Token lists.

        Returns:
            All vectors in one array.
        """
        lengths = np.array([len(tokens) for tokens in sentences], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        numbers = {charids.BOS: 0, charids.EOS: 1}
        token_numbers = np.array([numbers.setdefault(t, len(numbers)) for tokens in sentences for t in tokens], dtype=np.int64)
        table = self._token_vectors(list(numbers))
        # Only the boundary token before a sentence matters to its vectors, so each direction reads n + 1 positions.
        plan = plan_lanes([n + 1 if n else 0 for n in lengths.tolist()], MAX_LANES)
        width = self.config.lstm.projection_size
        layers = torch.empty(self.config.n_layers, len(token_numbers), 2 * width, device=self.device)
        layers[0] = table[torch.from_numpy(token_numbers).to(self.device)].repeat(1, 2)
        token_of_row = offsets[plan.sentence] + plan.position - 1
        mirrored = offsets[plan.sentence] + lengths[plan.sentence] - plan.position
        for lstm, start, rows, boundary, columns in (
            (self._bilm.forward_lstm, self._start.forward, token_of_row, 0, slice(0, width)),
            (self._bilm.backward_lstm, self._start.backward, mirrored, 1, slice(width, 2 * width)),
        ):
            inside = plan.position > 0
            inputs = np.full(len(rows), boundary)
            inputs[inside] = token_numbers[rows[inside]]
            outputs = self._run(lstm, start, table[torch.from_numpy(inputs).to(self.device)], plan)
            kept = torch.from_numpy(inside.nonzero()[0]).to(self.device)
            layers[1:, torch.from_numpy(rows[inside]).to(self.device), columns] = outputs[:, kept]
        return SentenceVectors(layers.cpu().numpy(), offsets)

    def n_cut(self, tokens: Sequence[str]) -> int:
        """Tokens longer than the model's byte limit, whose vectors know only their beginning."""
        return sum(charids.is_cut(token, self.config.char_cnn.max_characters_per_token) for token in tokens)

    def _token_vectors(self, tokens: Sequence[str]) -> Tensor:
        ids = charids.encode_tokens(tokens, self.config.char_cnn.max_characters_per_token)
        order = np.argsort(charids.n_positions(ids), kind="stable")  # short ones together: fewer positions to convolve
        table = torch.empty(len(tokens), self.config.lstm.projection_size, device=self.device)
        for some in np.array_split(order, range(CNN_TOKENS, len(order), CNN_TOKENS)):
            table[torch.from_numpy(some).to(self.device)] = self._bilm.char_cnn(torch.from_numpy(ids[some]).to(self.device))
        return table

    def _run(self, lstm: LstmStack, start: LstmState, inputs: Tensor, plan: LanePlan) -> Tensor:
        starts = torch.from_numpy(plan.position == 0)
        outputs: Tensor = lstm(inputs, plan.active, starts, start, start.repeat(plan.n_lanes))[0]
        return outputs

    def _initial_state(self, bundle: Bundle, initial_state: InitialState) -> BiLMState:
        _check_choice("initial_state", initial_state, InitialState)
        if initial_state == "zero":
            return self._bilm.zero_state(1)
        if bundle.warm_state is None:
            raise ConfigError("the bundle has no warm state; take initial_state 'zero'")
        return bundle.warm_state.to(self.device)


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
        (3, 2, 64)
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


def plan_batches(lengths: Sequence[int], max_tokens: int) -> Iterator[range]:
    """Group sentences in their order; a batch holds at most `max_tokens`, or one longer sentence."""
    start, n_tokens = 0, 0
    for i, length in enumerate(lengths):
        if i > start and n_tokens + length > max_tokens:
            yield range(start, i)
            start, n_tokens = i, 0
        n_tokens += length
    if start < len(lengths):
        yield range(start, len(lengths))


def _place(bilm: BiLM, device: torch.device, precision: Precision) -> BiLM:
    _check_choice("precision", precision, Precision)
    bilm.to(device)
    if precision == "bfloat16":
        for name, parameter in bilm.named_parameters():
            if "_lstm." in name and parameter.dim() == 2:
                parameter.data = parameter.data.to(torch.bfloat16)
    return bilm


def _check_choice(name: str, value: str, choices: object) -> None:
    legal = get_args(choices)
    if value not in legal:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(legal)}")
