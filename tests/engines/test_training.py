"""Training in processes of its own: killed, out of disk, or two at a time, a run goes on to the bundle of an unbroken one."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import make_config

pytestmark = pytest.mark.engine
N_STEPS = 200
N_WORDS = 12
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text in which every word tells the next; a configuration of a tiny biLM."""
    folder = tmp_path_factory.mktemp("training")
    rng = random.Random(0)

    def sentence() -> str:
        start = rng.randrange(N_WORDS)
        return " ".join(f"w{(start + i) % N_WORDS}" for i in range(rng.randrange(3, 9)))

    (folder / "held.txt").write_text("".join(f"{sentence()}\n" for _ in range(50)))
    (folder / "a.txt").write_text("".join(f"{sentence()}\n" for _ in range(10_000)))
    training = {"n_lanes": 8, "n_steps": 6, "learning_rate": 0.02, "warmup_steps": 5, "evaluate_every": 20, "dropout": 0.1}
    (folder / "tiny.json").write_text(json.dumps({**make_config().to_options(), "training": training}))
    return folder


@pytest.fixture(scope="module")
def unbroken(corpus: Path) -> dict[str, Any]:
    """What an unbroken run of one process prints."""
    return _facts(_run(_command(corpus, "unbroken")))


@pytest.fixture(scope="module")
def killed(corpus: Path) -> Path:
    """The output of a run that was killed after its second checkpoint."""
    with subprocess.Popen(_command(corpus, "killed"), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("step 40: held-out perplexity" in line for line in process.stderr)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not any(path.is_file() for path in (corpus / "killed").iterdir())
    assert 40 <= _newest(corpus / "killed") < N_STEPS
    return corpus / "killed"


def _command(corpus: Path, output: str, *options: str, launcher: tuple[str, ...] = ()) -> list[str]:
    text = (f"{corpus}/a.txt", "--heldout", f"{corpus}/held.txt", "--format", "lines", "--config", f"{corpus}/tiny.json")
    run = ("--output", f"{corpus}/{output}", "--max-steps", str(N_STEPS), "--device", "cpu", "--json")
    return [sys.executable, *launcher, "-m", "pipelines.cli", "train", *text, *run, *options]


def _run(command: list[str], *, max_file_bytes: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))

    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, preexec_fn=limit)


def _facts(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)  # one value, once
    return {**facts, "output": ""}


def _checkpoints(output: Path) -> list[Path]:
    return sorted(path for path in (output / "training" / "checkpoints").glob("step-*") if path.suffix != ".tmp")


def _newest(output: Path) -> int:
    return int(_checkpoints(output)[-1].name.removeprefix("step-"))


def test_a_run_that_was_killed_resumes_to_the_same_bundle(corpus: Path, unbroken: dict[str, Any], killed: Path) -> None:
    shutil.copytree(killed, corpus / "resumed")
    assert _facts(_run(_command(corpus, "resumed", "--resume"))) == unbroken


def test_a_full_disk_leaves_the_last_checkpoint_to_resume_from(corpus: Path, unbroken: dict[str, Any], killed: Path) -> None:
    shutil.copytree(killed, corpus / "full")
    newest = _newest(killed)
    before = (_checkpoints(killed)[-1] / "model.pt").read_bytes()
    full = _run(_command(corpus, "full", "--resume"), max_file_bytes=len(before) // 2)
    assert full.returncode == 1
    last_line = full.stderr.splitlines()[-1]
    path = corpus / "full" / "training" / "checkpoints" / f"step-{newest + 20:08d}.tmp" / "model.pt"
    kept = f"the checkpoint of step {newest} is whole: make room and go on with --resume"
    assert last_line == f"elmo: {path}: checkpoint can't be written (File too large); {kept}"
    assert "Traceback" not in full.stderr
    assert (_checkpoints(corpus / "full")[-1] / "model.pt").read_bytes() == before
    assert _facts(_run(_command(corpus, "full", "--resume"))) == unbroken


def test_two_processes_train_one_bundle_and_resume_as_two(corpus: Path, unbroken: dict[str, Any]) -> None:
    facts = _facts(_run(_command(corpus, "two", launcher=TORCHRUN)))
    assert facts["tokens"] == 2 * unbroken["tokens"]
    assert facts["perplexity"] == pytest.approx(unbroken["perplexity"], rel=0.3)
    assert facts["perplexity"] < N_WORDS / 2
    for path in (corpus / "two").iterdir():  # as it was before the end
        if path.is_file():
            path.unlink()
    shutil.rmtree(_checkpoints(corpus / "two")[-1])
    alone = _run(_command(corpus, "two", "--resume"))
    assert alone.returncode == 2
    assert "'processes' was 2 when the checkpoint was written and is 1 now" in alone.stderr
    assert _facts(_run(_command(corpus, "two", "--resume", launcher=TORCHRUN))) == facts
