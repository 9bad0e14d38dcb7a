"""Make untrusted strings safe to print, and parse untrusted TOML."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from qipf._common.errors import Problem

LONGEST = 2000
"""The maximum number of characters that `one_line` keeps; some libraries put whole arrays into their messages."""
MOST_DOTS = 1000
"""The maximum number of dots on a line of TOML, not counting decimal points; a dot may separate two parts of a key."""
_FLOAT = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")


def printable(text: object) -> str:
    """Convert `text` to a string, and escape non-printable characters."""
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in str(text))


def one_line(text: object) -> str:
    """Convert `text` to one printable line, truncated after `LONGEST` characters."""
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}... ({len(line)} characters)"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode()


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML with at most `MOST_DOTS` dots per line.

    Without this limit, a key with many parts could exhaust the memory.

    Raises:
        Problem: `text` is invalid, nested too deeply or over the limit.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_DOTS and _FLOAT.sub("", line).count(".") > MOST_DOTS:
            raise Problem("", f"more than {MOST_DOTS} dots on line {number}")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Problem("", f"not valid TOML: {error}") from None
    except RecursionError:
        raise Problem("", "arrays or tables are nested too deeply") from None
