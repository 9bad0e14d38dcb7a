"""The command line as a whole: help, exit codes, errors without and with a traceback."""

from __future__ import annotations

import logging
import pydoc
import re
import signal
import subprocess
import sys
import warnings
from importlib import import_module

import pytest

from qipf.cli import COMMANDS, RESEARCH, build, main


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in (*COMMANDS, "research"))
    assert "Fit a scorer to a trained model" in text


EVERY = [*COMMANDS, *(f"research {name}" for name in RESEARCH)]


@pytest.mark.parametrize("command", EVERY)
def test_every_command_has_help_with_an_example_to_copy(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Usage: qipf {command}" in text
    written = import_module(f"qipf.cli.{command.split()[-1]}").__dict__[command.split()[-1]].__doc__
    examples = re.findall(rf"^ +((?:QIPF_DATA=\S+ )?qipf {command}\b.*)$", written, re.MULTILINE)
    assert command == "demo" or examples
    assert all(f" {example} " in f"{text} " for example in examples)  # not broken into two lines
    assert ("executed" in text) == (command in ("fit", "score", "compare", "inspect"))  # a warning, or that it is not


def test_there_are_at_most_70_options():
    app, found = build(listing=True), {"--quiet", "--debug"}
    for command in EVERY:
        part = app
        for word in command.split():
            part = part[word]
        for argument in part.assemble_argument_collection():
            if argument.names[0].startswith("--") and not argument.children:
                found.add(f"{command} {argument.names[0]}")
                assert argument.names[0] not in ("--out", "--page", "--no-quiet")
    assert len(found) <= 70, sorted(found)


def test_errors_are_one_line_on_standard_error(capsys, tmp_path):
    missing = str(tmp_path / "scores.csv")
    assert main(["evaluate", missing]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("qipf: ")
    assert missing in printed.err
    assert "Traceback" not in printed.err


def test_debug_shows_the_traceback(capsys, tmp_path):
    command = ["--debug", "evaluate", str(tmp_path / "scores.csv")]
    assert main(command) == 1
    assert "Traceback" in capsys.readouterr().err
    assert main([*command, "--bootstrap", "-1"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_error_that_says_nothing_is_named_once(monkeypatch, capsys):
    def fail(file: str) -> None:
        raise AssertionError

    monkeypatch.setattr("qipf.cli.evaluate.evaluate", fail)
    assert main(["evaluate", "x.csv"]) == 1
    printed = capsys.readouterr().err
    assert re.fullmatch(r"qipf: AssertionError, in test_cli_main.py, line \d+ \(--debug shows .*\)\n", printed)


def test_too_little_memory_is_one_line(monkeypatch, capsys, tmp_path):
    def full(*given, **named):
        raise MemoryError("Unable to allocate 9.00 TiB")

    monkeypatch.setattr("qipf.study.report.write_report", full)
    assert main(["report", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("qipf: not enough memory (Unable to allocate 9.00 TiB): ")


@pytest.mark.parametrize(
    "kind", ["RuntimeError", "tokenize.TokenError", "zlib.error", "OverflowError", "BaseException"]
)
def test_an_error_of_any_kind_is_one_line_that_says_how_to_see_more(kind, monkeypatch, capsys):
    def fail(file: str) -> None:
        raise pydoc.locate(kind)("all is lost\nand \x1b[31mmore\x07")  # type: ignore[operator]

    monkeypatch.setattr("qipf.cli.evaluate.evaluate", fail)
    assert main(["evaluate", "x.csv"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"qipf: \w+: all is lost, in test_cli_main.py, line \d+ \(--debug shows .*\)\n", printed.err)


def test_terminal_escapes_are_shown_and_not_obeyed(here, capsys):
    assert main(["evaluate", "no\x1b[31mthing\x07\u202e.csv"]) == 1
    assert r"no\x1b[31mthing\x07\u202e.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("no-such-command", "there is no command 'no-such-command'; available: bench,"),
        ("gallery", "there is no command 'gallery'; available: bench,"),
        ("research paint", "there is no command 'research paint'"),
        ("evaluate", "evaluate: FILE is missing; see qipf evaluate --help"),
        ("evaluate a b", "evaluate: unexpected argument 'b'"),
        ("evaluate x --no-such-option y", "evaluate: Unknown option: --no-such-option"),
        ("evaluate x --bootstrap many", '--bootstrap: unable to convert "many" into int'),
        ("fit a b", "fit: --output/-o is missing"),
        ("fit a b -o", "fit: --output/-o is missing"),
    ],
)
def test_a_command_line_that_cannot_be_parsed_is_one_line(words, message, capsys):
    assert main(words.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"qipf: {message}") or message in printed.err
    assert printed.err.count("\n") == 1
    assert "─" not in printed.err


SLOW = """
import sys, time
import qipf.cli, qipf.cli.evaluate
from qipf._common.files import replacing

def evaluate(file: str) -> None:
    with replacing("half") as half:
        half.write(b"some")
        print("writing", flush=True)
        time.sleep(60)

qipf.cli.evaluate.evaluate = evaluate
sys.exit(qipf.cli.main(["evaluate", "x.csv"]))
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_signals_end_a_command_cleanly(name, code, tmp_path):
    command = [sys.executable, "-c", SLOW]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert err.startswith("interrupted; ")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_closed_pipe_is_no_error(tmp_path):
    (tmp_path / "scores.csv").write_text("u,correct\n0.5,1\n0.7,0\n")
    command = f"{sys.executable} -m qipf evaluate scores.csv --bootstrap 0 | true"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_logged_errors_and_warnings_are_one_line(monkeypatch, capsys):
    def noisy(file: str) -> None:
        handler = logging.StreamHandler(sys.stderr)
        log = logging.Logger("some.library")
        log.addHandler(handler)
        log.error("lost %s", "a worker", exc_info=RuntimeError("the worker\nis gone"))
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("take\ncare", stacklevel=1)

    monkeypatch.setattr("qipf.cli.evaluate.evaluate", noisy)
    assert main(["evaluate", "x.csv"]) == 0
    assert capsys.readouterr().err == "lost a worker: the worker is gone\nwarning: take care\n"


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        ("bench dmeo", "there is no plan 'dmeo'", 2),
        ("bench demo --engine serail", "--engine: expected auto, serial, local or the address", 2),
        ("bench demo --workers 0", "--workers: expected at least 1, got 0", 2),
        ("bench demo --device tpu", "expected cpu or cuda", 2),
        ("research train --dataset emnist", "there is no dataset 'emnist'", 2),
        ("research gallery sinus -o figures", "there is no figure 'sinus'", 2),
        ("research gallery corruptions --dataset minst -o figures", "--dataset: there is no dataset 'minst'", 2),
        ("research train --net lenett", "--net: there is no network 'lenett'", 2),
        ("research train --epochs -1", "--epochs: expected at least 0, got -1", 2),
        ("research train --device tea", "--device: 'tea' cannot be used", 2),
        ("bench bad.toml", "bad.toml: not valid TOML", 1),
        ("bench wrong.toml", "wrong.toml: pairs: missing", 1),
        ("bench includes.toml", "includes.toml: include nowhere: there is no plan 'nowhere'", 1),
        ("evaluate nothing.csv", "there is no file nothing.csv", 1),
        ("evaluate noise.csv", "expected a column 'correct'", 1),
        ("inspect nothing.qipf", "there is no file nothing.qipf", 1),
        ("inspect noise.csv", "not a file written by qipf", 1),
        ("report nothing", "benchmark store and has none of table.csv", 1),
        ("research gallery sine -o noise.csv", "noise.csv is a file", 1),
        ("research train -o no/net.safetensors", "create it first", 1),
    ],
)
def test_what_is_refused_leaves_nothing(words, message, code, here, capsys):
    assert main(words.split()) == code
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
