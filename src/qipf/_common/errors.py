"""Errors that a user can act on, their exit codes on the command line, and checks of arguments."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


class UserError(Exception):
    """A command-line error, such as an invalid option; its message is printed without a traceback."""

    exit_code = 2


class InputError(UserError):
    """A file or folder named on the command line is missing, damaged or unsuitable."""

    exit_code = 1


class Problem(ValueError, TypeError):
    """An invalid argument, caught by both `except ValueError` and `except TypeError`.

    Args:
        argument: The name of the parameter, such as "labels".
        found: A description of the invalid value, or a complete statement if `expected` is empty.
        expected: A description of valid values.
        hint: The remedy.
        row: The index of the row in the user's data.
    """

    def __init__(
        self, argument: str, found: str, *, expected: str = "", hint: str = "", row: int | None = None
    ) -> None:
        super().__init__(argument, found)  # pickle passes these two and restores the other attributes
        self.argument, self.found, self.expected, self.hint, self.row = argument, found, expected, hint, row

    @property
    def message(self) -> str:
        """The message without the name of the argument."""
        text = f"expected {self.expected}, got {self.found}" if self.expected else self.found
        text = text if self.row is None else f"{text} in row {self.row}"
        return f"{text}; {self.hint}" if self.hint else text

    def renamed(self, argument: str) -> Problem:
        """Return the same problem under a different argument name."""
        return type(self)(argument, self.found, expected=self.expected, hint=self.hint, row=self.row)

    def __str__(self) -> str:
        return f"{self.argument}: {self.message}" if self.argument else self.message


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise Problem unless `value` is an integer from `least` to 2**63 - 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) < 2**63:
        raise Problem(name, f"{value!r:.50}", expected=f"an integer of at least {least} (and below 2**63)")


def check_positive(name: str, value: Any) -> float:
    """Return `value` as a float; raise Problem unless it is a positive finite number."""
    if isinstance(value, bool) or not (isinstance(value, Real) or getattr(value, "ndim", None) == 0):
        raise Problem(name, type(value).__name__, expected="a positive finite number")
    if not 0 < float(value) < math.inf:
        raise Problem(name, f"{float(value)}", expected="a positive finite number")
    return float(value)


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise Problem unless `value` is one of the `known` strings."""
    known = tuple(known)
    if value not in known:
        raise Problem(name, f"{value!r:.50}", expected=f"one of {', '.join(known)}")


def check_flag(name: str, value: Any) -> bool:
    """Return `value` as a bool; raise Problem unless it is True or False."""
    if type(value).__name__ not in ("bool", "bool_"):  # Python's or NumPy's
        raise Problem(name, repr(value), expected="True or False")
    return bool(value)


def check_probability(name: str, value: Any) -> float:
    """Return `value` as a float; raise Problem unless it lies strictly between 0 and 1."""
    try:
        if isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < 1:
            return float(value)
    except OverflowError:  # an integer may be too large for a float
        pass
    raise Problem(name, f"{value!r:.50}", expected="a probability strictly between 0 and 1")
