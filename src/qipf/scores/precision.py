"""Check the arrays that scorers read and return, and keep sums out of half precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, is_traced, namespace, to_numpy

_NOTHING = nullcontext()


def check_matrix(values: Array, name: str) -> None:
    """Raise ValueError unless `values` is (N, C) with at least one column."""
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(
            f"{name}: expected shape (N, C), one row per prediction, got {tuple(values.shape)}"
            + ("; for a model with one output reshape to (N, 1)" if values.ndim == 1 else "")
        )


def check_rows(values: Array, name: str, numbers: Sequence[int] | None = None) -> None:
    """Raise Problem that names the rows with NaN or infinite values.

    Args:
        values: (N, C) array of any library.
        name: What they are called in the error.
        numbers: The number of each row in the user's data; None to count from 0.
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
    bad = np.asarray(~np.isfinite(found).all(axis=1))
    where = f"in {_shown(bad, numbers)}"
    if name.endswith("logits") and (np.isfinite(found) | np.isneginf(found)).all():
        hint = "clip the logits first, for instance numpy.clip(logits, -20, None)"
        raise Problem(name, f"minus infinity {where}, as the logarithm of a probability of 0 is", hint=hint)
    raise Problem(name, f"NaN or infinite values {where}", hint="remove or repair them first")


def _shown(bad: np.ndarray, numbers: Sequence[int] | None) -> str:
    rows = np.flatnonzero(bad)
    named = [str(row if numbers is None else numbers[row]) for row in rows[:5]]
    return f"{len(rows)} of {len(bad)} rows: row {', '.join(named)}{', ...' if len(rows) > 5 else ''} (counted from 0)"


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


def without_autocast(values: Array) -> AbstractContextManager[Any]:
    """Turns torch's autocast off on the device of `values`: sums in half precision overflow above 65,504."""
    if not compat.is_torch_array(values):
        return _NOTHING
    import torch

    kind = values.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else _NOTHING


def in_range(values: Array, dtype: Any) -> Array:
    """`values` as `dtype`, where what lies beyond its range becomes its largest number. NaN stays NaN."""
    if compat.is_torch_array(values):
        import torch

        if values.dtype == dtype:
            return torch.nan_to_num(values, nan=math.nan)
        limits = torch.finfo(min(dtype, values.dtype, key=lambda kind: torch.finfo(kind).max))
        return values.clamp(limits.min, limits.max).to(dtype)
    xp = namespace(values)
    limits = xp.finfo(dtype)
    if xp.finfo(values.dtype).bits < limits.bits:
        values = xp.astype(values, dtype)
    return xp.astype(xp.clip(values, float(limits.min), float(limits.max)), dtype, copy=False)


def check_scores(scores: Array, name: str) -> None:
    """Raise Problem that names the rows whose score is not a finite number."""
    if is_traced(scores) or scores.shape[0] == 0:
        return
    xp = namespace(scores)
    if bool(xp.all(xp.isfinite(scores))):
        return
    found = f"no finite score for {_shown(~np.isfinite(to_numpy(scores)), None)}"
    hint = "their logits or features are too large for this method, scale or remove them first"
    raise Problem(name, found, hint=hint)
