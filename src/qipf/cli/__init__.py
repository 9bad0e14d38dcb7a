"""The command line; each command has its own module, which is imported when the command is called."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

from qipf._common.errors import Problem, UserError, first_line
from qipf._common.optional import require
from qipf._common.printing import one_line
from qipf.cli.arguments import QUIET, rendered

COMMANDS = ("bench", "compare", "demo", "evaluate", "fit", "inspect", "paper", "report", "score", "watch")
"""Commands; each is a function in a module of the same name."""
RESEARCH = ("gallery", "train")
"""Commands of `qipf research`; each is a function in a module of the same name."""
EXIT_CODES = (
    "All commands accept --quiet (hide progress bars and summaries) and --debug (show the traceback of an error). Exit "
    "codes: 0 success; 1 failure, such as a missing or damaged file, unsuitable data, or a failed cell of a benchmark; "
    "2 invalid command line; 3 an alarm from `qipf watch --once`; 128 plus the signal number if interrupted (130 for "
    "Ctrl-C)."
)


def build(listing: bool = False) -> Any:
    """Return the cyclopts application; `listing` imports all commands to list their summaries."""
    cyclopts = require("cyclopts", extra="torch")
    common = {"suppress_keyboard_interrupt": False, "default_parameter": cyclopts.Parameter(negative=())}
    about = "Measure how far each prediction of a trained neural network can be trusted."
    app = cyclopts.App(name="qipf", version=version("qipf"), help=about, help_epilogue=EXIT_CODES, **common)
    purpose = "Train the networks and draw the figures used in the research."
    research = cyclopts.App(name="research", help=purpose, **common)
    for group, names in ((app, COMMANDS), (research, RESEARCH)):
        for name in names:
            module = f"qipf.cli.{name}"
            group.command(getattr(import_module(module), name) if listing else f"{module}:{name}", name=name)
    app.command(research)
    app.register_install_completion_command()
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug, words = "--debug" in given, [word for word in given if word not in ("--debug", "--quiet")]
    token = QUIET.set("--quiet" in given)
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # None if the parent process closed it  # noqa: SIM115
    with session(debug) as stopped:
        try:
            code = _run(words)
        except KeyboardInterrupt:
            code = Stopped.INTERRUPT
            print(
                "interrupted; no partial files remain; to resume a benchmark, or a training run with --checkpoint, run "
                "the command again",
                file=sys.stderr,
            )
        except BrokenPipeError:  # the reader closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        except SystemExit:
            raise
        except BaseException as error:  # a panic in a Rust library does not inherit from Exception
            code, message = _explain(error, words)
            if debug:
                traceback.print_exception(error)
            else:
                print(f"qipf: {one_line(message)}", file=sys.stderr)
        finally:
            QUIET.reset(token)
    return stopped.code or code


def _run(words: list[str]) -> int:
    app = build(listing=not {*words[:2]} - {"--help", "-h", "research"})
    result = app(words, print_error=False, exit_on_error=False, result_action="return_value")
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _explain(error: BaseException, words: list[str]) -> tuple[int, str]:
    """Return the exit code and the message of an error."""
    error = rendered(error) if isinstance(error, Problem) else error
    if isinstance(error, UserError):
        return error.exit_code, str(error)
    if type(error).__module__.startswith("cyclopts"):
        return 2, _wrong_use(error, words)
    if isinstance(error, ModuleNotFoundError):
        return 1, f"{error}; in a checkout of qipf, install all requirements with pip install -e '.[report]'"
    if isinstance(error, MemoryError):
        hint = "the data is too large for this machine, or a file is damaged"
        return 1, f"not enough memory{f' ({error})' if str(error) else ''}: {hint}"
    if isinstance(error, ValueError | TypeError | OSError | ImportError) and str(error):
        return 1, str(error)
    details = f": {first_line(error)}" if str(error).strip() else ""
    for frame in traceback.extract_tb(error.__traceback__)[-1:]:
        details += f", in {Path(frame.filename).name}, line {frame.lineno}"
    return 1, f"{type(error).__name__}{details} (--debug shows the details)"


def _wrong_use(error: Any, words: list[str]) -> str:
    """Describe a command line that cyclopts cannot parse."""
    kind, argument = type(error).__name__, getattr(error, "argument", None)
    command = " ".join(words[: 2 if words[0] == "research" else 1])
    if kind == "UnknownCommandError":
        known = (*COMMANDS, *(f"research {name}" for name in RESEARCH))
        return f"there is no command {command!r}; available: {', '.join(known)}"
    if kind == "MissingArgumentError" and argument is not None:
        # cyclopts reports positional arguments under option names
        shown = "/".join(argument.names) if argument.field_info.is_keyword_only else argument.name.lstrip("-").upper()
        message = f"{shown} is missing"
    elif kind == "UnusedCliTokensError":
        message = f"unexpected argument {' '.join(error.unused_tokens)!r}"
    else:
        error.verbose = False
        message = str(error).strip().rstrip(".")
    return f"{command}: {message}; see qipf {command} --help"


class Stopped:
    """The signal that interrupted the command, if any."""

    INTERRUPT = 128 + signal.SIGINT

    def __init__(self) -> None:
        self.code = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.code = 128 + number
        raise KeyboardInterrupt  # so that the cleanup for Ctrl-C runs


@contextmanager
def session(debug: bool = False) -> Iterator[Stopped]:
    """Handle SIGTERM and SIGHUP like Ctrl-C; unless `debug` is true, print each warning or logged error on one line."""
    stopped = Stopped()
    kept = {}
    if threading.current_thread() is threading.main_thread():
        for number in (getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)):
            if signal.getsignal(number) is signal.SIG_DFL:  # under nohup, SIGHUP must stay ignored
                kept[number] = signal.signal(number, stopped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    show, factory = warnings.showwarning, logging.getLogRecordFactory()
    if not debug:
        warnings.showwarning = lambda text, *_, **__: print(f"warning: {one_line(text)}", file=sys.stderr)
        logging.setLogRecordFactory(lambda *given, **named: _without_traceback(factory(*given, **named)))
    try:
        yield stopped
    finally:
        warnings.showwarning = show
        logging.setLogRecordFactory(factory)
        for number, before in kept.items():
            signal.signal(number, before)


def _without_traceback(record: logging.LogRecord) -> logging.LogRecord:
    if record.exc_info and record.exc_info[1] is not None:
        record.msg, record.args = f"{one_line(record.getMessage())}: {one_line(record.exc_info[1])}", ()
        record.exc_info = None
    return record
