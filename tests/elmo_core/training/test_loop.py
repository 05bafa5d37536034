"""The loop: it learns, it goes on as if never stopped, it survives bad steps."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from builders import ListPassages, make_config
from lightning_fabric import Fabric

from elmo_core import BundleError, ConfigError, initialize_bilm
from elmo_core.training import guard
from elmo_core.training.checkpoints import Checkpoints
from elmo_core.training.config import TrainingConfig
from elmo_core.training.loop import Evaluation, StepReport, Trainer, learning_rate
from elmo_core.training.model import LanguageModel
from elmo_core.training.objective import Softmax
from elmo_core.training.perplexity import measure_perplexity
from elmo_core.training.windows import Windows
from elmo_core.vocabulary import Vocabulary

VOCABULARY = Vocabulary(("</S>", "<S>", "<UNK>", "a", "b", "c", "d"))
TEXT = [[["a", "b", "c", "d"][: i % 4 + 1] * 2 for i in range(start, start + 12)] for start in range(40)]
CONFIG = TrainingConfig(n_lanes=4, n_steps=5, learning_rate=0.02, warmup_steps=5, evaluate_every=5, max_steps=23)


def _trainer(folder: Path, config: TrainingConfig = CONFIG, *, n_negatives: int = 6, frozen: bool = False) -> Trainer:
    softmax = Softmax(len(VOCABULARY), 8)
    softmax.initialize(config.seed)
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    return Trainer(
        fabric,
        LanguageModel(initialize_bilm(make_config(), config.seed), softmax, n_negatives=n_negatives, dropout=0.1),
        Windows(
            ListPassages(TEXT),
            VOCABULARY,
            n_lanes=config.n_lanes,
            n_steps=config.n_steps,
            max_characters_per_token=50,
            reset_probability=0.3,
            seed=config.seed,
        ),
        config,
        checkpoints=Checkpoints(folder),
        recipe={"seed": config.seed},
        evaluate=lambda model: measure_perplexity(model.bilm, model.softmax, VOCABULARY, TEXT[0]),
        frozen=frozen,
    )


def _run(trainer: Trainer, *, stop_after: int | None = None) -> tuple[list[StepReport], list[Evaluation]]:
    steps: list[StepReport] = []
    looks: list[Evaluation] = []

    def on_step(report: StepReport) -> None:
        steps.append(report)
        if report.step == stop_after:
            raise KeyboardInterrupt

    if stop_after is None:
        trainer.run(on_step, looks.append)
    else:
        with pytest.raises(KeyboardInterrupt):
            trainer.run(on_step, looks.append)
    return steps, looks


def test_it_learns(tmp_path: Path) -> None:
    _, looks = _run(_trainer(tmp_path))
    assert [look.step for look in looks] == [5, 10, 15, 20, 23]
    assert looks[-1].perplexity.average < 0.9 * looks[0].perplexity.average


@pytest.mark.parametrize("stop_after", [7, 10, 22])
def test_a_resumed_run_has_the_losses_of_an_unbroken_one(tmp_path: Path, stop_after: int) -> None:
    unbroken, looks = _run(_trainer(tmp_path / "unbroken"))
    _run(_trainer(tmp_path / "broken"), stop_after=stop_after)
    again = _trainer(tmp_path / "broken")
    resumed_at = again.resume()
    rest, rest_looks = _run(again)
    assert resumed_at == (stop_after - 1) // 5 * 5
    assert rest == unbroken[resumed_at:]
    assert rest_looks[-1] == looks[-1]


def test_a_run_that_was_at_its_end_has_nothing_more_to_do(tmp_path: Path) -> None:
    _run(_trainer(tmp_path))
    again = _trainer(tmp_path)
    assert again.resume() == 23
    assert _run(again) == ([], [])


def test_a_run_without_a_checkpoint_has_nothing_to_resume(tmp_path: Path) -> None:
    assert _trainer(tmp_path).resume() is None


def test_a_checkpoint_of_other_options_is_refused(tmp_path: Path) -> None:
    _run(_trainer(tmp_path), stop_after=6)
    with pytest.raises(ConfigError, match="'seed' was 0 when the checkpoint was written and is 1 now"):
        _trainer(tmp_path, TrainingConfig(n_lanes=4, n_steps=5, seed=1)).resume()


def _poison(trainer: Trainer, steps: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the gradients of some steps NaN."""
    backward = trainer._fabric.backward

    def poisoned(loss: torch.Tensor) -> None:
        backward(loss * (math.nan if trainer.step in steps else 1.0))

    monkeypatch.setattr(trainer._fabric, "backward", poisoned)


def test_nan_is_skipped_and_the_weights_stay_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = _trainer(tmp_path)
    _poison(trainer, {8, 9}, monkeypatch)
    steps, looks = _run(trainer)
    assert [report.step for report in steps if report.verdict != "good"] == [8, 9]
    assert math.isfinite(looks[-1].perplexity.average)


def test_many_bad_steps_go_back_to_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = _trainer(tmp_path)
    n_bad = guard.MAX_SKIPPED + 1
    _poison(trainer, set(range(11, 11 + n_bad)), monkeypatch)
    steps, _ = _run(trainer, stop_after=10 + n_bad)
    assert [report.verdict for report in steps[10:]] == ["skip"] * guard.MAX_SKIPPED + ["roll back"]
    saved = Checkpoints(tmp_path).load_shared(10)["model"]
    for name, tensor in trainer._module.state_dict().items():
        assert torch.equal(tensor, saved[name])


def test_divergence_before_any_checkpoint_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = _trainer(tmp_path, TrainingConfig(n_lanes=4, n_steps=5, evaluate_every=50))
    _poison(trainer, set(range(100)), monkeypatch)
    with pytest.raises(BundleError, match="diverged before the first checkpoint; take a lower learning rate"):
        _run(trainer)


def test_a_frozen_bilm_stays_while_the_softmax_learns(tmp_path: Path) -> None:
    config = TrainingConfig(n_lanes=4, n_steps=5, max_steps=10, freeze_share=1.0, evaluate_every=100)
    trainer = _trainer(tmp_path, config, frozen=True)
    before = {name: tensor.clone() for name, tensor in trainer._module.state_dict().items()}
    _run(trainer, stop_after=9)
    after = trainer._module.state_dict()
    changed = {name.split(".")[0] for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed == {"softmax"}


def test_training_ends_with_the_text(tmp_path: Path) -> None:
    steps, _ = _run(_trainer(tmp_path, TrainingConfig(n_lanes=4, n_steps=5, evaluate_every=1000), n_negatives=0))
    n_positions = sum(len(sentence) + 1 for passage in TEXT for sentence in passage)
    assert sum(report.n_targets for report in steps) == n_positions


def test_the_learning_rate_rises_then_falls() -> None:
    config = TrainingConfig(learning_rate=1.0, warmup_steps=10, final_learning_rate=0.1)
    rates = [learning_rate(config, step, step / 1000) for step in (0, 4, 9, 500, 1000)]
    assert rates == pytest.approx([0.1, 0.5, 1.0, 0.55, 0.1], rel=1e-3)
