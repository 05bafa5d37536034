"""Where a training run happens: its folder, its device, its processes."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import torch
from lightning_fabric import Fabric

from elmo_core import ConfigError
from elmo_core.embedder import warn_of_slow_precision
from elmo_core.training.config import TrainingConfig
from pipelines import storage

TRAINING_FOLDER: Final = "training"
"""Beside the bundle's own files: checkpoints, curves, vocabulary of the run."""


def prepare_output(uri: str, *, resume: bool) -> Path:
    """The folder of a run, which may hold what an earlier try of it left.

    Args:
        uri: As it was given.
        resume: Whether checkpoints in it are to be gone on from.

    Raises:
        ConfigError: It isn't local, can't be written, or holds something else.
    """
    if not storage.is_local(uri):
        raise ConfigError("is not a local folder; train into one, then copy the bundle", uri)
    folder = Path(storage.absolute(uri).removeprefix("file://"))
    if folder.is_file():
        raise ConfigError("is a file; name a new folder", uri)
    if folder.is_dir() and any(path.is_file() for path in folder.iterdir()):
        raise ConfigError("holds files already, perhaps a finished bundle; name a new folder", uri)
    if not resume and list(folder.glob(f"{TRAINING_FOLDER}/checkpoints/step-*")):
        raise ConfigError("holds checkpoints of an earlier run; give --resume to go on, or name a new --output", uri)
    storage.check_writable(str(folder))
    return folder


def launch(device: torch.device, config: TrainingConfig) -> Fabric:
    """Set up devices, precision and, under torchrun, the processes."""
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    n_ranks, n_local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    fabric = Fabric(
        accelerator="cuda" if device.type == "cuda" else "cpu",
        devices=n_local,
        num_nodes=n_ranks // n_local,
        strategy="ddp" if n_ranks > 1 else "auto",
        precision="bf16-mixed" if config.precision == "bfloat16" else "32-true",
    )
    fabric.launch()
    if fabric.is_global_zero:
        warn_of_slow_precision(device, config.precision)
    return fabric
