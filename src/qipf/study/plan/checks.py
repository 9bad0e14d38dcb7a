"""Checks of the values in a plan, with errors that name the key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class PlanError(ValueError):
    """The plan has a mistake; the message names the key."""


class UnknownPlanError(PlanError):
    """There is neither a shipped plan of that name nor such a file."""


def check_name(name: str) -> None:
    """Raise PlanError unless the name of a plan, which is not empty, can be part of a file name.

    The results of a plan go to the folder "bench-NAME", so a name with path parts would write elsewhere.
    """
    fine = name.isprintable() and name == name.strip() and not set(name) & set("/\\") and name[:1] not in ("", ".", "-")
    if not fine or len(name) > 100:
        raise PlanError(
            "name: expected at most 100 printable characters without / and \\, beginning with neither . nor -, "
            f"got {name!r}"
        )


def whole(values: Mapping[str, Any], key: str, where: str, least: int) -> tuple[int, ...]:
    """`values[key]` as different whole numbers of at least `least`."""
    numbers = expect(values, key, list, [], where)
    fine = all(isinstance(n, int) and not isinstance(n, bool) and n >= least for n in numbers)
    if not numbers or not fine or len(set(numbers)) < len(numbers):
        raise PlanError(f"{where}.{key}: expected a list of different whole numbers >= {least}, got {numbers!r}")
    return tuple(numbers)


def strings(values: Mapping[str, Any], key: str, where: str = "") -> list[str]:
    """`values[key]` as a list of strings; empty if it is missing."""
    names = expect(values, key, list, [], where)
    if not all(isinstance(name, str) for name in names):
        raise PlanError(f"{where + '.' if where else ''}{key}: expected a list of names, got {names!r}")
    return names


def expect(values: Mapping[str, Any], key: str, kind: type, default: Any, where: str = "") -> Any:
    """`values[key]` if it has the type `kind`; `default` if it is missing."""
    value = values.get(key, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {str: "a string", int: "a whole number", list: "a list", dict: "a table"}[kind]
        raise PlanError(f"{where + '.' if where else ''}{key}: expected {words}, got {value!r}")
    return value


def existing(name: str, folder: Path | None, where: str) -> str:
    """The absolute path of a file that a plan names relative to its own folder."""
    path = ((folder or Path()) / name).resolve()
    if not path.is_file():
        raise PlanError(f"{where}: there is no file {path}")
    return str(path)


def check_keys(values: Mapping[str, Any], known: Iterable[str], where: str, also: tuple[str, ...] = ()) -> None:
    """Raise PlanError for a key that is not among `known`, and suggest the nearest one that is."""
    known = [*known, *also]
    for key in values:
        if key not in known:
            raise PlanError(f"{where}: unknown key {key!r}; {did_you_mean(key, known)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """'did you mean X?' if a known name is similar, otherwise the list of known names."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known) or '(nothing)'}"
