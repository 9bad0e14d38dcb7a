"""What users give as data and as batches: what is refused, and how a batch parts into inputs and labels.

PyTorch's models and ONNX models read data by the same rules, so nothing here needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import array_api_compat as compat

from qipf.arrays import Array
from qipf.data.batches import LABELS
from qipf.models.outputs import Outputs
from qipf.models.whole import as_numbers, is_array, is_numbers


def check_kind(data: Any) -> None:
    """Refuse what is neither data nor batches, with the way out.

    Raises:
        TypeError: it is a path, outputs, a model, or something else that cannot be iterated.
        ValueError: it is a list [inputs, labels], whose labels would go through the model as a second batch.
    """
    hint = ""
    if isinstance(data, str | PathLike):
        hint = "; read the file first, for instance by numpy.load"
    elif isinstance(data, Outputs):
        hint = "; outputs are scored by calling the scorer: scorer(outputs)"
    elif callable(getattr(data, "named_modules", None)):
        hint = "; the model is the first argument, and the data the second"
    known = hasattr(data, "__iter__") or hasattr(data, "__getitem__")
    if hint or isinstance(data, bytes) or not known:
        raise TypeError(
            "data: expected an array, (inputs, labels), a dict of arrays, a dataset, a DataLoader or an iterable of "
            f"batches, got {type(data).__name__}{hint}"
        )
    if isinstance(data, list | tuple):
        _check_not_a_pair(data)


def _check_not_a_pair(batches: list[Any] | tuple[Any, ...]) -> None:
    if len(batches) != 2 or not is_array(batches[0]) or not (is_array(batches[1]) or is_numbers(batches[1])):
        return
    arrays: list[Array] = [part if compat.is_array_api_obj(part) else as_numbers(part, "data") for part in batches]
    first, second = arrays
    if first.ndim != second.ndim or str(first.dtype) != str(second.dtype):
        raise ValueError(
            "data: expected a list to hold batches of inputs of one kind, got "
            f"{describe(first)} and {describe(second)}; pass inputs and labels as a tuple (x, y)"
        )


def split_batch(batch: Any, number: int) -> tuple[Any, Any]:
    """Return the inputs and the labels of a batch."""
    if isinstance(batch, Mapping):
        found = [key for key in LABELS if key in batch]
        inputs = {key: value for key, value in batch.items() if key not in found}
        return inputs, batch[found[0]] if found else None
    if isinstance(batch, tuple | list):
        if len(batch) == 1:
            return batch[0], None
        if len(batch) == 2:
            return batch[0], batch[1]
        raise ValueError(
            f"batch {number}: expected inputs, (inputs, labels) or a dict of arrays, got {describe(batch)}; "
            "put several inputs in a tuple of their own: ((a, b), labels)"
        )
    if not is_array(batch):
        raise TypeError(
            f"batch {number}: expected an array, a tuple (inputs, labels) or a dict of arrays, got {describe(batch)}"
        )
    return batch, None


def one_per_row(labels: Array, rows: int | None, number: int) -> Array:
    """Return the labels of a batch, which have one entry or row per input.

    Raises:
        ValueError: there are more or fewer labels than inputs, or a single number.
    """
    if labels.ndim == 0:
        raise ValueError(
            f"batch {number}: expected one label per row, got a single number; use a DataLoader to make batches of "
            "single samples"
        )
    if rows is not None and labels.shape[0] != rows:
        raise ValueError(f"batch {number}: expected {rows} labels, one per input, got {labels.shape[0]}")
    return labels


def known_length(value: Any) -> int | None:
    """Return how long something is, or None where that is unknown, as of a generator or an iterable dataset."""
    try:
        return len(value)
    except (TypeError, NotImplementedError):
        return None


def describe(value: Any) -> str:
    """Return what `value` is, with the dtypes and shapes of the arrays in it, for an error message."""
    array: Any = value
    if compat.is_array_api_obj(value):
        return f"{str(array.dtype).removeprefix('torch.')} {tuple(array.shape)}"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key}: {describe(item)}" for key, item in list(value.items())[:4])
        return f"a dict of {len(value)} ({inside})"
    if isinstance(value, tuple | list) and len(value) <= 4:
        return f"a {type(value).__name__} of {len(value)}: {', '.join(map(describe, value))}"
    return type(value).__name__
