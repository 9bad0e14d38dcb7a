"""The command line as a whole: help, exit codes, errors without and with a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from qipf.cli import COMMANDS, main


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)
    assert "Fit a scorer to a trained model" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_its_arguments(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"Usage: qipf {command}" in capsys.readouterr().out


def test_errors_are_one_line_on_standard_error(capsys, tmp_path):
    missing = str(tmp_path / "scores.csv")
    assert main(["evaluate", missing]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("qipf: ")
    assert missing in printed.err
    assert "Traceback" not in printed.err


def test_debug_shows_the_traceback(tmp_path):
    command = [sys.executable, "-m", "qipf", "--debug", "evaluate", str(tmp_path / "scores.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    done = subprocess.run([*command, "--bootstrap", "-1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("error", [RuntimeError, AssertionError, KeyError, IndexError])
def test_errors_from_the_users_model_are_one_line(error, monkeypatch, capsys):
    def fail(file: str) -> None:
        raise error("shapes differ\n  at some length")

    monkeypatch.setattr("qipf.cli.evaluate.evaluate", fail)
    assert main(["evaluate", "x.csv"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"qipf: {error.__name__}: ")
    assert "shapes differ" in lines[0]
    assert main(["--debug", "evaluate", "x.csv"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_too_little_memory_is_one_line(monkeypatch, capsys, tmp_path):
    def full(*given, **named):
        raise MemoryError("Unable to allocate 9.00 TiB")

    monkeypatch.setattr("qipf.study.report.write_report", full)
    assert main(["report", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("qipf: not enough memory (Unable to allocate 9.00 TiB): ")


@pytest.mark.parametrize("words", [["no-such-command"], ["evaluate"], ["evaluate", "--no-such-option", "x"]])
def test_wrong_use_exits_with_2(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bench dmeo", "there is no plan 'dmeo'"),
        ("bench demo --engine serail", "--engine: expected auto, serial, local or the address"),
        ("bench demo --workers 0", "--workers: expected at least 1, got 0"),
        ("evaluate scores.txt", "ends in .csv, .parquet, .npz"),
        ("evaluate scores.csv --out m.txt", "--out: expected a file that ends in"),
        ("evaluate scores.csv --score nothing", "--score: there is no column 'nothing'"),
        ("gallery sinus -o figures", "there is no figure 'sinus'"),
        ("gallery sine --seeds 0 -o figures", "--seeds: expected at least 1, got 0"),
        ("gallery corruptions --dataset minst -o figures", "--dataset: there is no 'minst'"),
        ("train --net lenett", "unknown network 'lenett'"),
        ("train --epochs -1", "--epochs: expected at least 0, got -1"),
        ("train --learning-rate 0", "--learning-rate: expected a positive number"),
        ("train --device tea", "device 'tea' cannot be used"),
    ],
)
def test_a_wrong_command_line_is_2(words, message, here, capsys):
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in here.iterdir()) == FILES


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bench bad.toml", "bad.toml: no valid TOML"),
        ("bench wrong.toml", "wrong.toml: pairs: missing"),
        ("bench includes.toml", "includes.toml: include nowhere: there is no plan 'nowhere'"),
        ("evaluate nothing.csv", "there is no file nothing.csv"),
        ("evaluate noise.csv", "no column 'correct'"),
        ("inspect nothing.qipf", "there is no file nothing.qipf"),
        ("inspect noise.csv", "not a file written by qipf"),
        ("report nothing", "benchmark store and has none of table.csv"),
        ("gallery field --scorer noise.csv -o figures", "not a file written by qipf"),
        ("gallery sine -o noise.csv", "noise.csv is a file"),
        ("train -o no/net.safetensors", "create it first"),
        ("train --dataset mnist --data . --no-download", "mnist"),
    ],
)
def test_what_fails_on_the_way_is_1(words, message, here, capsys):
    assert main(words.split()) == 1
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in here.iterdir()) == FILES


FILES = ["bad.toml", "includes.toml", "noise.csv", "scores.csv", "wrong.toml"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("name = ")
    (tmp_path / "wrong.toml").write_text('name = "wrong"')
    (tmp_path / "includes.toml").write_text('name = "more"\ninclude = ["nowhere"]')
    (tmp_path / "noise.csv").write_text("a,b\n1,2\n" * 20)
    (tmp_path / "scores.csv").write_text("u,correct\n0.5,1\n0.7,0\n")
    return tmp_path
