"""Untrusted strings: safe to show on one line of a terminal, and safe to parse."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from qipf._common.errors import Problem

LONGEST = 2000
"""The largest length of a message; a library may put a whole array into one."""
MOST_DOTS = 1000
"""Dots in a line of a TOML file, numbers apart: each may be a part of a key."""
_FLOAT = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")


def printable(text: object) -> str:
    """Return the string with control characters, such as escape sequences, written out."""
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in str(text))


def one_line(text: object) -> str:
    """Return the string as one printable line of at most `LONGEST` characters."""
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}... ({len(line)} characters)"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode()


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML file whose keys are short: the memory grows with the square of their parts.

    Raises:
        Problem: A line has more than `MOST_DOTS` dots outside numbers, or it is not TOML.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_DOTS and _FLOAT.sub("", line).count(".") > MOST_DOTS:
            raise Problem("", f"more than {MOST_DOTS} dots in line {number}")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Problem("", f"not valid TOML: {error}") from None
    except RecursionError:
        raise Problem("", "arrays or tables are nested too deeply") from None
