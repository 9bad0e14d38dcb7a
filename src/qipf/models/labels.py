"""Checks that labels are classes of a model; an error names the first row that is not."""

from __future__ import annotations

import warnings

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace, to_numpy

ENOUGH = 10
"""How many labels it takes before a pattern in all of them, such as one 1 per row, is not put down to chance."""
SUPPORTED = (
    "supported are logits (N, C) with labels (N,); tokens (N, T, V) with (N, T) by qipf.models.collect_tokens and "
    "qipf.scores.probe_tokens; pixels (N, C, H, W) with (N, H, W) by qipf.models.score_pixels and "
    "qipf.scores.probe_pixels; several labels (N, L) with (N, L) of 0 and 1 by qipf.models.collect_labels and "
    "qipf.scores.probe_labels; and numbers (N, k) with floating-point targets (N, k)"
)
"""The kinds of predictions, for the error about an input that fits none of them."""


def check_binary(labels: Array, first: int = 0) -> None:
    """Raise ValueError with the first label that is neither 0 nor 1; `first` is the number of row 0."""
    xp = namespace(labels)
    if labels.shape[0] == 0 or is_traced(labels) or bool(xp.all((labels == 0) | (labels == 1))):
        return
    values = to_numpy(labels)
    row = int(np.argmax((values != 0) & (values != 1)))
    raise ValueError(
        f"labels: expected 0 or 1 for a one-logit model, got {values[row]} in row {first + row}; the targets of a "
        "regression are floating-point numbers: labels.astype('float64')"
    )


def check_classes(labels: Array, columns: int, first: int | None = None) -> None:
    """Raise ValueError with the first label that is not a class of a model with several columns of logits.

    One column is a binary model or a regression, and the labels say which; then only their type is checked.
    Floating-point labels with as many columns as the logits are the targets of a regression with several outputs.

    Args:
        labels: (N,) or (N, columns) array of any library.
        columns: How many columns the logits have.
        first: The number of row 0 where the labels are one batch of more; None where they are all there is.

    Raises:
        TypeError: The labels are not real numbers.
        ValueError: The labels do not fit the logits.
    """
    if not namespace(labels).isdtype(labels.dtype, ("bool", "integral", "real floating")):
        kind = {"U": "text", "S": "bytes", "O": "objects"}.get(getattr(labels.dtype, "kind", ""), str(labels.dtype))
        raise TypeError(
            f"labels: expected classes as whole numbers from 0, or targets as floating-point numbers, got {kind}; "
            "convert them first, for instance by numpy.unique(labels, return_inverse=True)[1]"
        )
    if len(labels.shape) != 1:
        _check_columns(labels, columns, whole=first is None)
        return
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
        numbers = "" if integral else f"; the targets of a regression are as many as its outputs, (N, {columns})"
        raise ValueError(
            f"{expected}; got {values[row]} in row {(first or 0) + row}, the first of {int(bad.sum())} such labels"
            f"{'' if first is None else ' in this batch'}; remove these rows, or leave the labels out{numbers}"
        )
    raise ValueError(f"{expected}; got {values.dtype}, {values[0]} in row {first or 0}; convert them to integers first")


def check_not_numbers(labels: Array, logits: Array) -> None:
    """Raise ValueError for the targets of a regression, where classes are needed."""
    several = len(labels.shape) == 2 and labels.shape[1] > 1 and not zeros_and_ones(labels)
    single = len(labels.shape) == 1 and logits.shape[1] == 1
    if (several or single) and namespace(labels).isdtype(labels.dtype, "real floating"):
        dtype, shapes = str(labels.dtype).removeprefix("torch."), (tuple(labels.shape), tuple(logits.shape))
        raise ValueError(
            f"labels: found {dtype} of shape {shapes[0]} for logits of shape {shapes[1]}: the targets of a regression, "
            "which has no classes; use qipf.ResidualScale().fit(model, qipf.collect(model, data)), and qipf.Intervals "
            "for intervals"
        )


def in_line(labels: Array) -> Array:
    """Return labels (N, 1) as (N,), where each input has one prediction; others as they are.

    Where each input is a sequence, (N, 1) are the labels of sequences of one token, and stay so.
    """
    return labels[:, 0] if len(labels.shape) == 2 and labels.shape[1] == 1 else labels


def as_classes(labels: Array, columns: int) -> Array:
    """Return the labels of a one-logit classifier as integers where they are all 0.0 or 1.0; others as they are."""
    xp = namespace(labels)
    floating = columns == 1 and len(labels.shape) == 1 and xp.isdtype(labels.dtype, "real floating")
    return xp.astype(labels, xp.int64) if floating and zeros_and_ones(labels) else labels


def zeros_and_ones(labels: Array) -> bool:
    """Whether there is at least one label, and every one is 0 or 1, in any type; False while a graph is traced."""
    if 0 in labels.shape or is_traced(labels):
        return False
    xp = namespace(labels)
    return bool(xp.all((labels == 0) | (labels == 1)))


def way_of_pixels(labels: Array, logits: tuple[int, ...]) -> str:
    """What to do with labels that do not fit logits of this shape (N, C, H, W); empty where that cannot be told."""
    shape, classes = tuple(labels.shape), logits[1]
    if len(shape) == 4 and shape[1] == 1:
        return "give labels[:, 0], one label per pixel"
    if len(shape) == 4 and classes > 1 and classes in (shape[1], shape[3]):
        return f"if they are one-hot, give labels.argmax({1 if shape[1] == classes else 3}), one label per pixel"
    if shape[1:] == logits[2:]:
        return "convert them to whole numbers, one label per pixel"
    if len(shape) == 3 and shape[1] > logits[2]:
        return "let the model enlarge its logits to the size of the labels"
    if len(shape) == 3:
        return "give labels of the height and width of the logits"
    return ""


def are_one_hot(labels: Array) -> bool:
    """Whether labels (N, L) of 0 and 1 have exactly one 1 in every row, in enough rows, as one-hot classes do."""
    xp = namespace(labels)
    rows, columns = labels.shape
    return rows >= ENOUGH and columns > 1 and bool(xp.all(xp.sum(xp.astype(labels, xp.int64), axis=1) == 1))


def _check_columns(labels: Array, columns: int, whole: bool) -> None:
    """Raise ValueError unless labels of several dimensions are the targets of a regression with several outputs.

    Only all labels together can be of 0 and 1 alone: some rows of the targets of a regression may be, too.
    """
    shape, dtype = tuple(labels.shape), str(labels.dtype).removeprefix("torch.")
    found = f"labels: found {dtype} of shape {shape} for logits with {columns} column{'s' if columns > 1 else ''}"
    if len(shape) == 2 and shape[1] == 1:
        raise ValueError(f"{found}; pass labels[:, 0], one label per input")
    if len(shape) == 2 and shape[1] == columns:
        floating = namespace(labels).isdtype(labels.dtype, "real floating")
        if (whole or not floating) and zeros_and_ones(labels):
            raise ValueError(
                f"{found}, all 0 or 1; if each column is a label of its own, use qipf.models.collect_labels(model, "
                "data); if they are one-hot classes, pass labels.argmax(1)"
            )
        if floating:
            return
    raise ValueError(f"{found}; {SUPPORTED}")


def warn_of_missing_classes(labels: Array, columns: int) -> None:
    """Warn about classes that no label names; the first inputs of a loader that is sorted by class are of a few only.

    The warning points at the caller of the function that calls the caller of this one.
    """
    classes = max(2, columns)
    missing = sorted(set(range(classes)) - set(np.unique(to_numpy(labels)).astype(int).tolist()))
    if missing:
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        warnings.warn(
            f"data: no input is of class {shown} ({len(missing)} of {classes} classes); shuffle the data, or give more",
            stacklevel=4,
        )
