"""Text that comes from a file, a name or a library, made safe to show on one line of a terminal."""

from __future__ import annotations

LONGEST = 2000
"""Characters of a message; a library can put a whole array into one."""


def printable(text: object) -> str:
    """The text with everything that steers a terminal written out: escape sequences, controls, reversed direction."""
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in str(text))


def one_line(text: object) -> str:
    """The text as one printable line of at most `LONGEST` characters."""
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}... ({len(line)} characters)"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode()
