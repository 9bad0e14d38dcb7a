"""Read batches of inputs and labels from arrays, tables, dicts, datasets, loaders and iterators.

PyTorch datasets and loaders are recognised, but PyTorch need not be installed.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from numbers import Number
from os import PathLike
from typing import Any, NamedTuple

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem, check_whole
from qipf.arrays import Array, check_not_masked, namespace

LABELS = ("labels", "label", "targets", "target", "y")
"""Keys under which a dict can hold labels."""
INPUTS = ("inputs", "input", "x", "images", "image", "pixel_values", "data")
"""Keys under which a dict can hold the input of a model with one input, whatever the model calls that input."""
MASK = "attention_mask"
_KINDS = {"U": "strings", "S": "bytes", "O": "Python objects", "M": "dates", "m": "durations", "V": "records"}


class InputSpec(NamedTuple):
    """One input of a model."""

    name: str
    dtype: Any = None
    """The NumPy type; None if the model declares none, or if the input consists of strings or sequences."""
    shape: tuple[int | None, ...] = ()
    """The shape, with None for an axis of any size; empty if the model declares no shape."""

    @property
    def batch(self) -> int | None:
        """The fixed batch size; None if batches may have any size."""
        return self.shape[0] if self.shape else None

    def __str__(self) -> str:
        declared = [] if self.dtype is None else [str(self.dtype)]
        declared += [f"shape {shape_text(self.shape)}"] if self.shape else []
        return f"{self.name!r} ({', '.join(declared)})" if declared else repr(self.name)


class Batch(NamedTuple):
    """One batch, with its inputs arranged as the arguments of a model.

    Attributes:
        args: Positional arguments of the model.
        kwargs: Keyword arguments of the model.
        labels: One label or row of labels per input, or None.
        mask: The attention mask in the data, or None.
        number: The index of the batch.
        numbers: The index of each row in the user's data; perturbed copies of a row keep its index.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    labels: Array | None
    mask: Array | None
    rows: int
    number: int
    numbers: Sequence[int]

    @property
    def inputs(self) -> Any:
        """The inputs: an array, a tuple of positional inputs, or a dict if all inputs are named."""
        if not self.args:
            return self.kwargs
        return self.args[0] if len(self.args) == 1 else self.args

    def replaced(self, inputs: Any) -> Batch:
        """Return a copy with new inputs, passed in the form that the property `inputs` returns."""
        if not self.args:
            return self._replace(kwargs=inputs)
        return self._replace(args=tuple(inputs) if len(self.args) > 1 else (inputs,))

    def first(self, rows: int) -> Batch:
        """Return at most the first `rows` rows."""
        return self if rows >= self.rows else self.chosen(slice(rows))

    def chosen(self, rows: slice | np.ndarray) -> Batch:
        """Return the rows selected by a slice or by an array of indices."""
        args, kwargs, labels, mask = (take(part, rows) for part in self[:4])
        numbers: list[int] = np.asarray(self.numbers)[rows].tolist()
        return Batch(args, kwargs, labels, mask, len(numbers), self.number, numbers)

    @property
    def texts(self) -> bool:
        """True if an input is a matrix of integers, such as token ids."""
        given = [one for one in (*self.args, *self.kwargs.values()) if compat.is_array_api_obj(one)]
        return any(one.ndim == 2 and _is_integral(one) for one in given)  # pyright: ignore


class Source:
    """An iterable of batches; each is a tuple of raw inputs, raw labels (or None) and row indices.

    Args:
        data: An array, (inputs, labels), a dict of arrays, a dataset, a loader, or an iterable of batches.
        batch_size: Rows per batch, unless `data` is already batched.
        numbers: The index of each row in the original data; None to count from 0.

    Attributes:
        rows: The number of rows; None if unknown.
        count: The number of batches; None if unknown.
        indexed: True if rows can be read in any order.
    """

    rows: int | None = None
    count: int | None = None
    indexed: bool = False
    _started: Iterator[tuple[Any, Any, Sequence[int]]] | None = None
    _order: np.ndarray | None = None
    """The rows to read from indexed data; None to read all."""
    _limit: int | None = None
    """The maximum number of rows to read if `_data` is another source; None to read all."""

    def __init__(self, data: Any, batch_size: int, numbers: Sequence[int] | np.ndarray | None = None) -> None:
        check_whole("batch_size", batch_size, 1)
        self._size, self._numbers = batch_size, numbers
        self._data, self._whole = data, None if _is_torch(data, "DataLoader") else _whole_arrays(data)
        self.indexed = self._whole is not None
        if self._whole is not None:
            self.rows = _count_rows(self._whole)
        elif _is_torch(data, "DataLoader"):
            self.count, rows = _length(data), _length(data.sampler)
            if data.batch_size is not None and rows is not None and self.count is not None:
                self.rows = min(rows, self.count * data.batch_size)
        else:
            _check_data(data)
            if isinstance(data, list | tuple):
                found = [_rows_of(_split(batch, number)) for number, batch in enumerate(data)]
                self.count, self.rows = len(data), None if None in found else sum(one or 0 for one in found)
            elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
                self.indexed, self.rows = True, len(data)
            elif not _is_torch(data, "IterableDataset"):
                self.count, self.rows = _length(data), None if numbers is None else len(numbers)
        if self.indexed:
            self.count = -(-(self.rows or 0) // batch_size)

    @classmethod
    def of(cls, data: Any, batch_size: int) -> Source:
        """Return `data` if it is already a source, otherwise a new source that reads it."""
        return data if isinstance(data, Source) else cls(data, batch_size)

    def __iter__(self) -> Iterator[tuple[Any, Any, Sequence[int]]]:
        started, self._started = self._started, None
        return self._batches() if started is None else started

    def peek(self) -> tuple[Any, Any, Sequence[int]] | None:
        """Return the first batch without consuming it, or None."""
        stream = iter(self)
        first = next(stream, None)
        self._started = stream if first is None else chain([first], stream)
        return first

    def sample(self, size: int, seed: int) -> Source:
        """Return a source of at most `size` rows: if `indexed`, random rows in order, otherwise the first rows."""
        if self.rows is not None and self.rows <= size:
            return self
        picked = copy.copy(self)
        picked._started, picked.rows = None, size if self.indexed else None if self.rows is None else size
        if not self.indexed:
            picked._data, picked._limit = self, size
            return picked
        import torch

        drawn = torch.randperm(self.rows or 0, generator=torch.Generator().manual_seed(seed))[:size].sort().values
        picked._order = drawn.numpy() if self._order is None else self._order[drawn.numpy()]
        picked.count = -(-size // self._size)
        return picked

    def _batches(self) -> Iterator[tuple[Any, Any, Sequence[int]]]:
        if self._limit is not None:
            yield from self._first_rows(self._limit)
            return
        first = 0
        for number, batch in enumerate(self._raw()):
            inputs, labels = _split(batch, number)
            rows = _rows_of((inputs, labels))
            if rows is None:
                raise Problem("data", f"batch {number}: the number of rows is unknown", hint="pass labels as well")
            found = range(first, first + rows) if self._order is None else self._order[first : first + rows].tolist()
            yield inputs, labels, found if self._numbers is None else [int(self._numbers[row]) for row in found]
            first += rows

    def _raw(self) -> Iterator[Any]:
        if self.indexed:
            parts = (slice(at, min(at + self._size, self.rows or 0)) for at in range(0, self.rows or 0, self._size))
            return (self._read(part if self._order is None else self._order[part]) for part in parts)
        if _is_torch(self._data, "IterableDataset"):
            items = iter(self._data)
            return iter(lambda: _stacked(list(islice(items, self._size))), None)
        return iter(self._data)

    def _read(self, rows: slice | np.ndarray) -> Any:
        """Return some rows of indexed data."""
        if self._whole is not None:
            return take(self._whole, rows)
        chosen = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        return _stacked([self._data[index] for index in chosen])

    def _first_rows(self, limit: int) -> Iterator[tuple[Any, Any, Sequence[int]]]:
        for inputs, labels, numbers in self._data:
            part = numbers[:limit]
            cut = slice(len(part))
            yield (
                (inputs, labels, numbers) if len(part) == len(numbers) else (take(inputs, cut), take(labels, cut), part)
            )
            limit -= len(part)
            if limit <= 0:
                return


def mask_key(names: Container[str]) -> str:
    """Return the key of the attention mask of the predicted tokens: the decoder's mask if there is a decoder."""
    return f"decoder_{MASK}" if "decoder_input_ids" in names else MASK


def take(values: Any, rows: Any) -> Any:
    """Select rows of every array in a nested structure, with a slice or an array of indices; keep scalars."""
    if isinstance(values, Mapping):
        return {key: take(part, rows) for key, part in values.items()}
    if isinstance(values, tuple | list):
        return type(values)(take(part, rows) for part in values) if type(values) in (tuple, list) else values
    return values[rows] if compat.is_array_api_obj(values) and values.ndim else values  # pyright: ignore


def row_count(values: Any) -> int | None:
    """Return the number of rows of the first array in a nested structure, or None."""
    if is_array(values):
        return len(values) if len(values.shape) else None
    parts = values.values() if isinstance(values, Mapping) else values if isinstance(values, tuple | list) else ()
    return next((found for part in parts if (found := row_count(part)) is not None), None)


def is_array(value: Any) -> bool:
    """Return True for an array, or for a pandas or polars table or column."""
    return compat.is_array_api_obj(value) or (hasattr(value, "to_numpy") and hasattr(value, "shape"))


def is_numbers(value: Any) -> bool:
    """Return True for a possibly nested list of numbers or strings, but not for a list of arrays."""
    while isinstance(value, tuple | list) and value:
        value = value[0]
        if isinstance(value, Number | str) or (is_array(value) and value.shape == ()):
            return True
    return False


def as_numbers(values: Any, name: str) -> np.ndarray:
    """Convert an array, list or table to an array of numbers, without a copy if possible."""
    array = _to_array(values, name)
    if array.dtype.kind in "biufc":
        return array
    labels = "label" in name
    way = "number the classes from 0, as the model does" if labels else "convert them, for example to float32"
    found = _KINDS.get(array.dtype.kind, str(array.dtype))
    raise Problem(name, found, expected="numbers", hint=way)


def is_map(values: Any) -> bool:
    """Return True for an array (N, c, H, W) or (N, H, W, c), such as images or masks."""
    return is_array(values) and len(values.shape) == 4


def is_image(values: Any) -> bool:
    """Return True for a map of floating-point numbers or bytes.

    Other integers are indices, such as the cells of a grid, which cannot be interpolated.
    """
    if not is_map(values):
        return False
    xp = namespace(values)
    return bool(xp.isdtype(values.dtype, ("real floating", xp.uint8)))


def colours_last(shape: Sequence[int]) -> bool:
    """Return True for images (N, H, W, c), and False for images (N, c, H, W), with c = 1, 3 or 4 channels."""
    return shape[3] in (1, 3, 4) and shape[1] not in (1, 3, 4)


def one_per_row(labels: Array, rows: int, number: int) -> Array:
    """Return the labels of a batch; raise Problem unless there is one entry or row per input."""
    if labels.ndim == 0:
        raise Problem(
            "labels", f"batch {number}: expected one label per row, got a single number",
            hint="use a DataLoader to combine single samples into batches",
        )  # fmt: skip
    if labels.shape[0] != rows:
        raise Problem("labels", f"batch {number}: expected {rows} labels, one per input, got {labels.shape[0]}")
    return labels


def describe(value: Any) -> str:
    """Describe a value and its arrays for an error message."""
    array: Any = value
    if compat.is_array_api_obj(value):
        return f"{str(array.dtype).removeprefix('torch.')} array of shape {tuple(array.shape)}"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key}: {describe(item)}" for key, item in list(value.items())[:4])
        return f"a dict of length {len(value)} ({inside})"
    if isinstance(value, tuple | list) and len(value) <= 4:
        return f"a {type(value).__name__} of length {len(value)} ({', '.join(map(describe, value))})"
    return type(value).__name__


def shape_text(shape: Sequence[int | None]) -> str:
    """Format a shape as in "(N, 3, any)"."""
    words = [
        "N" if axis == 0 and size is None else "any" if size is None else str(size) for axis, size in enumerate(shape)
    ]
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def _whole_arrays(data: Any) -> Any:
    """Return the arrays of data that is complete in memory, or None for data that consists of batches or items.

    Complete data is an array, a table, a dict of arrays, or a tuple (inputs, labels). The inputs may be a tuple, list
    or dict with one array per input of the model, and the labels may be a list or None.
    """
    if isinstance(data, Mapping):
        return {str(key): _converted(value, str(key)) for key, value in data.items()}
    if is_array(data):
        return _converted(data, "data")
    if not isinstance(data, tuple) or len(data) not in (1, 2):
        return None
    if len(data) == 1:
        return _converted(data[0], "data") if is_array(data[0]) else None
    inputs, labels = data
    if not (labels is None or is_array(labels) or is_numbers(labels)):
        return None
    own = None if labels is None else _converted(labels, "labels")
    if is_array(inputs) or is_numbers(inputs):
        return _converted(inputs, "inputs"), own
    if isinstance(inputs, Mapping):
        return {str(key): _converted(value, str(key)) for key, value in inputs.items()}, own
    if isinstance(inputs, tuple | list) and inputs and all(map(is_array, inputs)):
        return tuple(_converted(part, f"inputs[{i}]") for i, part in enumerate(inputs)), own
    return None


def _converted(values: Any, name: str) -> Array:
    """Return an array unchanged, and convert other values to a NumPy array; labels may be strings."""
    if compat.is_array_api_obj(values) and not isinstance(values, np.ndarray):
        return values
    return _to_array(values, name) if name in LABELS else as_numbers(values, name)


def _to_array(values: Any, name: str) -> np.ndarray:
    check_not_masked(values, name)
    try:
        return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    except ValueError:
        raise Problem(name, "lists of different lengths", expected="numbers") from None


def _count_rows(whole: Any) -> int:
    """Return the number of rows, which must be the same in all arrays."""
    lengths = {name: len(part) if part.ndim else "a single number" for name, part in _columns(whole)}
    found = {
        length
        for name, length in lengths.items()
        if isinstance(length, int) or len(lengths) == 1 or name in (*INPUTS, *LABELS)
    }
    if len(found) == 1 and isinstance(count := found.pop(), int):
        return count
    hint = "to pass two batches of inputs, put them in a list" if isinstance(whole, tuple) else ""
    raise Problem("data", f"{lengths}", expected="arrays with the same number of rows", hint=hint)


def _columns(whole: Any) -> Iterable[tuple[str, Array]]:
    """Return all arrays, each with a name for error messages."""
    if isinstance(whole, Mapping):
        return whole.items()
    if not isinstance(whole, tuple):
        return [("inputs", whole)]
    inputs, labels = whole
    several = isinstance(inputs, tuple)
    own = [(f"inputs[{i}]", part) for i, part in enumerate(inputs)] if several else _columns(inputs)
    return [*own, *([] if labels is None else [("labels", labels)])]


def _check_data(data: Any) -> None:
    """Raise Problem if `data` is neither an array nor batches, or is an ambiguous list or tuple of arrays."""
    hint = ""
    if isinstance(data, str | PathLike):
        hint = "load the file first, for example with numpy.load"
    elif hasattr(data, "logits"):
        hint = "to score outputs, call the scorer: scorer(outputs)"
    elif callable(getattr(data, "named_modules", None)):
        hint = "pass the model as the first argument and the data as the second"
    if hint or isinstance(data, bytes) or not (hasattr(data, "__iter__") or hasattr(data, "__getitem__")):
        expected = "an array, (inputs, labels), a dict of arrays, a dataset, a DataLoader or an iterable of batches"
        raise Problem("data", type(data).__name__, expected=expected, hint=hint)
    if isinstance(data, tuple) and len(data) > 2 and all(map(is_array, data)):
        hint = "put batches in a list, and several inputs in a nested tuple: ((a, b), labels)"
        raise Problem("data", f"a tuple of {len(data)} arrays", expected="(inputs, labels)", hint=hint)
    if not isinstance(data, list | tuple) or len(data) != 2:
        return
    if not is_array(data[0]) or not (is_array(data[1]) or is_numbers(data[1])):
        return
    first, second = (part if compat.is_array_api_obj(part) else _to_array(part, "data") for part in data)
    if first.ndim != second.ndim or str(first.dtype) != str(second.dtype):  # pyright: ignore
        raise Problem(
            "data", f"one {describe(first)} and one {describe(second)}", expected="a list of batches of the same kind",
            hint="pass inputs and labels as a tuple (x, y), and several inputs as ((a, b), y)",
        )  # fmt: skip


def _split(batch: Any, number: int) -> tuple[Any, Any]:
    """Split a batch into inputs and labels."""
    if isinstance(batch, Mapping):
        found = [key for key in LABELS if key in batch]
        inputs = {key: value for key, value in batch.items() if key not in found}
        return inputs, batch[found[0]] if found else None
    if isinstance(batch, tuple | list):
        if len(batch) in (1, 2):
            return batch[0], batch[1] if len(batch) == 2 else None
        raise Problem(
            "data", f"batch {number}: expected inputs, (inputs, labels) or a dict of arrays, got {describe(batch)}",
            hint="put several inputs in a nested tuple: ((a, b), labels)",
        )  # fmt: skip
    if not is_array(batch):
        kinds = "an array, a tuple (inputs, labels) or a dict of arrays"
        raise Problem("data", f"batch {number}: expected {kinds}, got {describe(batch)}")
    return batch, None


def _rows_of(batch: tuple[Any, Any]) -> int | None:
    inputs, labels = batch
    found = row_count(inputs)
    if found is None and labels is not None:
        return row_count(labels) if is_array(labels) else len(labels) if hasattr(labels, "__len__") else None
    return found


def _stacked(items: list[Any]) -> Any:
    """Stack the items of a dataset: inputs, (input, label) pairs or dicts. Return None if there are no items."""
    if not items:
        return None
    first: Any = items[0]
    if isinstance(first, Mapping):
        return {key: _stacked([item[key] for item in items]) for key in first}
    if isinstance(first, tuple) or (isinstance(first, list) and not is_numbers(first)):
        return tuple(_stacked(list(column)) for column in zip(*items, strict=True))
    if compat.is_torch_array(first):
        return sys.modules["torch"].stack(items)
    return np.stack([_to_array(item, "data") for item in items])


def _is_torch(data: Any, name: str) -> bool:
    """Return True if `data` is an instance of the class `name` in torch.utils.data."""
    module = sys.modules.get("torch.utils.data")
    return module is not None and isinstance(data, getattr(module, name))


def _is_integral(values: Any) -> bool:
    kind = str(values.dtype).removeprefix("torch.")
    return kind.startswith(("int", "uint"))


def _length(value: Any) -> int | None:
    try:
        return len(value)
    except (TypeError, NotImplementedError):
        return None
