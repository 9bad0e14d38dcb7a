"""Checks that labels are classes of a model; an error names the first row that is not."""

from __future__ import annotations

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace, to_numpy


def check_binary(labels: Array, first: int = 0) -> None:
    """Raise ValueError with the first label that is neither 0 nor 1; `first` is the number of row 0."""
    xp = namespace(labels)
    if labels.shape[0] == 0 or is_traced(labels) or bool(xp.all((labels == 0) | (labels == 1))):
        return
    values = to_numpy(labels)
    row = int(np.argmax((values != 0) & (values != 1)))
    raise ValueError(f"labels: expected 0 or 1 for a one-logit model, got {values[row]} in row {first + row}")


def check_classes(labels: Array, columns: int, first: int = 0) -> None:
    """Raise ValueError with the first label that is not a class of a model with several columns of logits.

    One column is a binary model or a regression, and the labels say which; then only their type is checked.

    Args:
        labels: (N,) array of any library.
        columns: How many columns the logits have.
        first: The number of row 0.

    Raises:
        TypeError: The labels are not real numbers.
    """
    if not namespace(labels).isdtype(labels.dtype, ("bool", "integral", "real floating")):
        kind = {"U": "text", "S": "bytes", "O": "objects"}.get(getattr(labels.dtype, "kind", ""), str(labels.dtype))
        raise TypeError(
            f"labels: expected classes as whole numbers from 0, or targets as floating-point numbers, got {kind}; "
            "convert them first, for instance by numpy.unique(labels, return_inverse=True)[1]"
        )
    if columns < 2 or labels.shape[0] == 0 or is_traced(labels):
        return
    if compat.is_jax_array(labels):
        labels = np.asarray(labels)  # under jax.jit even operations on known values are traced
    xp = namespace(labels)
    integral = xp.isdtype(labels.dtype, ("integral", "bool"))
    if xp.isdtype(labels.dtype, "bool") or (integral and int(xp.min(labels)) >= 0 and int(xp.max(labels)) < columns):
        return
    values = to_numpy(labels)
    bad = ~((values >= 0) & (values < columns) & (values == np.floor(values)))  # NaN is bad as well
    row = int(np.argmax(bad))
    expected = f"labels: expected classes from 0 to {columns - 1}, whole numbers, as there are {columns} logits"
    if bad.any():
        raise ValueError(
            f"{expected}; got {values[row]} in row {first + row}, the first of {int(bad.sum())} such labels; remove "
            "these rows, or leave the labels out"
        )
    raise ValueError(f"{expected}; got {values.dtype}, {values[0]} in row {first}; convert them to integers first")
