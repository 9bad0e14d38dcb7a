"""What every scorer asks of the arrays that go in, and of the scores that come out."""

from __future__ import annotations

import numpy as np

from qipf.arrays import Array, is_traced, namespace, to_numpy


def check_matrix(values: Array, name: str) -> None:
    """Raise ValueError unless `values` is (N, C) with at least one column."""
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(
            f"{name}: expected shape (N, C), one row per prediction, got {tuple(values.shape)}"
            + ("; for a model with one output reshape to (N, 1)" if values.ndim == 1 else "")
        )


def check_rows(values: Array, name: str, first: int = 0) -> None:
    """Raise ValueError that names the rows with NaN or infinite values, where `first` is the number of row 0."""
    check_matrix(values, name)
    if is_traced(values) or values.shape[0] == 0:
        return
    xp = namespace(values)
    if bool(xp.all(xp.isfinite(values))):
        return
    rows = np.flatnonzero(~np.isfinite(to_numpy(values)).all(axis=1))
    shown = ", ".join(str(first + row) for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
    raise ValueError(
        f"{name}: NaN or infinite values in {len(rows)} of {values.shape[0]} rows: row {shown} (counted from 0); "
        "remove or repair them first"
    )


def wide(values: Array) -> Array:
    """`values` in 32 bits or more: half precision is for storage, not for sums."""
    xp = namespace(values)
    return xp.astype(values, xp.float32) if xp.finfo(values.dtype).bits < 32 else values
