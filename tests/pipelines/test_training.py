"""Corpora to trained bundles, by the commands."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import make_bundle, make_config

from elmo_core import BundleError, ConfigError, CorpusError, load_bundle, load_embedder
from elmo_core.bundle import Head
from elmo_core.legacy import allenai
from elmo_core.vocabulary import Vocabulary
from pipelines import textunits
from pipelines.cli import elmo, run_command


def call(*arguments: object) -> int:
    return run_command(lambda: elmo([str(argument) for argument in arguments], standalone_mode=False))


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text in which every word tells the next; a configuration of a tiny biLM."""
    monkeypatch.setattr(textunits, "RANGE_BYTES", 2000)
    rng = random.Random(0)
    words = [f"w{i}" for i in range(12)]

    def sentence() -> str:
        start = rng.randrange(12)
        return " ".join(words[(start + i) % 12] for i in range(rng.randrange(3, 9)))

    (tmp_path / "a.txt").write_text("".join(f"{sentence()}\n" for _ in range(600)))
    (tmp_path / "held.txt").write_text("".join(f"{sentence()}\n" for _ in range(50)))
    training = {"n_lanes": 8, "n_steps": 6, "learning_rate": 0.02, "warmup_steps": 5, "evaluate_every": 20, "dropout": 0.0}
    values = {**make_config().to_options(), "training": training}
    (tmp_path / "tiny.json").write_text(json.dumps(values))
    return tmp_path


def _train(corpus: Path, output: str = "out", *options: object) -> int:
    text = ("--config", corpus / "tiny.json", "--format", "lines", "--json")
    return call("train", corpus / "a.txt", "--output", corpus / output, *text, *options)


def test_a_trained_bundle_predicts_its_text_and_loads_everywhere(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train(corpus, "out", "--heldout", corpus / "held.txt", "--epochs", 2) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["perplexity"] < 6
    assert facts["unknown_share"] == 0
    bundle = load_bundle(corpus / "out", with_head=True)
    assert bundle.hash == facts["hash"]
    assert bundle.head is not None
    assert len(bundle.head.vocabulary) == 15
    assert load_embedder(corpus / "out", initial_state="warm").embed([["w1", "w2"]])[0].shape == (3, 2, 16)
    assert call("convert", corpus / "out", corpus / "allenai", "--to", "allenai") == 0
    assert allenai.find_pair(corpus / "allenai") is not None
    card = (corpus / "out" / "README.md").read_text()
    assert "a.txt" in card
    assert f"{facts['tokens']:,} tokens" in card
    assert (corpus / "out" / "training" / "curves.png").exists()


def test_perplexity_of_a_bundle_is_that_of_its_training(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train(corpus, "out", "--heldout", corpus / "held.txt") == 0
    trained = json.loads(capsys.readouterr().out)
    command = ("perplexity", corpus / "held.txt", "--model", corpus / "out", "--format", "lines", "--json")
    assert call(*command) == 0
    assert json.loads(capsys.readouterr().out)["perplexity"] == pytest.approx(trained["perplexity"], abs=0.01)
    assert call(*command, "--initial-state", "warm") == 0
    warm = json.loads(capsys.readouterr().out)["perplexity"]
    assert warm == pytest.approx(trained["perplexity_from_warm_state"], abs=0.01)


def test_half_the_bytes_predict_as_well(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train(corpus, "out", "--heldout", corpus / "held.txt") == 0
    expected = json.loads(capsys.readouterr().out)["perplexity"]
    assert call("convert", corpus / "out", corpus / "half", "--dtype", "float16") == 0
    capsys.readouterr()
    assert call("perplexity", corpus / "held.txt", "--model", corpus / "half", "--format", "lines", "--json") == 0
    assert json.loads(capsys.readouterr().out)["perplexity"] == pytest.approx(expected, rel=0.01)
    sizes = [(corpus / name / "softmax.safetensors").stat().st_size for name in ("half", "out")]
    assert sizes[0] < 0.7 * sizes[1]
    half = load_bundle(corpus / "half")
    assert (half.dtype, half.tensors["char_cnn.embedding"].dtype) == ("float16", torch.float32)
    assert call("convert", corpus / "half", corpus / "again") == 0
    assert load_bundle(corpus / "again").hash == half.hash


def test_a_run_goes_on_where_it_was_stopped(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = ("--heldout", corpus / "held.txt")
    assert _train(corpus, "whole", *held) == 0
    whole = json.loads(capsys.readouterr().out)
    assert _train(corpus, "broken", *held) == 0
    for path in (corpus / "broken").iterdir():  # as it was before the end
        if path.is_file():
            path.unlink()
    steps = sorted((corpus / "broken" / "training" / "checkpoints").glob("step-*"))
    for path in steps[-1].iterdir():
        path.unlink()
    steps[-1].rmdir()
    capsys.readouterr()
    assert _train(corpus, "broken", *held) == 2
    assert "holds checkpoints of an earlier run; give --resume" in capsys.readouterr().err
    assert _train(corpus, "broken", *held, "--seed", 5, "--resume") == 2
    assert "'training.seed' was 0 when the checkpoint was written and is 5 now" in capsys.readouterr().err
    assert _train(corpus, "broken", *held, "--resume") == 0
    again = json.loads(capsys.readouterr().out)
    assert {**again, "output": ""} == {**whole, "output": ""}


def test_finetuning_keeps_a_softmax_and_lowers_perplexity(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train(corpus, "out", "--max-steps", 10, "--heldout", corpus / "held.txt") == 0
    capsys.readouterr()
    tune = ("finetune", corpus / "a.txt", "--model", corpus / "out", "--format", "lines", "--json", "--learning-rate", "0.01")
    assert call(*tune, "--output", corpus / "tuned", "--heldout", corpus / "held.txt", "--epochs", 10) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["softmax"] == "kept"
    assert facts["perplexity"] < 0.9 * facts["perplexity_before"]


def test_finetuning_extends_a_softmax_by_new_words(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _train(corpus, "out", "--max-steps", 10) == 0
    own = load_bundle(corpus / "out", with_head=True).head
    assert own is not None
    Vocabulary((*own.vocabulary.tokens, "new1", "new2")).save(corpus / "v.txt")
    capsys.readouterr()
    tune = ("finetune", corpus / "a.txt", "--model", corpus / "out", "--format", "lines", "--json", "--max-steps", 2)
    assert call(*tune, "--output", corpus / "tuned", "--vocab", corpus / "v.txt") == 0
    assert json.loads(capsys.readouterr().out)["softmax"] == "extended: 15 words known, 2 new"


def test_finetuning_makes_a_softmax_where_there_is_none(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle().save(corpus / "bare")
    tune = ("finetune", corpus / "a.txt", "--model", corpus / "bare", "--format", "lines", "--json", "--max-steps", 4)
    assert call(*tune, "--output", corpus / "tuned") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["softmax"] == "made anew"
    assert "perplexity_before" not in facts


def test_words_are_counted_as_often_as_they_are_named(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (corpus / "b.txt").write_text("rare rare\n")
    (corpus / "c.txt").write_text("common common common\n")
    inputs = (corpus / "b.txt", corpus / "c.txt", corpus / "b.txt")
    options = ("--format", "lines", "--output", corpus / "v.txt", "--json", "--max-words", 4)
    assert call("vocab", *inputs, *options) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (corpus / "v.txt").read_text() == "</S>\n<S>\n<UNK>\nrare\n"
    assert (facts["tokens"], facts["distinct_tokens"], facts["unknown_share"]) == (7, 2, 0.42857)


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("train {}/none*.txt --output {}/out", 2, "none*.txt: matches no file"),
        ("train {}/a.txt --output s3://bucket/out", 2, "is not a local folder"),
        ("train {}/a.txt --output {}/a.txt", 2, "is a file; name a new folder"),
        ("train {}/a.txt --output {}", 2, "holds files already"),
        ("train {}/a.txt --output {}/out --config big", 2, "give small, original or the path"),
        ("train {}/a.txt --output {}/out --epochs 0", 2, "'training.epochs' is 0; it must be a whole number of at least 1"),
        ("train {}/a.txt --output {}/out --heldout {}/a.txt", 2, "is an input and held out"),
        ("train {}/a.txt --output {}/out --heldout {}/blank.txt --format lines", 1, "the held-out text holds no token"),
        ("train {}/a.txt --output {}/out --vocab {}/dup.txt --format lines", 1, "dup.txt: line 5 repeats 'a' of line 4"),
        ("train {}/a.txt --output {}/out --vocab {}/words.txt --format lines", 1, "words.txt: has no line </S>"),
        ("train {}/bad.gz --heldout {}/held.txt --output {}/out --format lines", 1, "bad.gz: is damaged"),
        ("perplexity {}/a.txt --model {}/bare", 1, "bare: has no softmax, so it predicts nothing; elmo finetune makes one"),
        ("perplexity {}/blank.txt --model {}/headed --format lines", 1, "blank.txt: holds no token"),
        ("perplexity {}/a.txt --model {}/headed --initial-state warm", 2, "has no warm state; take --initial-state zero"),
        ("vocab {}/blank.txt --output {}/v.txt --format lines", 1, "blank.txt: holds no token"),
        ("vocab {}/a.txt --output {}/no/v.txt --format lines", 1, "no/v.txt: can't be written: No such file or directory"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    corpus: Path, capsys: pytest.CaptureFixture[str], command: str, code: int, message: str
) -> None:
    (corpus / "blank.txt").write_text("\n \n")
    (corpus / "dup.txt").write_text("</S>\n<S>\n<UNK>\na\na\n")
    (corpus / "words.txt").write_text("a\nb\n")
    (corpus / "bad.gz").write_bytes(b"\x1f\x8b\x08\x00 no gzip at all")
    make_bundle().save(corpus / "bare")
    head = Head(weight=torch.zeros(3, 8), bias=torch.zeros(3), vocabulary=Vocabulary(("</S>", "<S>", "<UNK>")))
    replace(make_bundle(), head=head).save(corpus / "headed")
    assert call(*command.replace("{}", str(corpus)).split()) == code
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_a_bundle_whose_head_is_damaged_is_told_before_text_is_read(corpus: Path) -> None:
    head = Head(weight=torch.zeros(4, 8), bias=torch.zeros(4), vocabulary=Vocabulary(("</S>", "<S>", "<UNK>", "a")))
    replace(make_bundle(), head=head).save(corpus / "headed")
    (corpus / "headed" / "vocabulary.txt").write_text("</S>\n<S>\n<UNK>\n")
    with pytest.raises(BundleError, match=r"'softmax.weight' has shape \[4, 8\]; the options ask for \[3, 8\]"):
        load_bundle(corpus / "headed", with_head=True)
    load_bundle(corpus / "headed")  # features need no head


def test_weights_beyond_float16_keep_their_type() -> None:
    bundle = make_bundle()
    tensors = {**bundle.tensors, "char_cnn.embedding": torch.full((261, 4), 1e6)}
    with pytest.raises(BundleError, match="beyond float16's range"):
        replace(bundle, tensors=tensors).to_float16()
    assert issubclass(CorpusError, Exception)
    assert issubclass(ConfigError, Exception)
    assert np.isfinite(make_bundle().to_float16().tensors["char_cnn.embedding"].numpy()).all()
