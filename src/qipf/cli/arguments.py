"""Command-line arguments: their names in error messages, and shared checks."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from qipf._common.errors import InputError, Problem, UserError, first_line
from qipf._common.files import check_parent
from qipf._common.optional import require

QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
"""True if --quiet was passed, which hides progress bars and summaries."""
FLAGS = {
    "data": "DATA",
    "labels": "DATA, labels",
    "targets": "DATA, labels",
    "logits": "DATA, logits",
    "inputs": "DATA, inputs",
    "model": "MODEL",
    "output": "MODEL, output",
    "features": "--features",
    "layers": "--features",
    "weights": "--weights",
    "device": "--device",
    "shift": "--task tokens:shift",
    "task": "--task",
    "effort": "--option: effort",
    "scorer": "--scorer",
    "promise": "--promise",
    "confidence": "--confidence",
    "coverage": "--promise",
    "views": "--views",
    "table": "",
}
"""Command-line names of the library's parameters, for error messages."""
FILES = {"", "data", "labels", "targets", "logits", "inputs", "model", "weights", "table"}
"""Parameters whose values come from files; errors about them lead to exit code 1 instead of 2."""
LONGEST_NUMBER = 300
"""The maximum number of digits of an integer in --option or --task."""


def rendered(problem: Problem, **flags: str) -> UserError:
    """Convert a problem to a command-line error that names the flag."""
    flag = {**FLAGS, **flags}.get(problem.argument, problem.argument)
    kind = InputError if problem.argument in FILES or flag.startswith("DATA") else UserError
    return kind(f"{flag}: {problem.message}" if flag else problem.message)


@contextmanager
def naming(**flags: str) -> Iterator[None]:
    """Override the names in `FLAGS`, for example with `data="--calibrate"`, for problems raised within the block."""
    try:
        yield
    except Problem as problem:
        if problem.argument not in flags:
            raise
        raise rendered(problem, **flags) from problem


def check_output(path: Path | None, *inputs: Path | str | None, endings: Collection[str] = ()) -> None:
    """Raise UserError if --output has the wrong file extension, is in a missing folder, or would overwrite an input."""
    if path is None:
        return
    if endings and path.suffix not in endings:
        raise UserError(f"--output: expected a file with the extension {' or '.join(endings)}, got {path}")
    check_parent(path, "--output", InputError)
    for other in inputs:
        if other is not None and path.exists() and Path(other).exists() and path.samefile(other):
            raise UserError(
                f"--output: {path} is an input of this command and would be overwritten; choose a different file"
            )


def check_at_least(option: str, value: int | None, least: int) -> None:
    """Raise UserError if `value` is less than `least`."""
    if value is not None and value < least:
        raise UserError(f"{option}: expected at least {least}, got {value}")


def usable_device(name: str) -> str:
    """Return `name`; raise UserError if torch cannot use this device."""
    torch = require("torch", extra="torch")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        why = first_line(error).rstrip(".")
        raise UserError(f"--device: {name!r} cannot be used: {why}; choose a different device, such as cpu") from None
    return name


def read_settings(options: list[str], flag: str = "--option") -> dict[str, Any]:
    """Parse NAME=VALUE settings; a value that is not valid JSON is a string."""
    settings: dict[str, Any] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{flag}: expected NAME=VALUE, got {text!r}")
        if key.strip() in settings:
            raise UserError(f"{flag}: {key.strip()} is given twice")
        try:
            settings[key.strip()] = json.loads(value, parse_int=partial(_integer, flag))
        except ValueError:
            settings[key.strip()] = value
        except RecursionError:
            raise UserError(f"{flag}: {key.strip()}: the value is nested too deeply") from None
    return settings


def check_settings(flag: str, name: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise UserError if any given setting is not a setting of the scorer or task `name`."""
    if unknown := sorted(set(given) - set(known)):
        found = f"{name} does not accept {', '.join(unknown)}"
        raise UserError(f"{flag}: {found}; available settings: {', '.join(known) or 'none'}")


def _integer(flag: str, text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise UserError(f"{flag}: expected integers of at most {LONGEST_NUMBER} digits, got {len(text)} digits")
    return int(text)
