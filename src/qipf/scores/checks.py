"""What every scorer asks of the arrays that go in, and of the scores that come out."""

from __future__ import annotations

import dataclasses
from numbers import Integral, Real
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace, to_numpy


def check_matrix(values: Array, name: str) -> None:
    """Raise ValueError unless `values` is (N, C) with at least one column."""
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(
            f"{name}: expected shape (N, C), one row per prediction, got {tuple(values.shape)}"
            + ("; for a model with one output reshape to (N, 1)" if values.ndim == 1 else "")
        )


def check_rows(values: Array, name: str, first: int | None = None) -> None:
    """Raise ValueError that names the rows with NaN or infinite values.

    Args:
        values: (N, C) array of any library.
        name: What they are called in the error.
        first: The number of row 0 where `values` are one batch of more; None where they are all there is.
    """
    check_matrix(values, name)
    if is_traced(values) or values.shape[0] == 0:
        return
    if compat.is_torch_array(values) and values.device.type == "cpu":
        values = to_numpy(values)  # ten times as fast as torch
    xp = namespace(values)
    if bool(xp.all(xp.isfinite(values))):
        return
    found = to_numpy(values)
    rows = np.flatnonzero(~np.isfinite(found).all(axis=1))
    start, count = first or 0, values.shape[0]
    shown = ", ".join(str(start + row) for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
    among = f"{count} rows" if first is None else f"the rows {start} to {start + count - 1}, the first with any"
    where = f"in {len(rows)} of {among}: row {shown} (counted from 0)"
    if name.endswith("logits") and (np.isfinite(found) | np.isneginf(found)).all():
        raise ValueError(
            f"{name}: minus infinity {where}, as the logarithm of a probability of 0 is; clip the "
            "logits first, for instance numpy.clip(logits, -20, None)"
        )
    raise ValueError(f"{name}: NaN or infinite values {where}; remove or repair them first")


def wide(values: Array) -> Array:
    """`values` in 32 bits or more: half precision is for storage, not for sums."""
    xp = namespace(values)
    return xp.astype(values, xp.float32) if xp.finfo(values.dtype).bits < 32 else values


def double(values: Array) -> Array:
    """Return float64 where the library has it: the modes are small differences of nearly equal potentials."""
    xp = namespace(values)
    if compat.is_jax_array(values):
        import jax

        if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
            return values
    if compat.is_torch_array(values) and values.device.type == "mps":
        return values
    return xp.astype(values, xp.float64, copy=False)


_PLAIN = {"int": (Integral, "a whole number"), "float": (Real, "a number"), "str": (str, "a text")}


def check_settings(kind: type, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise TypeError where a setting of a scorer is not of the plain type that its class declares.

    Only settings that are declared as numbers, texts, booleans or None are checked.

    Args:
        kind: the class of the scorer, a dataclass.
        given: positional arguments.
        named: keyword arguments.
    """
    if not dataclasses.is_dataclass(kind):
        return
    fields = [field for field in dataclasses.fields(kind) if field.init]
    settings = {**{field.name: value for field, value in zip(fields, given, strict=False)}, **named}
    for field in fields:
        types = str(field.type).split(" | ")
        if field.name not in settings or not set(types) <= {*_PLAIN, "bool", "None"}:
            continue
        value = settings[field.name]
        if (value is None and "None" in types) or (isinstance(value, bool | np.bool_) and "bool" in types):
            continue
        allowed = [_PLAIN[name] for name in types if name in _PLAIN]
        fits = any(isinstance(value, base) for base, _ in allowed) and not isinstance(value, bool)
        if not fits:
            words = [*(text for _, text in allowed), *(["True or False"] if "bool" in types else [])]
            words += ["None"] if "None" in types else []
            kind = ValueError if isinstance(value, Real) and "int" in types else TypeError
            raise kind(f"{field.name}: expected {' or '.join(words)}, got {value!r}")
