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
    assert main(["evaluate", missing]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("qipf: ")
    assert missing in printed.err
    assert "Traceback" not in printed.err


def test_debug_shows_the_traceback(tmp_path):
    command = [sys.executable, "-m", "qipf", "--debug", "evaluate", str(tmp_path / "scores.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
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
    with pytest.raises(error):
        main(["--debug", "evaluate", "x.csv"])


@pytest.mark.parametrize("words", [["no-such-command"], ["evaluate"], ["evaluate", "--no-such-option", "x"]])
def test_wrong_use_exits_with_2(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert capsys.readouterr().err
