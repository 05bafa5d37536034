"""What a training run will cost, measured before its first step."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import Final

import torch
from lightning_fabric import Fabric

from elmo_core.training.model import LanguageModel
from elmo_core.training.windows import Windows

TRIAL_WINDOWS: Final = 3
_OPTIMIZER_BYTES: Final = 8
"""AdamW's two running means of a parameter, which are there from the first step on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCost:
    """Cost of a run, in this process.

    Args:
        n_parameters: In all.
        n_softmax_parameters: Of the softmax.
        n_bytes: Most memory, on the device where there is one.
        targets_per_second: Predictions in each direction; 0.0 when the text is too short to tell.
    """

    n_parameters: int
    n_softmax_parameters: int
    n_bytes: int
    targets_per_second: float


def measure_cost(fabric: Fabric, model: LanguageModel, windows: Windows) -> TrainingCost:
    """Run a few windows forward and backward without changing a weight.

    Args:
        fabric: Launched.
        model: Moved to the device.
        windows: Read from; not those of the run.
    """
    model.to(fabric.device).train()
    state, seconds, n_targets = model.zero_state(windows.n_lanes), 0.0, 0
    for number in range(TRIAL_WINDOWS):
        window = windows.next()
        if window is None:
            break
        began = time.perf_counter()
        on = window.to(fabric.device)
        with fabric.autocast():
            ways, state = model(on.characters, on.inputs, on.targets, on.keep, on.n_targets, state)
        ways.mean().backward()
        ways.tolist()  # waits for the device
        if number > 0:  # the first window also sets up
            seconds, n_targets = seconds + time.perf_counter() - began, n_targets + window.n_targets
    model.zero_grad()
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return TrainingCost(
        n_parameters=n_parameters,
        n_softmax_parameters=sum(parameter.numel() for parameter in model.softmax.parameters()),
        n_bytes=_peak_bytes(fabric.device) + _OPTIMIZER_BYTES * n_parameters,
        targets_per_second=n_targets / seconds if seconds else 0.0,
    )


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
