"""A model folder: our own `config.json` + `model.safetensors`, or an AllenAI pair; load, check, save, hash."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmo_core.bilm import BiLM, BiLMState, parameter_shapes
from elmo_core.config import BiLMConfig
from elmo_core.errors import BundleError
from elmo_core.legacy import allenai
from elmo_core.lstm import LstmState
from elmo_core.vocabulary import Vocabulary, read_vocabulary

CONFIG_FILE: Final = "config.json"
WEIGHTS_FILE: Final = "model.safetensors"
SOFTMAX_FILE: Final = "softmax.safetensors"
VOCABULARY_FILE: Final = "vocabulary.txt"
UNFINISHED_FILE: Final = f".{CONFIG_FILE}.tmp"
"""There from the first byte of a bundle to the last."""
FORMAT: Final = "elmo-bundle-1"
WARM_PREFIX: Final = "warm_state."
UNTRAINED_OPTION: Final = "untrained"
"""Entry of AllenAI's options, true where weights of ours that were never trained have been converted to that format."""
DEFAULT_BUNDLE: Final = Path(__file__).parent / "bundles" / "default"


StoredType = Literal["float32", "float16"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Head:
    """What a language model has beside its biLM: only training and perplexity need it.

    Args:
        weight: Of the softmax, float32. Shape: (V, D).
        bias: Of the softmax, float32. Shape: (V,).
        vocabulary: The softmax's V tokens.
    """

    weight: Tensor
    bias: Tensor
    vocabulary: Vocabulary


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Bundle:
    """A biLM and what is known of it.

    Args:
        config: Sizes.
        tensors: Every parameter of `BiLM`, by its name there; float32, on the CPU.
        warm_state: The state in which sentences may start instead of zeros, for one lane; None when the bundle has
            none.
        trained: False for random weights, whose vectors mean nothing.
        options: AllenAI's options as they were read, entries that only training uses included.
        head: Softmax and vocabulary, where the bundle has them and they were asked for.
        training: How it was trained, in plain values: corpus, tokens, perplexity, configuration; empty when unknown.
        dtype: How `save` stores weights. Those of a float16 bundle are float16 values, held as float32.
    """

    config: BiLMConfig
    tensors: Mapping[str, Tensor]
    warm_state: BiLMState | None = None
    trained: bool = True
    options: Mapping[str, object] = field(default_factory=dict)
    head: Head | None = None
    training: Mapping[str, object] = field(default_factory=dict)
    dtype: StoredType = "float32"

    @property
    def hash(self) -> str:
        """SHA-256 over sizes and weights: the same for a bundle and for the AllenAI pair it came from."""
        digest = hashlib.sha256(json.dumps(self.config.to_options(), sort_keys=True).encode())
        for name, tensor in sorted(self._all_tensors().items()):
            digest.update(f"\n{name} {list(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()

    def build_bilm(self) -> BiLM:
        """The biLM with these weights, on the CPU, in float32, without gradients."""
        with torch.device("meta"):
            bilm = BiLM(self.config)
        bilm.load_state_dict(dict(self.tensors), strict=True, assign=True)
        return bilm.requires_grad_(False).eval()

    def to_float16(self) -> Bundle:
        """The same model, each value rounded to float16, stored in half the bytes.

        Raises:
            BundleError: A value is beyond float16's range.
        """
        if any(float(tensor.abs().max()) > torch.finfo(torch.float16).max for tensor in self._all_tensors().values()):
            raise BundleError("has weights beyond float16's range; keep float32")
        head = self.head and replace(self.head, weight=_round(self.head.weight), bias=_round(self.head.bias))
        warm = self.warm_state
        if warm is not None:
            ways = (warm.forward, warm.backward)
            warm = BiLMState(*(LstmState(_round(way.hidden), _round(way.cell)) for way in ways))
        tensors = {name: _round(tensor) for name, tensor in self.tensors.items()}
        return replace(self, tensors=tensors, head=head, warm_state=warm, dtype="float16")

    def save(self, folder: Path) -> None:
        """Write our own format; a crash leaves no bundle that loads.

        Args:
            folder: Made if it isn't there; must hold no files, though a folder in it stays.

        Raises:
            BundleError: The folder holds files already or can't be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(path.is_file() for path in folder.iterdir()):
                raise BundleError("is not empty; name a new folder", str(folder))
            card = {
                "format": FORMAT,
                "trained": self.trained,
                "hash": self.hash,
                "options": self.config.complete_options(self.options),
                **({"training": dict(self.training)} if self.training else {}),
            }
            scratch = folder / UNFINISHED_FILE
            scratch.write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            self._save_tensors(self._all_tensors(), folder / WEIGHTS_FILE, like=scratch)
            if self.head is not None:
                weights = {"softmax.weight": self.head.weight.contiguous(), "softmax.bias": self.head.bias.contiguous()}
                self._save_tensors(weights, folder / SOFTMAX_FILE, like=scratch)
                self.head.vocabulary.save(folder / VOCABULARY_FILE)
            os.replace(scratch, folder / CONFIG_FILE)
        except (OSError, SafetensorError) as error:
            raise BundleError(f"can't be written: {error}", str(folder)) from error

    def _save_tensors(self, tensors: dict[str, Tensor], path: Path, like: Path) -> None:
        save_file({name: tensor.to(getattr(torch, self.dtype)) for name, tensor in tensors.items()}, path)
        shutil.copymode(like, path)  # safetensors keeps it to the owner

    def _all_tensors(self) -> dict[str, Tensor]:
        tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        if self.warm_state is not None:
            for direction in ("forward", "backward"):
                state: LstmState = getattr(self.warm_state, direction)
                tensors[f"{WARM_PREFIX}{direction}.hidden"] = state.hidden.contiguous()
                tensors[f"{WARM_PREFIX}{direction}.cell"] = state.cell.contiguous()
        return tensors


def unfinished_files(folder: Path) -> list[Path]:
    """What a `Bundle.save` that was cut short left in a folder, the file that tells so last; nothing where none was."""
    if not (folder / UNFINISHED_FILE).is_file():
        return []
    names = (WEIGHTS_FILE, SOFTMAX_FILE, VOCABULARY_FILE, UNFINISHED_FILE)
    return [folder / name for name in names if (folder / name).is_file()]


def load_bundle(folder: Path, *, with_head: bool = False) -> Bundle:
    """Load a bundle of either kind, found by the files in it.

    Args:
        folder: Our own format, or AllenAI's `*options*.json` and `*weights*.hdf5`.
        with_head: Whether softmax and vocabulary are read too, where they are.

    Returns:
        The bundle, checked whole: every tensor is there, of its shape, finite, and no other is.

    Raises:
        BundleError: Something is missing, damaged or of an unknown kind; the message names file and key.
    """
    if not folder.is_dir():
        problem = "is not a folder; a bundle is a folder" if folder.exists() else "does not exist"
        raise BundleError(f"{problem} with {CONFIG_FILE} and {WEIGHTS_FILE}, or options.json and weights.hdf5", str(folder))
    if (folder / CONFIG_FILE).exists():
        return _load_own(folder, with_head)
    pair = allenai.find_pair(folder)
    if pair is None:
        raise BundleError(
            f"is no bundle: it has neither {CONFIG_FILE} and {WEIGHTS_FILE} nor one *options*.json and one *weights*.hdf5",
            str(folder),
        )
    options = read_json_object(pair.options)
    config = _config(options, pair.options)
    tensors = allenai.read_weights(pair.weights, config)
    return Bundle(config=config, tensors=tensors, trained=options.get(UNTRAINED_OPTION) is not True, options=options)


def read_json_object(path: Path) -> dict[str, object]:
    """Read a JSON file that must hold an object.

    Raises:
        BundleError: The file is missing, unreadable or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BundleError(f"can't be read as JSON: {error}", str(path)) from error
    if not isinstance(value, dict):
        raise BundleError(f"holds a JSON {type(value).__name__}, not an object", str(path))
    return value


def check_tensors(tensors: Mapping[str, Tensor], config: BiLMConfig, path: Path) -> None:
    """Hold tensors against what the biLM of this size needs.

    Args:
        tensors: By the names of `BiLM`.
        config: Sizes.
        path: The file at fault, for the message.

    Raises:
        BundleError: A tensor is missing, surplus, of another shape or type, or not finite.
    """
    expected = parameter_shapes(config)
    if missing := sorted(expected.keys() - tensors.keys()):
        raise BundleError(f"has no tensor {_names(missing)}, which the options ask for", str(path))
    if surplus := sorted(tensors.keys() - expected.keys()):
        raise BundleError(f"has tensor {_names(surplus)}, which the options do not know", str(path))
    for name, shape in expected.items():
        _check_tensor(name, tensors[name], shape, path)


def _load_own(folder: Path, with_head: bool) -> Bundle:
    card = read_json_object(folder / CONFIG_FILE)
    if card.get("format") != FORMAT:
        raise BundleError(f"'format' is {card.get('format')!r}; this release reads {FORMAT!r}", str(folder / CONFIG_FILE))
    options = card.get("options")
    if not isinstance(options, dict):
        raise BundleError("has no object 'options'", str(folder / CONFIG_FILE))
    config = _config(options, folder / CONFIG_FILE)
    path = folder / WEIGHTS_FILE
    stored = _load_tensors(path)
    is_half = bool(stored) and all(tensor.dtype == torch.float16 for tensor in stored.values())
    tensors = {name: tensor.float() for name, tensor in stored.items()} if is_half else stored
    warm = {name: tensors.pop(name) for name in list(tensors) if name.startswith(WARM_PREFIX)}
    check_tensors(tensors, config, path)
    bundle = Bundle(
        config=config,
        tensors=tensors,
        warm_state=_warm_state(warm, config, path) if warm else None,
        trained=card.get("trained") is not False,
        options=options,
        head=_load_head(folder, config) if with_head and (folder / SOFTMAX_FILE).exists() else None,
        training=_training(card, folder / CONFIG_FILE),
        dtype="float16" if is_half else "float32",
    )
    if bundle.hash != card.get("hash"):
        raise BundleError(f"differs from the hash in {CONFIG_FILE}: it was damaged or changed; copy the bundle anew", str(path))
    return bundle


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise BundleError(f"can't be read as safetensors: {error}", str(path)) from error


def _load_head(folder: Path, config: BiLMConfig) -> Head:
    path = folder / SOFTMAX_FILE
    vocabulary = read_vocabulary(folder / VOCABULARY_FILE)
    tensors = {name: tensor.float() for name, tensor in _load_tensors(path).items()}
    shapes = {"softmax.weight": (len(vocabulary), config.lstm.projection_size), "softmax.bias": (len(vocabulary),)}
    if tensors.keys() != shapes.keys():
        raise BundleError(f"must hold {_names(sorted(shapes))}, and no more", str(path))
    for name, shape in shapes.items():
        _check_tensor(name, tensors[name], shape, path)
    return Head(weight=tensors["softmax.weight"], bias=tensors["softmax.bias"], vocabulary=vocabulary)


def _training(card: Mapping[str, object], path: Path) -> dict[str, object]:
    training = card.get("training", {})
    if not isinstance(training, dict):
        raise BundleError("'training' is no object", str(path))
    return training


def _round(tensor: Tensor) -> Tensor:
    return tensor.half().float()


def _warm_state(tensors: Mapping[str, Tensor], config: BiLMConfig, path: Path) -> BiLMState:
    lstm = config.lstm
    shapes = {"hidden": (lstm.n_layers, 1, lstm.projection_size), "cell": (lstm.n_layers, 1, lstm.cell_size)}
    expected = {f"{WARM_PREFIX}{way}.{part}": shapes[part] for way in ("forward", "backward") for part in shapes}
    if tensors.keys() != expected.keys():
        raise BundleError(f"must hold all of {_names(sorted(expected))} or none, and no more", str(path))
    for name, shape in expected.items():
        _check_tensor(name, tensors[name], shape, path)
    return BiLMState(
        *(
            LstmState(tensors[f"{WARM_PREFIX}{way}.hidden"], tensors[f"{WARM_PREFIX}{way}.cell"])
            for way in ("forward", "backward")
        )
    )


def _config(options: Mapping[str, object], path: Path) -> BiLMConfig:
    try:
        return BiLMConfig.from_options(options)
    except BundleError as error:
        raise BundleError(error.message, str(path)) from error


def _check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], path: Path) -> None:
    if tuple(tensor.shape) != shape:
        raise BundleError(f"'{name}' has shape {list(tensor.shape)}; the options ask for {list(shape)}", str(path))
    if tensor.dtype != torch.float32:
        raise BundleError(f"'{name}' is {tensor.dtype}; weights are stored as float32", str(path))
    if not bool(torch.isfinite(tensor).all()):
        raise BundleError(f"'{name}' holds NaN or infinite values", str(path))


def _names(names: list[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in names[:3])
    return listed if len(names) <= 3 else f"{listed} and {len(names) - 3} more"
