"""Batches of model inputs and labels, from the many things that users call data."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from qipf._common.errors import check_whole
from qipf.arrays import widest_float
from qipf.data.batches import INPUTS, mask_key
from qipf.models.given import check_kind, describe, known_length, one_per_row, split_batch
from qipf.models.whole import in_batches, is_array, whole_arrays
from qipf.runners.torch import to_tensor

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Batch(NamedTuple):
    """One batch on its device: the arguments to call the model with, and the labels."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    labels: Tensor | None
    rows: int | None
    mask: Any = None
    """the attention mask among the inputs, whether or not the model takes it, as and where the user gave it"""


class Batches:
    """An iterable of batches; `count` and `rows` say how many to expect, or are None where that is unknown."""

    def __init__(self, data: Any, batch_size: int, model: nn.Module, device: torch.device) -> None:
        check_whole("batch_size", batch_size, 1)
        self._source, self.count, self.rows = raw_batches(data, batch_size)
        self._device = device
        self._dtype = next((p.dtype for p in model.parameters() if p.dtype in _FLOATS), None)
        self._parameters = forward_parameters(getattr(model, "_orig_mod", model))  # a compiled module hides them

    def __iter__(self) -> Iterator[Batch]:
        for number, batch in enumerate(self._source):
            inputs, labels = split_batch(batch, number)
            arguments, keywords = self._call(inputs, number)
            mask = self._mask(inputs, arguments, keywords)
            arguments, keywords = self._move(arguments), self._move(keywords)
            rows = row_count((*arguments, *keywords.values()))
            yield Batch(arguments, keywords, as_labels(labels, rows, number), rows, mask)

    def _mask(self, inputs: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Return the attention mask, as the model takes it, or else by its key in a dict."""
        taken = {**dict(zip(self._parameters, arguments, strict=False)), **keywords}
        key = mask_key(taken)
        if key in taken or not isinstance(inputs, Mapping):
            return taken.get(key)
        return inputs.get(key)

    def _call(self, inputs: Any, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments for `forward`."""
        if isinstance(inputs, tuple | list):
            return tuple(inputs), {}
        if not isinstance(inputs, Mapping):
            return (inputs,), {}
        named = [p.name for p in self._parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        known = {str(key): value for key, value in inputs.items() if key in named}
        missing = [name for name in _required(self._parameters) if name not in known]
        if known and not missing:  # as Hugging Face models expect
            return (), known
        if not missing or missing == list(self._parameters)[:1]:  # one positional input is enough
            generic = next((key for key in INPUTS if key in inputs and key not in known), None)
            if generic is not None:
                return (inputs[generic],), known
            if len(inputs) == 1 and not known:
                return tuple(inputs.values()), {}
        if not missing and any(p.kind is p.VAR_KEYWORD for p in self._parameters.values()):
            return (), {str(key): value for key, value in inputs.items()}
        if missing and (known or len(missing) > 1):
            raise ValueError(
                f"batch {number}: the model's forward ({', '.join(self._parameters)}) needs {', '.join(missing)}, "
                f"which the keys {list(inputs)} do not provide"
            )
        raise ValueError(
            f"batch {number}: none of the keys {list(inputs)} is an argument of the model's forward "
            f"({', '.join(self._parameters)}) or one of {', '.join(INPUTS)}; got {describe(inputs)}"
        )

    def _move(self, value: Any) -> Any:
        if is_array(value):
            value = to_tensor(value)
        if isinstance(value, Tensor):
            dtype = self._dtype if self._dtype and value.dtype in _FLOATS else value.dtype
            dtype = getattr(torch, widest_float(self._device)) if dtype == torch.float64 else dtype
            # A copy to the CPU that does not block may be read before it has arrived.
            unblocked = value.device.type == "cpu" and self._device.type == "cuda"
            return value.to(self._device, dtype, non_blocking=unblocked)
        if isinstance(value, Mapping):
            return {key: self._move(item) for key, item in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(self._move(item) for item in value) if type(value) in (tuple, list) else value
        return value


def forward_parameters(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the model's forward by name; none of a scripted module."""
    try:
        return inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # a scripted module has no Python signature
        return {}


def _required(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Return the names of the arguments that a call must give."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters.values() if p.default is p.empty and p.kind not in several]


def raw_batches(data: Any, batch_size: int) -> tuple[Iterable[Any], int | None, int | None]:
    """Return the raw batches, how many there are, and how many rows they have in total."""
    if isinstance(data, DataLoader):
        count, rows = known_length(data), known_length(data.sampler)
        if data.batch_size is None:  # the data set makes the batches
            return data, count, None
        return data, count, rows if rows is None or count is None else min(rows, count * data.batch_size)
    whole = whole_arrays(data, to_tensor)
    if whole is not None:
        return in_batches(whole, batch_size)
    check_kind(data)
    if isinstance(data, Dataset) or (
        hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, list | tuple)
    ):
        loader = DataLoader(data, batch_size=batch_size)  # pyright: ignore[reportArgumentType]
        sized = not isinstance(data, IterableDataset)
        return loader, known_length(loader) if sized else None, known_length(data) if sized else None
    if isinstance(data, list | tuple):
        return data, len(data), sum(row_count(_parts(batch)) or 0 for batch in data)
    return data, known_length(data), None


def as_labels(labels: Any, rows: int | None, number: int) -> Tensor | None:
    """Return the labels with one entry or row per input: integers become int64, other numbers keep their type."""
    if labels is None:
        return None
    tensor = to_tensor(labels, f"batch {number}: labels").detach()
    if tensor.is_complex():
        raise TypeError(f"batch {number}: labels are {tensor.dtype}; expected whole or floating-point numbers")
    tensor = one_per_row(tensor, rows, number)
    return tensor if tensor.is_floating_point() or tensor.dtype == torch.bool else tensor.long()


def _parts(batch: Any) -> Iterable[Any]:
    if isinstance(batch, Mapping):
        return batch.values()
    return batch if isinstance(batch, tuple | list) else (batch,)


def row_count(values: Iterable[Any]) -> int | None:
    """Return how many rows the first tensor among some inputs has; None where there is none."""
    return next((len(value) for value in values if isinstance(value, Tensor) and value.ndim), None)
