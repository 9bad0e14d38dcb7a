"""Data that is given whole: one array, inputs and labels, or a dict of arrays, as tensors that can be cut into rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Number
from typing import Any

import array_api_compat as compat
import numpy as np
from torch import Tensor, as_tensor

_KINDS = {"U": "text", "S": "bytes", "O": "Python objects", "M": "dates", "m": "durations", "V": "records"}


def whole_arrays(data: Any) -> Any:
    """`data` with tensors in the place of its arrays, or None where it is not whole but comes in batches.

    Whole are an array, a table of pandas or polars, a dict of arrays, and a tuple (inputs, labels). There, the inputs
    may be a tuple, a list or a dict of arrays, one for each argument of the model, and the labels a list of numbers.

    Raises:
        TypeError: an array does not hold numbers.
    """
    if isinstance(data, Mapping):
        return {str(key): to_tensor(value, str(key)) for key, value in data.items()}
    if is_array(data):
        return to_tensor(data)
    if not isinstance(data, tuple) or len(data) != 2:
        return None
    inputs, labels = data
    if not (is_array(labels) or is_numbers(labels)):
        return None
    if is_array(inputs) or is_numbers(inputs):
        return to_tensor(inputs, "inputs"), to_tensor(labels, "labels")
    if isinstance(inputs, Mapping):
        return {str(key): to_tensor(value, str(key)) for key, value in inputs.items()}, to_tensor(labels, "labels")
    if isinstance(inputs, tuple | list) and inputs and all(map(is_array, inputs)):
        return tuple(to_tensor(part, f"inputs[{i}]") for i, part in enumerate(inputs)), to_tensor(labels, "labels")
    return None


def columns(whole: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of what `whole_arrays` returned, each with a name for an error message."""
    if isinstance(whole, Tensor):
        yield name or "inputs", whole
    elif isinstance(whole, Mapping):
        for key, part in whole.items():
            yield str(key), part
    elif name:
        for number, part in enumerate(whole):
            yield f"{name}[{number}]", part
    else:
        yield from columns(whole[0], "inputs")
        yield "labels", whole[1]


def take(whole: Any, rows: Any) -> Any:
    """The same structure with some rows of every tensor: a slice, or a tensor of row numbers."""
    if isinstance(whole, Tensor):
        return whole[rows.to(whole.device) if isinstance(rows, Tensor) else rows]
    if isinstance(whole, Mapping):
        return {key: take(part, rows) for key, part in whole.items()}
    return tuple(take(part, rows) for part in whole)


def common_rows(whole: Any) -> int:
    """How many rows every tensor has.

    Raises:
        ValueError: they differ, or one of them is a single number.
    """
    lengths = {name: len(part) if part.ndim else "a single number" for name, part in columns(whole)}
    found = set(lengths.values())
    if len(found) == 1 and isinstance(count := found.pop(), int):
        return count
    hint = "; put two batches of inputs in a list" if isinstance(whole, tuple) else ""
    raise ValueError(f"data: expected arrays with the same number of rows, got {lengths}{hint}")


def to_tensor(values: Any, name: str = "data") -> Tensor:
    """Return `values` as a tensor; only read-only memory and negative strides need a copy.

    Raises:
        TypeError: the values are not numbers.
    """
    if isinstance(values, Tensor):
        return values
    try:
        array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    except ValueError:
        raise TypeError(f"{name}: expected numbers, got lists of different lengths") from None
    if array.dtype.kind not in "biufc":
        kind = _KINDS.get(array.dtype.kind, str(array.dtype))
        way = (
            "convert them first, for instance by numpy.unique(labels, return_inverse=True)[1]"
            if "label" in name
            else "convert them first, for instance by values.astype('float32')"
        )
        raise TypeError(f"{name}: expected numbers, got {kind}; {way}")
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    if array.dtype.itemsize > 8 and array.dtype.kind == "f":
        array = array.astype(np.float64)  # torch has no longer ones
    return as_tensor(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))


def is_array(value: Any) -> bool:
    """Whether this is an array, or a table or a column of pandas or polars."""
    return compat.is_array_api_obj(value) or (hasattr(value, "to_numpy") and hasattr(value, "shape"))


def is_numbers(value: Any) -> bool:
    """Whether this is a list of numbers or of words, however deeply nested, and not a list of arrays."""
    while isinstance(value, tuple | list) and value:
        value = value[0]
        if isinstance(value, Number | str) or (is_array(value) and value.shape == ()):
            return True
    return False
