"""The loop: a window, a step, now and then a look at held-out text and a checkpoint."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor

from elmo_core.errors import BundleError
from elmo_core.training.checkpoints import Checkpoints, State, check_same
from elmo_core.training.config import TrainingConfig
from elmo_core.training.guard import Guard, Verdict
from elmo_core.training.model import LaneState, LanguageModel
from elmo_core.training.perplexity import Perplexity
from elmo_core.training.windows import Window, Windows

MAX_ROLLBACKS: Final = 5

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step, as it went.

    Args:
        step: From 1.
        forward_loss: In nats a target.
        backward_loss: In nats a target.
        norm: Of the gradient, before it was clipped.
        learning_rate: With which the step was taken.
        n_targets: Predictions in each direction, of this process.
        progress: Share of the training that is done.
        verdict: `good` when the step was taken.
    """

    step: int
    forward_loss: float
    backward_loss: float
    norm: float
    learning_rate: float
    n_targets: int
    progress: float
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A look at the held-out text.

    Args:
        step: After which step.
        perplexity: From zero state.
        is_best: Whether no earlier one was better.
    """

    step: int
    perplexity: Perplexity
    is_best: bool


class Trainer:
    """Train a language model window by window, so that a run that was stopped goes on as if it hadn't been.

    Args:
        fabric: Launched; knows devices, precision and processes.
        model: On the CPU.
        windows: This process's text.
        config: Values of the run.
        checkpoints: Of this process.
        recipe: What a checkpoint must have been made with to be resumed from.
        evaluate: Measures perplexity on the held-out text.
        frozen: Whether the biLM rests for the first `freeze_share` of the training.
    """

    def __init__(
        self,
        fabric: Fabric,
        model: LanguageModel,
        windows: Windows,
        config: TrainingConfig,
        *,
        checkpoints: Checkpoints,
        recipe: dict[str, object],
        evaluate: Callable[[LanguageModel], Perplexity],
        frozen: bool = False,
    ) -> None:
        self._fabric = fabric
        self._module = model
        optimizer = torch.optim.AdamW(_groups(model, config), lr=config.learning_rate, betas=(0.9, 0.98), fused=True)
        self._model, self._optimizer = fabric.setup(model, optimizer)
        self._windows = windows
        self._config = config
        self._checkpoints = checkpoints
        self._recipe = recipe
        self._evaluate = evaluate
        self._frozen = frozen
        self._guard = Guard()
        self._state: LaneState = model.zero_state(config.n_lanes)
        self._best = math.inf
        self._looked_at = 0  # the step of the newest look
        self.step = 0
        """Windows read."""
        self.n_targets = 0
        """Predictions made in each direction, in all processes together."""

    def run(self, on_step: Callable[[StepReport], None], on_evaluation: Callable[[Evaluation], None]) -> None:
        """Train to the end. The best weights are with the checkpoints then.

        Raises:
            BundleError: Training diverges again and again, or a checkpoint can't be written.
        """
        while (report := self._next_step()) is not None:
            on_step(report)
            if self.step % self._config.evaluate_every == 0:
                on_evaluation(self._look())
        if self.step != self._looked_at:
            on_evaluation(self._look())

    def resume(self) -> int | None:
        """Go on from the newest checkpoint.

        Returns:
            Its step, or None where there is none.

        Raises:
            ConfigError: It was made with other options.
            BundleError: It is damaged.
        """
        step = self._checkpoints.latest()
        if step is None:
            return None
        shared = self._checkpoints.load_shared(step)
        check_same(f"checkpoint of step {step}", shared["recipe"], self._recipe)
        own = self._checkpoints.load_own(step)
        self._load_weights(shared)
        self._guard = Guard(**own["guard"])
        self._windows.load_state_dict(own["windows"])
        self._state = cast(LaneState, tuple(tensor.to(self._fabric.device) for tensor in own["state"]))
        self._best, self.n_targets = shared["best"], shared["n_targets"]
        self.step = self._looked_at = step
        return step

    def _next_step(self) -> StepReport | None:
        config = self._config
        if config.max_steps is not None and self.step >= config.max_steps:
            return None
        window = self._windows.next()
        window = (window or self._windows.empty()).to(self._fabric.device)
        n_targets, progress = self._agree(window)
        if not n_targets:
            return None
        rate = learning_rate(config, self.step, progress)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self.step += 1
        torch.manual_seed(hash((config.seed, self.step, self._fabric.global_rank)))
        self._model.train()
        ways, state = self._model(window.characters, window.inputs, window.targets, window.keep, window.n_targets, self._state)
        self._fabric.backward(ways.mean())
        if self._frozen and progress < config.freeze_share:
            self._module.bilm.zero_grad(set_to_none=True)
        clipped = self._fabric.clip_gradients(self._model, self._optimizer, max_norm=config.clip_norm, error_if_nonfinite=False)
        norm = float(cast(Tensor, clipped))
        forward, backward = cast(Tensor, self._fabric.all_reduce(ways.detach(), reduce_op="mean")).tolist()
        verdict = self._guard.judge((forward + backward) / 2, norm)
        if verdict == "good":
            self._optimizer.step()
            self._state = state
            self.n_targets += n_targets
        elif verdict == "roll back":
            self._roll_back()
        self._optimizer.zero_grad()
        if verdict != "good":
            _logger.warning(
                "step %d: loss %.3f, gradient norm %.3g: %s",
                self.step,
                (forward + backward) / 2,
                norm,
                "skipped" if verdict == "skip" else "back to the last checkpoint's weights, on with the text that follows",
            )
        return StepReport(
            step=self.step,
            forward_loss=forward,
            backward_loss=backward,
            norm=norm,
            learning_rate=rate,
            n_targets=window.n_targets,
            progress=progress,
            verdict=verdict,
        )

    def _look(self) -> Evaluation:
        self._module.eval()
        perplexity = self._evaluate(self._module)
        is_best = perplexity.average < self._best
        self._best = min(self._best, perplexity.average)
        first = self._fabric.is_global_zero
        if first:
            if is_best:
                self._checkpoints.save_best({"model": self._module.state_dict(), "step": self.step, "n_targets": self.n_targets})
            self._checkpoints.begin(self.step)
        self._fabric.barrier()
        self._looked_at = self.step
        self._checkpoints.write(self.step, self._shared_state() if first else None, self._own_state())
        self._fabric.barrier()
        if first:
            self._checkpoints.publish(self.step)
        self._fabric.barrier()
        return Evaluation(step=self.step, perplexity=perplexity, is_best=is_best)

    def _shared_state(self) -> State:
        return {
            "recipe": self._recipe,
            "model": self._module.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "best": self._best,
            "n_targets": self.n_targets,
        }

    def _own_state(self) -> State:
        return {"guard": self._guard.state_dict(), "windows": self._windows.state_dict(), "state": self._state}

    def _load_weights(self, shared: State) -> None:
        self._module.load_state_dict(shared["model"])
        self._optimizer.load_state_dict(shared["optimizer"])

    def _roll_back(self) -> None:
        step = self._checkpoints.latest()
        if step is None or self._guard.n_rollbacks > MAX_ROLLBACKS:
            again = "before the first checkpoint" if step is None else f"{self._guard.n_rollbacks} times"
            raise BundleError(f"training diverged {again}; take a lower learning rate, or a smaller clip_norm")
        self._load_weights(self._checkpoints.load_shared(step))
        self._state = cast(LaneState, tuple(torch.zeros_like(tensor) for tensor in self._state))

    def _agree(self, window: Window) -> tuple[int, float]:
        """Targets of all processes together, and the progress: the same in each, since the learning rate follows it."""
        own = torch.tensor([window.n_targets, window.progress], dtype=torch.float64, device=self._fabric.device)
        n_targets, progress = cast(Tensor, self._fabric.all_reduce(own, reduce_op="sum")).tolist()
        progress /= self._fabric.world_size
        if self._config.max_steps is not None:
            progress = max(progress, (self.step + 1) / self._config.max_steps)
        return int(n_targets), progress


def learning_rate(config: TrainingConfig, step: int, progress: float) -> float:
    """Linear warm-up over steps, then half a cosine over the progress.

    Args:
        config: With the height, the end and the length of the warm-up.
        step: Steps taken.
        progress: Share of the training that is done, from 0 to 1.
    """
    warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
    fall = (1 + math.cos(math.pi * min(1.0, progress))) / 2
    return config.learning_rate * warm * (config.final_learning_rate + (1 - config.final_learning_rate) * fall)


def _groups(model: LanguageModel, config: TrainingConfig) -> list[dict[str, object]]:
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    return [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
