"""The failures a user can do something about, and what they exit with."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any


class UserError(Exception):
    """The command line is wrong. It is shown on standard error as it is, without a traceback."""

    exit_code = 2


class InputError(UserError):
    """The command line is right, but a file or folder that it names is missing, damaged or does not fit."""

    exit_code = 1


class Problem(ValueError, TypeError):
    """A value that a function cannot accept, in parts that a caller can render or rename.

    It is a ValueError and a TypeError, so that `except` clauses for either catch it.

    Args:
        argument: The name of the parameter, such as "labels"; never a flag of the command line.
        found: What was found, or the whole sentence if `expected` is empty.
        expected: What was expected.
        hint: What to do about it.
        row: The number of the offending row in the user's data, counted from 0.
    """

    def __init__(
        self, argument: str, found: str, *, expected: str = "", hint: str = "", row: int | None = None
    ) -> None:
        super().__init__(argument, found)  # what pickle calls; the rest travels in __dict__
        self.argument, self.found, self.expected, self.hint, self.row = argument, found, expected, hint, row

    @property
    def message(self) -> str:
        """Everything but the argument."""
        text = f"expected {self.expected}, got {self.found}" if self.expected else self.found
        text = text if self.row is None else f"{text} in row {self.row}"
        return f"{text}; {self.hint}" if self.hint else text

    def renamed(self, argument: str) -> Problem:
        """Return the same problem of another argument."""
        return type(self)(argument, self.found, expected=self.expected, hint=self.hint, row=self.row)

    def __str__(self) -> str:
        return f"{self.argument}: {self.message}" if self.argument else self.message


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or the name of its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def check_whole(name: str, value: Any, least: int) -> None:
    """Check an argument that must be a whole number.

    Raises:
        TypeError: it is something else, such as a text, a fraction or None.
        ValueError: it is less than `least`, or too large for torch.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}: expected a whole number, got {value!r}")
    if not least <= int(value) < 2**63:
        raise ValueError(f"{name}: expected a whole number from {least} to 2**63 - 1, got {value}")


def check_flag(name: str, value: Any) -> bool:
    """The value of an argument that must be True or False.

    Raises:
        TypeError: it is something else, such as a text, which would count as True.
    """
    if type(value).__name__ not in ("bool", "bool_"):  # Python's or NumPy's
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def check_probability(name: str, value: Any) -> float:
    """The value of an argument that must lie between 0 and 1.

    Raises:
        TypeError: it is something other than a number.
        ValueError: it is 0, 1 or beyond.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected a probability between 0 and 1, got {value!r}")
    try:
        inside = 0 < float(value) < 1
    except OverflowError:  # a whole number may be too large for a float
        inside = False
    if not inside:
        raise ValueError(f"{name}: expected a probability between 0 and 1, got {value!r:.50}")
    return float(value)
