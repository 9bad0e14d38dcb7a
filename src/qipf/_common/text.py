"""Text that comes from a file, a name or a library: safe to show on one line of a terminal, and safe to parse."""

from __future__ import annotations

import tomllib
from typing import Any

from qipf._common.errors import Problem

LONGEST = 2000
"""Characters of a message; a library can put a whole array into one."""
DEEPEST = 100
"""Levels of tables in a TOML file; the parser takes memory that grows with their square."""


def printable(text: object) -> str:
    """Return the text with everything written out that steers a terminal, such as escape sequences."""
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in str(text))


def one_line(text: object) -> str:
    """Return the text as one printable line of at most `LONGEST` characters."""
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}... ({len(line)} characters)"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode()


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML file that is nested at most `DEEPEST` levels.

    Raises:
        Problem: It is nested more deeply, or is not TOML.
    """
    for number, line in enumerate(text.splitlines(), 1):
        parts = 0
        for part in line.split("."):
            parts = 0 if set(part) & set("=,[]{}#") else parts + 1
            if parts > DEEPEST:
                raise Problem("", f"a key of more than {DEEPEST} parts in line {number}")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Problem("", f"not valid TOML: {error}") from None
    except RecursionError:
        raise Problem("", "arrays or tables are nested too deeply") from None
