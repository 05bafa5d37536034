"""Where a training run happens: its folder, its device, its processes."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from lightning_fabric import Fabric

from elmo_core import ConfigError
from elmo_core.bundle import unfinished_files
from elmo_core.embedder import warn_of_slow_precision
from elmo_core.training.config import TrainingConfig
from pipelines import storage

_logger = logging.getLogger(__name__)

TRAINING_FOLDER: Final = "training"
"""Beside the bundle's own files: checkpoints, curves, vocabulary of the run."""


def prepare_output(uri: str, *, resume: bool) -> Path:
    """The folder of a run, which may hold what an earlier try of it left.

    Args:
        uri: As it was given.
        resume: Whether checkpoints in it are to be gone on from; a bundle that it left unfinished may be there then.

    Raises:
        ConfigError: It isn't local, can't be written, or holds something else.
    """
    if not storage.is_local(uri):
        raise ConfigError("is not a local folder; train into one, then copy the bundle", uri)
    folder = Path(storage.absolute(uri).removeprefix("file://"))
    if folder.is_file():
        raise ConfigError("is a file; name a new folder", uri)
    left = unfinished_files(folder) if resume else []
    if folder.is_dir() and any(path.is_file() and path not in left for path in folder.iterdir()):
        raise ConfigError("holds files already, perhaps a finished bundle; name a new folder", uri)
    if not resume and list(folder.glob(f"{TRAINING_FOLDER}/checkpoints/step-*")):
        raise ConfigError("holds checkpoints of an earlier run; give --resume to go on, or name a new --output", uri)
    storage.check_writable(str(folder))
    return folder


@contextmanager
def hold_output(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder; it is free again when the process ends, however it does.

    Raises:
        ConfigError: Another run holds it.
    """
    opened = os.open(folder, os.O_RDONLY)
    try:
        _lock(opened, folder)
        yield
    finally:
        os.close(opened)


def _lock(opened: int, folder: Path) -> None:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError("another run trains into it; wait for its end, or name a new --output", str(folder)) from error
    except OSError as error:  # a file system without locks is no reason not to train
        _logger.debug("%s can't be locked: %s", folder, error.strerror)


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
