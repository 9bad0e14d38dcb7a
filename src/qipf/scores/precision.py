"""Keeps scores finite: no half precision inside a scorer, and nothing beyond the range of the result's type."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace, to_numpy

_NOTHING = nullcontext()


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
    """Raise ValueError that names the rows whose score is not a finite number."""
    if is_traced(scores) or scores.shape[0] == 0:
        return
    xp = namespace(scores)
    if bool(xp.all(xp.isfinite(scores))):
        return
    rows = np.flatnonzero(~np.isfinite(to_numpy(scores)))
    shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
    raise ValueError(
        f"{name}: no finite score for {len(rows)} of {scores.shape[0]} predictions: row {shown} (counted from 0); "
        "their logits or features are too large for this method, scale or remove them first"
    )
