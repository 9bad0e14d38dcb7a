"""Helpers for arrays from NumPy, PyTorch, JAX and any other library that follows the array API standard."""

from __future__ import annotations

import math
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem

Array = Any
"""An array from any of these libraries; the array API standard does not define a static type yet."""

_NAMESPACES: dict[type, Any] = {}  # cached, because a lookup takes as long as an operation on a small array


def namespace(*arrays: Array) -> Any:
    """Return the array API namespace that the arrays share."""
    kind = type(arrays[0])
    alike = len(arrays) == 1 or all(type(array) is kind for array in arrays)
    if alike and kind in _NAMESPACES:
        return _NAMESPACES[kind]
    found = compat.array_namespace(*arrays)
    if alike and kind.__name__ in ("ndarray", "Tensor") and kind.__module__ in ("numpy", "torch"):
        _NAMESPACES[kind] = found
    return found


def as_array(values: Any, name: str) -> Array:
    """Return a real floating-point array unchanged; convert a number or a list to a float64 NumPy array.

    Raises:
        Problem: `values` is a masked array with masked entries.
    """
    array: Any = values
    check_not_masked(values, name)
    if not compat.is_array_api_obj(values):
        if not isinstance(values, int | float | list | tuple):
            raise TypeError(f"{name}: expected an array, a number or a list of numbers, got {type(values).__name__}")
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            kind = type(values).__name__
            raise TypeError(f"{name}: expected numbers, got a {kind} that cannot be converted ({error})") from None
    xp = namespace(array)
    if not xp.isdtype(array.dtype, "real floating"):
        raise TypeError(
            f"{name}: expected a real floating-point array, got dtype {array.dtype}; convert it, for example to float64"
        )
    return array


def check_finite(values: Array, name: str) -> None:
    """Raise ValueError if any value is NaN or infinite; traced values are not checked."""
    if is_traced(values):
        return
    if compat.is_jax_array(values):
        values = np.asarray(values)  # under jax.jit, operations on concrete values are also traced
    xp = namespace(values)
    finite = xp.isfinite(values)
    if not bool(xp.all(finite)):
        good = int(xp.count_nonzero(finite))
        total = math.prod(finite.shape)
        found = f"got NaN or infinity in {total - good} of {total} entries"
        raise ValueError(f"{name}: expected finite values, {found}; remove or replace these entries")


def is_traced(values: Array) -> bool:
    """Return True if `values` are being traced by jax.jit, torch.func.vmap, torch.compile or torch.export."""
    if isinstance(values, np.ndarray):
        return False
    if compat.is_jax_array(values):
        import jax

        return isinstance(values, jax.core.Tracer)  # pyright: ignore[reportAttributeAccessIssue]
    if compat.is_torch_array(values):
        import torch

        functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
        return torch.compiler.is_compiling() or functorch.is_functorch_wrapped_tensor(values)
    return False


def widest_float(device: Any) -> str:
    """Return the widest floating-point type of `device`: "float32" for Apple's "mps", otherwise "float64"."""
    return "float32" if str(device).partition(":")[0] == "mps" else "float64"


def placeable(values: np.ndarray, device: Any) -> np.ndarray:
    """Return `values`, converted from float64 to float32 if `device` does not support float64."""
    narrow = values.dtype == np.float64 and widest_float(device) == "float32"
    return values.astype(np.float32) if narrow else values


def to_numpy(values: Array) -> np.ndarray:
    """Return `values` as a NumPy array; a bfloat16 tensor becomes float32."""
    if compat.is_torch_array(values):
        tensor = values.detach().cpu()
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    check_not_masked(values)
    return np.asarray(values)


def check_not_masked(values: Any, name: str = "array") -> None:
    """Raise Problem if `values` has masked entries."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        count = int(np.ma.getmaskarray(values).sum())
        found = f"masked values in {count} of {values.size} entries"
        raise Problem(name, found, hint="remove the rows that contain masked values")


def like(values: Array, reference: Array) -> Array:
    """Convert `values` to the library, dtype and device of `reference`."""
    xp = namespace(reference)
    return xp.asarray(values, dtype=reference.dtype, device=compat.device(reference))


def at_least(values: Array, low: float) -> Array:
    """Replace values below `low` with `low`."""
    # torch's `clamp` takes half as long as the array API's `clip`
    return values.clamp(min=low) if compat.is_torch_array(values) else namespace(values).clip(values, low, None)


def row_max(values: Array) -> Array:
    """Return the maximum of each row of an (N, C) array."""
    xp = namespace(values)
    # NumPy's own maximum is slow for arrays with few columns
    if not isinstance(values, np.ndarray) or values.shape[1] > 32:
        return xp.max(values, axis=1)
    result = np.empty(len(values), values.dtype)
    for start in range(0, len(values), 4096):  # this many rows fit in a core's cache
        columns = np.ascontiguousarray(values[start : start + 4096].T)
        np.maximum.reduce(columns, axis=0, out=result[start : start + 4096])
    return result


def interpolate(values: Array, at: Array, to: Array) -> Array:
    """Evaluate an increasing piecewise-linear function, which is constant beyond the first and the last knot.

    Args:
        values: (N,) points of evaluation; NaN stays NaN.
        at: (K,) knots in ascending order.
        to: (K,) values of the function at the knots.
    """
    xp = namespace(values)
    if is_traced(values):  # not every exporter supports searchsorted
        passed = xp.sum(xp.astype(values[:, None] >= at, xp.int64), axis=1)
    else:
        passed = xp.searchsorted(at, values, side="right")
    left = xp.clip(passed - 1, 0, max(at.shape[0] - 2, 0))
    right = xp.clip(left + 1, 0, at.shape[0] - 1)
    start, low, high = xp.take(at, left, axis=0), xp.take(to, left, axis=0), xp.take(to, right, axis=0)
    gap = xp.take(at, right, axis=0) - start
    share = (values - start) / xp.where(gap > 0, gap, xp.ones_like(gap))
    return xp.minimum(low + xp.clip(share, 0.0, 1.0) * (high - low), high)
