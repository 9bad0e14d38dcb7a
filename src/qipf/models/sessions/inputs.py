"""Batches of named inputs and labels for an ONNX model, from arrays, dicts, data sets and loaders, without PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import array_api_compat as compat
import numpy as np

from qipf._common.errors import check_whole
from qipf.arrays import to_numpy
from qipf.models.keys import INPUTS, LABELS
from qipf.models.sessions.model import Input, form


class FeedBatch(NamedTuple):
    """One batch: every input by name, in the type that the model takes, and the labels."""

    feeds: dict[str, np.ndarray]
    labels: np.ndarray | None
    rows: int


class FeedBatches:
    """An iterable of batches; `count` and `rows` are None where they are not known before the data is read.

    Args:
        data: As for `qipf.collect`. Several inputs are a dict, or a tuple in the order of the model's inputs:
            `((a, b), labels)`.
        batch_size: Rows per batch, for data that does not come in batches.
        inputs: What the model takes.
    """

    def __init__(self, data: Any, batch_size: int, inputs: Sequence[Input]) -> None:
        check_whole("batch_size", batch_size, 1)
        self._inputs = list(inputs)
        self.whole = whole(data)
        self.rows: int | None = None
        if self.whole is not None:
            self.rows = _length_of(self.whole)
            starts = range(0, self.rows, batch_size)
            self.count: int | None = len(starts)
            columns = self.whole
            self._source: Iterable[Any] = (_rows(columns, slice(start, start + batch_size)) for start in starts)
            return
        if isinstance(data, str | bytes) or not (hasattr(data, "__iter__") or hasattr(data, "__getitem__")):
            raise TypeError(
                "data: expected an array, (inputs, labels), a dict of arrays, a data set, a loader or an iterable of "
                f"batches, got {type(data).__name__}"
            )
        self.count = _length(data)
        self._source = data
        if hasattr(data, "__getitem__") and self.count is not None and not isinstance(data, list | tuple):
            self.rows = self.count  # a data set, whose items are single inputs
            self._source, self.count = _stacked(data, self.rows, batch_size), -(-self.rows // batch_size)

    def __iter__(self) -> Iterator[FeedBatch]:
        for number, batch in enumerate(self._source):
            inputs, labels = split(batch, number)
            feeds = {one.name: _cast(values, one, number) for one, values in self._named(inputs, number)}
            sizes = {name: len(values) for name, values in feeds.items() if values.ndim}
            if len(set(sizes.values())) != 1:
                raise ValueError(f"batch {number}: expected inputs with the same number of rows, got {sizes}")
            rows = next(iter(sizes.values()))
            yield FeedBatch(feeds, _labels(labels, rows, number), rows)

    def _named(self, inputs: Any, number: int) -> list[tuple[Input, Any]]:
        """Every input of the model with the values that the batch has for it."""
        wanted = ", ".join(map(str, self._inputs))
        if isinstance(inputs, Mapping):
            found = [(one, inputs[one.name]) for one in self._inputs if one.name in inputs]
            missing = [one.name for one in self._inputs if one.name not in inputs]
            generic = [key for key in inputs if key in INPUTS]
            if len(self._inputs) == 1 and missing and generic:
                return [(self._inputs[0], inputs[generic[0]])]
            if missing:
                raise ValueError(
                    f"batch {number}: the ONNX model takes {wanted}, and the data has {', '.join(map(repr, inputs))}; "
                    f"name the missing {', '.join(map(repr, missing))}"
                )
            return found
        given = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
        if len(given) != len(self._inputs):
            raise ValueError(
                f"batch {number}: the ONNX model takes {len(self._inputs)} input(s), {wanted}, and the data has "
                f"{len(given)}; give several as a dict by their names, or as ((a, b), labels)"
            )
        return list(zip(self._inputs, given, strict=True))


def whole(data: Any) -> dict[str, Any] | None:
    """The inputs and labels of data that is in memory at once; None where it comes in batches or items."""
    data = tuple(map(_array, data)) if isinstance(data, tuple) else _array(data)
    if isinstance(data, Mapping):
        labels = next((key for key in LABELS if key in data), None)
        inputs = {key: values for key, values in data.items() if key not in LABELS}
        return {"inputs": inputs, "labels": None if labels is None else data[labels]}
    if compat.is_array_api_obj(data):
        return {"inputs": data, "labels": None}
    if not isinstance(data, tuple) or len(data) not in (1, 2):
        return None
    inputs, labels = data if len(data) == 2 else (data[0], None)
    parts = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    several = isinstance(parts, tuple | list) and all(map(compat.is_array_api_obj, parts))
    if (several or compat.is_array_api_obj(inputs)) and (labels is None or compat.is_array_api_obj(labels)):
        return {"inputs": inputs, "labels": labels}
    return None


def _array(part: Any) -> Any:
    """A table of pandas or a list of numbers as an array; anything else as it is."""
    if isinstance(part, list) and part and all(isinstance(value, int | float | np.number) for value in part):
        return np.asarray(part)
    convert = getattr(part, "to_numpy", None)
    return part if convert is None or compat.is_array_api_obj(part) else convert()


def split(batch: Any, number: int) -> tuple[Any, Any]:
    """The inputs and the labels of a batch."""
    if isinstance(batch, Mapping):
        found = [key for key in LABELS if key in batch]
        return {key: value for key, value in batch.items() if key not in found}, batch[found[0]] if found else None
    if isinstance(batch, tuple | list):
        if len(batch) in (1, 2):
            return batch[0], batch[1] if len(batch) == 2 else None
        raise ValueError(
            f"batch {number}: expected inputs, (inputs, labels) or a dict of arrays, got {len(batch)} parts; put "
            "several inputs in a tuple of their own: ((a, b), labels)"
        )
    return batch, None


def _cast(values: Any, to: Input, number: int) -> np.ndarray:
    """The values in the type of an input, where that loses nothing but precision; the shape is checked."""
    array = to_numpy(values) if compat.is_array_api_obj(values) else np.asarray(values)
    where = f"batch {number}: input {to.name!r}"
    if to.dtype is None or array.dtype.kind not in "biuf":
        if to.dtype is None:
            raise TypeError(f"{where} takes texts or sequences, which are not supported; expected a tensor of numbers")
        raise TypeError(f"{where} takes {to.dtype}, and the data has {array.dtype}; convert it to numbers first")
    _check_shape(array, to, where)
    if array.dtype == to.dtype:
        return array
    if to.dtype.kind == "f" and array.dtype == np.uint8:
        raise TypeError(
            f"{where} takes {to.dtype}, and the data has uint8; scale it as the model was trained, for instance "
            f"x.astype('{to.dtype}') / 255"
        )
    if to.dtype.kind in "iu" and array.dtype.kind == "f":
        raise TypeError(f"{where} takes whole numbers ({to.dtype}), and the data has {array.dtype}; convert it first")
    if to.dtype.kind == "b" and array.dtype.kind != "b":
        raise TypeError(f"{where} takes true or false (bool), and the data has {array.dtype}; convert it first")
    if to.dtype.kind in "iu" and array.size:
        limits, low, high = np.iinfo(to.dtype), array.min(), array.max()
        if int(low) < limits.min or int(high) > limits.max:
            raise ValueError(f"{where} takes {to.dtype}, and the data has values from {low} to {high}")
    with np.errstate(over="ignore"):
        cast = array.astype(to.dtype)
    if to.dtype == np.float16 and np.isinf(cast).any() and not np.isinf(array).any():
        raise ValueError(f"{where} takes float16, and the data has values beyond 65,504; scale it first")
    return cast


def _check_shape(array: np.ndarray, to: Input, where: str) -> None:
    if not to.shape:
        return
    wrong = array.ndim != len(to.shape) or any(
        size is not None and size != own for size, own in zip(to.shape[1:], array.shape[1:], strict=True)
    )
    if wrong:
        hint = "; add the dimension of the batch, x[None]" if array.ndim == len(to.shape) - 1 else ""
        raise ValueError(f"{where}: expected shape {form((None, *to.shape[1:]))}, got {array.shape}{hint}")


def _labels(labels: Any, rows: int, number: int) -> np.ndarray | None:
    if labels is None:
        return None
    array = to_numpy(labels) if compat.is_array_api_obj(labels) else np.asarray(labels)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"batch {number}: labels are not numbers ({array.dtype})")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 0 or len(array) != rows:
        found = "a single number" if array.ndim == 0 else len(array)
        raise ValueError(f"batch {number}: expected {rows} labels, one per input, got {found}")
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


def _parts(columns: dict[str, Any]) -> dict[str, Any]:
    inputs = columns["inputs"]
    named = (
        inputs
        if isinstance(inputs, Mapping)
        else dict(enumerate(inputs if isinstance(inputs, tuple | list) else [inputs]))
    )
    found = {str(key): part for key, part in named.items() if getattr(part, "ndim", 1)}
    return found if columns["labels"] is None else {**found, "labels": columns["labels"]}


def _length_of(columns: dict[str, Any]) -> int:
    lengths = {name: len(part) for name, part in _parts(columns).items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"data: expected arrays with the same number of rows, got {lengths}")
    return next(iter(lengths.values()))


def _rows(columns: dict[str, Any], rows: Any) -> tuple[Any, Any]:
    def cut(part: Any) -> Any:
        return part[rows] if getattr(part, "ndim", 1) else part

    inputs, labels = columns["inputs"], columns["labels"]
    if isinstance(inputs, Mapping):
        chosen: Any = {key: cut(part) for key, part in inputs.items()}
    else:
        chosen = tuple(map(cut, inputs)) if isinstance(inputs, tuple | list) else cut(inputs)
    return chosen, None if labels is None else labels[rows]


def chosen_rows(data: Any, size: int, seed: int) -> Any:
    """`data` with `size` rows drawn at random, where it has more and its rows can be chosen; else `data` itself."""
    columns = whole(data)
    items = hasattr(data, "__getitem__") and not isinstance(data, list | tuple | str | bytes)
    count = _length(data) if columns is None and items else None if columns is None else _length_of(columns)
    if count is None or count <= size:
        return data
    rows = np.sort(np.random.default_rng(seed).choice(count, size, replace=False))
    return _Drawn(data, rows) if columns is None else _rows(columns, rows)


class _Drawn:
    """Some items of a data set."""

    def __init__(self, data: Any, rows: np.ndarray) -> None:
        self._data, self._rows = data, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> Any:
        return self._data[int(self._rows[place])]


def _stacked(data: Any, count: int, size: int) -> Iterator[Any]:
    """FeedBatches of a data set's items, each (input, label) or an input alone."""
    for start in range(0, count, size):
        items = [data[place] for place in range(start, min(start + size, count))]
        if isinstance(items[0], tuple | list):
            columns = [np.stack([np.asarray(part) for part in column]) for column in zip(*items, strict=True)]
            yield tuple(columns)
        elif isinstance(items[0], Mapping):
            yield {key: np.stack([np.asarray(item[key]) for item in items]) for key in items[0]}
        else:
            yield np.stack([np.asarray(item) for item in items])


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except (TypeError, NotImplementedError):  # iterable data sets and generators have no length
        return None
