"""The command line: what goes where, exit codes, and one sentence for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from builders import make_bundle

from elmo_core import load_bundle
from pipelines.cli import elmo, run_command
from pipelines.config import DEFAULT_MODEL


def call(*arguments: object) -> int:
    return run_command(lambda: elmo([str(argument) for argument in arguments], standalone_mode=False))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_bytes(b"some words\n\nand more\n")
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9\nfine\n")
    (tmp_path / "weights").mkdir()
    return tmp_path


@pytest.mark.engine
def test_featurize_inspect_verify(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("featurize", corpus / "a.txt", "--output", corpus / "out", "--json") == 0
    out, _ = capsys.readouterr()
    facts = json.loads(out)
    assert (facts["records"], facts["rows"], facts["tokens"]) == (3, 3, 4)
    assert facts["model"] == f"file://{DEFAULT_MODEL}"
    assert call("inspect", corpus / "out") == 0
    assert DEFAULT_MODEL in capsys.readouterr().out
    assert call("inspect", corpus / "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["fingerprint"] == facts["fingerprint"]
    assert call("verify", corpus / "out") == 0
    assert capsys.readouterr().out == "1 shards, 3 rows, 4 tokens: 0 differ\n"
    next((corpus / "out" / "shards").iterdir()).unlink()
    assert call("verify", corpus / "out") == 1
    assert "parquet: is missing\n" in capsys.readouterr().out


@pytest.mark.engine
@pytest.mark.parametrize(("allowed", "code"), [(0, 3), (1, 0)])
def test_too_many_rejects_finish_the_run_with_exit_code_3(
    corpus: Path, allowed: int, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert call("featurize", corpus / "bad.txt", "--output", corpus / "out", "--max-rejects", allowed) == code
    told = "bad.txt, byte 0: not utf-8 (unexpected end of data at byte 3)" in caplog.text
    assert told == (allowed == 0)
    assert call("verify", corpus / "out") == 0


@pytest.mark.engine
def test_an_encoding_that_fits_leaves_no_reject(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("featurize", corpus / "bad.txt", "--output", corpus / "out", "--encoding", "latin-1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rejects"] == 0


def test_a_dry_run_prints_the_plan_and_writes_nothing(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("featurize", corpus / "*.txt", "--output", corpus / "out", "--dry-run", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["sources"], facts["ranges"], facts["text_bytes"]) == (2, 2, 31)
    assert not (corpus / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("featurize {}/none.txt --output {}/out", 2, "none.txt: does not exist"),
        ("featurize {}/*.none --output {}/out", 2, "matches no file"),
        ("featurize {} --output {}/out", 2, "is a folder"),
        ("featurize nope://a --output {}/out", 2, "Protocol not known: nope"),
        ("featurize {}/a.txt --output {}", 2, "is not empty and has no manifest.json of ours"),
        ("featurize {}/a.txt --output {}/a.txt", 2, "is a file; the output is a folder"),
        ("featurize {}/a.txt --output {}/out --model {}/weights", 1, "weights: is no bundle"),
        ("featurize {}/a.txt --output {}/out --model {}/none", 1, "none: does not exist"),
        ("featurize {}/a.txt --output {}/out --dtype int8", 2, "Invalid value for '--dtype'"),
        ("featurize {}/a.txt --output {}/out --shard-tokens many", 2, "Invalid value for '--shard-tokens'"),
        ("featurize {}/a.txt --output {}/out --no-such", 2, "No such option '--no-such'"),
        ("featurize {}/a.txt", 2, "Missing option '--output'"),
        ("featurize --output {}/out", 2, "Missing argument 'INPUT...'"),
        ("inspect {}", 2, "has no manifest.json: no run has finished there"),
        ("verify {}/none", 2, "has no manifest.json"),
        ("convert {}/none {}/new", 1, "none: does not exist"),
        ("nonsense", 2, "No such command 'nonsense'"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    corpus: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int, message: str
) -> None:
    assert call(*(argument.replace("{}", str(corpus)) for argument in arguments.split())) == code
    out, err = capsys.readouterr()
    assert message in err
    assert "Traceback" not in err
    assert out == ""


def test_an_untrained_model_is_told(corpus: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    make_bundle(trained=False).save(corpus / "bundle")
    arguments = (corpus / "a.txt", "--output", corpus / "out", "--model", corpus / "bundle", "--dry-run", "--json")
    assert call("featurize", *arguments) == 0
    assert json.loads(capsys.readouterr().out)["model"].endswith("(untrained)")
    assert "the model is untrained: its vectors mean nothing" in caplog.text


def test_an_untrained_model_stays_untrained_in_every_format(tmp_path: Path) -> None:
    make_bundle(trained=False).save(tmp_path / "a")
    assert call("convert", tmp_path / "a", tmp_path / "b", "--to", "allenai") == 0
    assert call("convert", tmp_path / "b", tmp_path / "c") == 0
    assert [load_bundle(tmp_path / name).trained for name in "abc"] == [False] * 3


def test_bench_prints_what_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmo_core.speed._SECONDS", 0.001)
    make_bundle().save(tmp_path / "bundle")
    assert call("bench", "--model", tmp_path / "bundle", "--tokenizer", "whitespace", "--device", "cpu", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_tokens"] > 1000
    assert facts["tokens_per_second"] > 0
    assert call("bench", tmp_path / "none.txt") == 2


def test_what_nobody_thought_of_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise OverflowError("int too large")

    assert run_command(fail) == 1
    assert capsys.readouterr().err == "elmo: OverflowError: int too large; elmo -v shows where\n"


def test_convert_goes_both_ways_without_a_change(tmp_path: Path) -> None:
    make_bundle().save(tmp_path / "ours")
    assert call("convert", tmp_path / "ours", tmp_path / "theirs", "--to", "allenai") == 0
    assert call("convert", tmp_path / "theirs", tmp_path / "back") == 0
    assert load_bundle(tmp_path / "back").hash == load_bundle(tmp_path / "ours").hash
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == (tmp_path / "ours" / "model.safetensors").read_bytes()


def test_convert_never_writes_over_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle().save(tmp_path / "ours")
    assert call("convert", tmp_path / "ours", tmp_path / "ours") == 1
    assert "is not empty; name a new folder" in capsys.readouterr().err
    assert load_bundle(tmp_path / "ours").hash == make_bundle().hash


@pytest.mark.parametrize("name", sorted(elmo.commands))
def test_every_option_has_help_and_every_command_an_example(name: str) -> None:
    command = elmo.commands[name]
    assert [option.name for option in command.params if isinstance(option, click.Option) and not option.help] == []
    assert f"elmo {name}" in (command.help or "")
