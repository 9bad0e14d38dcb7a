"""Data that is given whole: one array, inputs and labels, or a dict of arrays, which can all be cut into rows.

Nothing here needs PyTorch: the caller says what becomes of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from numbers import Number
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array
from qipf.data.batches import INPUTS, LABELS

_KINDS = {"U": "text", "S": "bytes", "O": "Python objects", "M": "dates", "m": "durations", "V": "records"}


def whole_arrays(data: Any, convert: Callable[[Any, str], Array]) -> Any:
    """`data` with converted arrays in the place of its own, or None where it is not whole but comes in batches.

    Whole are an array, a table of pandas or polars, a dict of arrays, and a tuple (inputs, labels). There, the inputs
    may be a tuple, a list or a dict of arrays, one for each input of the model, and the labels a list of numbers or
    None.

    Args:
        data: What the user gave.
        convert: Makes an array of what stands for one; its second argument is a name for an error message.

    Raises:
        TypeError: an array does not hold numbers.
    """
    if isinstance(data, Mapping):
        return {str(key): convert(value, str(key)) for key, value in data.items()}
    if is_array(data):
        return convert(data, "data")
    if not isinstance(data, tuple) or len(data) not in (1, 2):
        return None
    if len(data) == 1:
        return convert(data[0], "data") if is_array(data[0]) else None
    inputs, labels = data
    if not (labels is None or is_array(labels) or is_numbers(labels)):
        return None
    own = None if labels is None else convert(labels, "labels")
    if is_array(inputs) or is_numbers(inputs):
        return convert(inputs, "inputs"), own
    if isinstance(inputs, Mapping):
        return {str(key): convert(value, str(key)) for key, value in inputs.items()}, own
    if isinstance(inputs, tuple | list) and inputs and all(map(is_array, inputs)):
        return tuple(convert(part, f"inputs[{i}]") for i, part in enumerate(inputs)), own
    return None


def in_batches(whole: Any, size: int) -> tuple[Iterator[Any], int, int]:
    """Batches of at most `size` rows of what `whole_arrays` returned, how many there are, and the number of rows."""
    rows = count_rows(whole)
    starts = range(0, rows, size)
    return (take(whole, slice(start, start + size)) for start in starts), len(starts), rows


def take(whole: Any, rows: Any) -> Any:
    """The same structure with some rows of every array: a slice, or an array of row numbers.

    A single number, such as a switch of the model, belongs to every row.
    """
    if isinstance(whole, Mapping):
        return {key: take(part, rows) for key, part in whole.items()}
    if isinstance(whole, tuple):
        return tuple(take(part, rows) for part in whole)
    if whole is None or not whole.ndim:
        return whole
    return whole[rows.to(whole.device) if compat.is_torch_array(rows) else rows]


def count_rows(whole: Any) -> int:
    """How many rows every array has.

    Raises:
        ValueError: they differ, or the inputs or the labels are a single number.
    """
    lengths = {name: len(part) if part.ndim else "a single number" for name, part in _columns(whole)}
    found = {
        length
        for name, length in lengths.items()
        if isinstance(length, int) or len(lengths) == 1 or name in (*INPUTS, *LABELS)
    }
    if len(found) == 1 and isinstance(count := found.pop(), int):
        return count
    hint = "; put two batches of inputs in a list" if isinstance(whole, tuple) else ""
    raise ValueError(f"data: expected arrays with the same number of rows, got {lengths}{hint}")


def _columns(whole: Any, name: str = "inputs") -> Iterator[tuple[str, Array]]:
    """Every array with a name for an error message."""
    if isinstance(whole, Mapping):
        yield from whole.items()
    elif not isinstance(whole, tuple):
        yield name, whole
    else:
        inputs, labels = whole
        if isinstance(inputs, tuple):
            yield from ((f"{name}[{number}]", part) for number, part in enumerate(inputs))
        else:
            yield from _columns(inputs)
        if labels is not None:
            yield "labels", labels


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


def as_numbers(values: Any, name: str) -> np.ndarray:
    """Return a list, a table or anything else that NumPy understands as an array of numbers, without a copy if it can.

    Raises:
        TypeError: the values are not numbers.
    """
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
    return array
