"""AllenAI's `options.json` + `weights.hdf5`: a table of names and turns, used both ways."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import torch
from torch import Tensor

from elmo_core.bilm import parameter_shapes
from elmo_core.config import BiLMConfig
from elmo_core.errors import BundleError

OPTIONS_FILE = "options.json"
WEIGHTS_FILE = "weights.hdf5"

Turn = Literal["same", "transpose", "filter", "input", "recurrent"]


@dataclass(frozen=True, slots=True)
class Pair:
    """The two files of a model."""

    options: Path
    weights: Path


@dataclass(frozen=True, slots=True)
class Entry:
    """One of our tensors and where the file has it.

    Args:
        name: Our name.
        key: The file's data set; `input` and `recurrent` are the upper and the lower rows of one.
        turn: How the file's axes become ours.
    """

    name: str
    key: str
    turn: Turn


def find_pair(folder: Path) -> Pair | None:
    """The one `*options*.json` and the one `*weights*.hdf5` of a folder, or None.

    Raises:
        BundleError: There are several of a kind, so that it's unclear which is meant; or only one half is there.
    """
    options, weights = sorted(folder.glob("*options*.json")), sorted(folder.glob("*weights*.hdf5"))
    for found in (options, weights):
        if len(found) > 1:
            raise BundleError(f"has both {found[0].name} and {found[1].name}; keep one model in a folder", str(folder))
    if len(options) != len(weights):
        missing = "*options*.json" if weights else "*weights*.hdf5"
        raise BundleError(f"has {(options + weights)[0].name} but no {missing}", str(folder))
    return Pair(options[0], weights[0]) if options else None


def read_weights(path: Path, config: BiLMConfig) -> dict[str, Tensor]:
    """Read a weights file into our names and axes.

    Args:
        path: The HDF5 file.
        config: Sizes, which say what data sets there must be.

    Returns:
        Tensors by the names of `BiLM`, float32.

    Raises:
        BundleError: The file is no whole HDF5 file; a data set is missing, surplus, of another shape or type, or not finite.
    """
    try:
        with h5py.File(path, "r") as file:
            arrays = _read_all(file)
    except (OSError, RuntimeError, KeyError, ValueError) as error:  # h5py's, by the part of the file that is damaged
        raise BundleError(f"can't be read as HDF5: {error}", str(path)) from error
    entries = list(_entries(config))
    if surplus := sorted(arrays.keys() - {entry.key for entry in entries}):
        raise BundleError(f"has '{surplus[0]}', which the options do not know", str(path))
    tensors, shapes = {}, parameter_shapes(config)
    for entry in entries:
        if entry.key not in arrays:
            raise BundleError(f"has no '{entry.key}', which the options ask for", str(path))
        array = arrays[entry.key]
        _check_array(entry, array, shapes[entry.name], path)
        tensors[entry.name] = torch.from_numpy(_turn_to_ours(entry.turn, array, config))
    return tensors


def write_pair(folder: Path, config: BiLMConfig, options: Mapping[str, object], tensors: Mapping[str, Tensor]) -> None:
    """Write a model as AllenAI's tools read it.

    Args:
        folder: Made if it isn't there; must hold no files.
        config: Sizes.
        options: Further entries of `options.json`.
        tensors: By the names of `BiLM`.

    Raises:
        BundleError: The folder holds files already or can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BundleError("is not empty; name a new folder", str(folder))
        with h5py.File(folder / WEIGHTS_FILE, "w") as file:
            for key, array in _arrays(config, tensors).items():
                file[key] = array
        text = json.dumps(config.complete_options(options), indent=1) + "\n"
        (folder / OPTIONS_FILE).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BundleError(f"can't be written: {error}", str(folder)) from error


def _entries(config: BiLMConfig) -> Iterator[Entry]:
    yield Entry("char_cnn.embedding", "char_embed", "same")
    for i in range(len(config.char_cnn.filters)):
        yield Entry(f"char_cnn.filters.{i}.weight", f"CNN/W_cnn_{i}", "filter")
        yield Entry(f"char_cnn.filters.{i}.bias", f"CNN/b_cnn_{i}", "same")
    for i in range(config.char_cnn.n_highway):
        for part in ("carry", "transform"):
            yield Entry(f"char_cnn.highways.{i}.{part}.weight", f"CNN_high_{i}/W_{part}", "transpose")
            yield Entry(f"char_cnn.highways.{i}.{part}.bias", f"CNN_high_{i}/b_{part}", "same")
    if config.has_cnn_projection:
        yield Entry("char_cnn.projection.weight", "CNN_proj/W_proj", "transpose")
        yield Entry("char_cnn.projection.bias", "CNN_proj/b_proj", "same")
    for number, direction in enumerate(("forward", "backward")):
        for i in range(config.lstm.n_layers):
            ours, theirs = f"{direction}_lstm.layers.{i}", f"RNN_{number}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            yield Entry(f"{ours}.input_weight", f"{theirs}/W_0", "input")
            yield Entry(f"{ours}.recurrent_weight", f"{theirs}/W_0", "recurrent")
            yield Entry(f"{ours}.bias", f"{theirs}/B", "same")
            if config.lstm.has_projection:
                yield Entry(f"{ours}.projection", f"{theirs}/W_P_0", "transpose")


def _read_all(file: h5py.File) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}

    def read(name: str, node: object) -> None:
        if isinstance(node, h5py.Dataset):
            arrays[name] = np.asarray(node)

    file.visititems(read)
    return arrays


def _check_array(entry: Entry, array: np.ndarray, ours: tuple[int, ...], path: Path) -> None:
    shape = {
        "same": ours,
        "transpose": ours[::-1],
        "filter": (1, *ours[::-1]),
        "input": (2 * ours[-1], ours[0]),
        "recurrent": (2 * ours[-1], ours[0]),
    }[entry.turn]
    if array.shape != shape:
        raise BundleError(f"'{entry.key}' has shape {list(array.shape)}; the options ask for {list(shape)}", str(path))
    if array.dtype != np.float32:
        raise BundleError(f"'{entry.key}' is {array.dtype}; weights are float32", str(path))
    if not np.isfinite(array).all():
        raise BundleError(f"'{entry.key}' holds NaN or infinite values", str(path))


def _turn_to_ours(turn: Turn, array: np.ndarray, config: BiLMConfig) -> np.ndarray:
    width = config.lstm.projection_size
    if turn == "same":
        turned = array
    elif turn == "transpose":
        turned = array.T
    elif turn == "filter":
        turned = array[0].transpose(2, 1, 0)  # (1, span, width, count) -> (count, width, span)
    else:  # the rows of the input stand above those of the state
        turned = (array[:width] if turn == "input" else array[width:]).T
    return np.ascontiguousarray(turned)


def _arrays(config: BiLMConfig, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for entry in _entries(config):
        array = tensors[entry.name].numpy()
        if entry.turn == "recurrent":  # the input rows stand there already
            arrays[entry.key] = np.concatenate([arrays[entry.key], array.T])
        elif entry.turn == "filter":
            arrays[entry.key] = array.transpose(2, 1, 0)[None]
        else:
            arrays[entry.key] = array if entry.turn == "same" else array.T
    return arrays
