"""Decode the values of a plan, with errors that name the key, the value and what is expected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qipf._common.optional import require

if TYPE_CHECKING:
    import msgspec
else:
    msgspec = require("msgspec", extra="bench")

WORDS = {"int": "an integer", "str": "a string", "float": "a number", "array": "a list", "object": "a table"}
"""Names of types in messages, by those of msgspec."""


class PlanError(ValueError):
    """The plan has a mistake; the message names the key."""


class UnknownPlanError(PlanError):
    """There is neither a shipped plan of that name nor such a file."""


def decoded(values: Any, kind: Any, where: str = "") -> Any:
    """Convert the values of a TOML table or key to `kind`, a struct, a list or a simple type.

    Raises:
        PlanError: A value has another type or is out of range, or a key is unknown; `where` begins its name.
    """
    if isinstance(values, Mapping) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        check_keys(values, kind.__struct_fields__, where or "the plan")
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        found = values
        for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
            found = found[name] if name else found[int(index)]
        types, limit = re.fullmatch(r"Expected `(.*?)`(?:, got `.*`)?(.*)", message, re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
        expected = " or ".join(WORDS.get(name, name) for name in types.split(" | ") if name != "null")
        key = (where + path.rstrip("`")).lstrip(".")
        raise PlanError(f"{key}: expected {expected}{limit}, got {found!r}") from None


def check_keys(values: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise PlanError for an unknown key and suggest the nearest known one."""
    known = list(known)
    for key in values:
        if key not in known:
            raise PlanError(f"{where}: unknown key {key!r}; {did_you_mean(key, known)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return 'did you mean X?' for a similar name, otherwise the list of known names."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known) or '(nothing)'}"


def existing(name: str, folder: Path | None, where: str) -> str:
    """Return the absolute path of a file named relative to the folder of the plan."""
    path = ((folder or Path()) / name).resolve()
    if not path.is_file():
        raise PlanError(f"{where}: there is no file {path}")
    return str(path)
