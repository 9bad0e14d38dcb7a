"""Batches of named inputs and labels for an ONNX model, from arrays, dicts, data sets and loaders, without PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import array_api_compat as compat
import numpy as np

from qipf._common.errors import check_whole
from qipf.arrays import to_numpy
from qipf.data.batches import INPUTS, mask_key
from qipf.data.batches import InputSpec as Input
from qipf.data.batches import shape_text as form
from qipf.models.given import check_kind, known_length, one_per_row, split_batch
from qipf.models.whole import as_numbers, in_batches, whole_arrays


class FeedBatch(NamedTuple):
    """One batch: every input by name, in the type that the model takes, and the labels."""

    feeds: dict[str, np.ndarray]
    labels: np.ndarray | None
    rows: int
    mask: np.ndarray | None = None
    """the attention mask among the inputs, whether or not the model takes it"""


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
        self.count: int | None
        self.rows: int | None
        whole = whole_arrays(data, _untouched)
        if whole is not None:
            self._source, self.count, self.rows = in_batches(whole, batch_size)
            return
        check_kind(data)
        self._source, self.count, self.rows = data, known_length(data), None
        if hasattr(data, "__getitem__") and self.count is not None and not isinstance(data, list | tuple):
            self.rows = self.count  # a dataset, whose items are single inputs
            self._source, self.count = _stacked(data, self.rows, batch_size), -(-self.rows // batch_size)

    def __iter__(self) -> Iterator[FeedBatch]:
        for number, batch in enumerate(self._source):
            inputs, labels = split_batch(batch, number)
            feeds = {one.name: _cast(values, one, number) for one, values in self._named(inputs, number)}
            sizes = {name: len(values) for name, values in feeds.items() if values.ndim}
            if len(set(sizes.values())) != 1:
                raise ValueError(f"batch {number}: expected inputs with the same number of rows, got {sizes}")
            rows = next(iter(sizes.values()))
            named: Mapping[str, Any] = inputs if isinstance(inputs, Mapping) else feeds
            mask = named.get(mask_key(named))
            yield FeedBatch(feeds, _labels(labels, rows, number), rows, None if mask is None else to_numpy(mask))

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


def _untouched(values: Any, name: str) -> Any:
    """An array as it is, which `_cast` converts batch by batch; anything else as an array of NumPy."""
    return values if compat.is_array_api_obj(values) else as_numbers(values, name)


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
    array = as_numbers(to_numpy(labels) if compat.is_array_api_obj(labels) else labels, f"batch {number}: labels")
    if array.dtype.kind == "c":
        raise TypeError(f"batch {number}: labels are {array.dtype}; expected whole or floating-point numbers")
    array = one_per_row(array, rows, number)
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


def _stacked(data: Any, count: int, size: int) -> Iterator[Any]:
    """Batches of a dataset's items, each (input, label) or an input alone."""
    for start in range(0, count, size):
        items = [data[place] for place in range(start, min(start + size, count))]
        if isinstance(items[0], tuple | list):
            columns = [np.stack([np.asarray(part) for part in column]) for column in zip(*items, strict=True)]
            yield tuple(columns)
        elif isinstance(items[0], Mapping):
            yield {key: np.stack([np.asarray(item[key]) for item in items]) for key in items[0]}
        else:
            yield np.stack([np.asarray(item) for item in items])
