"""ONNX models on the command line: how data becomes their inputs, and errors that name the argument."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from qipf._common.errors import InputError, UserError
from qipf.cli._data import INPUT, Data, DataBatch
from qipf.cli._device import usable_device
from qipf.cli._images import image_mode
from qipf.models.sessions.declared import Input
from qipf.models.sessions.model import OnnxModel

_BATCH = re.compile(r"batch \d+: ")


def place(net: Any, device: str | None) -> None:
    """Put a module on a device; an ONNX model has none.

    Raises:
        UserError: A device was named that cannot be used.
    """
    if device is None:
        return
    if isinstance(net, OnnxModel):
        raise UserError("--device: an ONNX model runs on the CPU here; in Python, give a session with its providers")
    net.to(usable_device(device))


def of_numbers(net: Any) -> Any:
    """The model of a regression: of an ONNX model, the output is read as it is, even behind a sigmoid."""
    return net.of_numbers() if isinstance(net, OnnxModel) else net


def is_onnx(model: str | None) -> bool:
    """Whether MODEL names an ONNX file, whose inputs have names."""
    return model is not None and model.endswith(".onnx")


def bound(net: Any, data: Data) -> Data:
    """The data with the inputs that an ONNX model takes, found by their names in an .npz.

    A model with one input takes `inputs` (or `x`) where there are such, whatever its own input is called.

    Raises:
        InputError: DATA has no array of some name, or one that is not numbers or of another length.
    """
    if not isinstance(net, OnnxModel) or not data.has_inputs:
        return data
    if len(net.inputs) == 1 and (data.files or "inputs" in data.arrays):
        return replace(data, named={})
    wanted = {one.name: data.named.get(one.name) for one in net.inputs}
    missing = [name for name, array in wanted.items() if array is None]
    if missing:
        takes, has = ", ".join(map(str, net.inputs)), ", ".join(map(repr, data.named)) or "one input without a name"
        raise InputError(
            f"DATA: the model {net.path} takes {takes}, and the data has {has}; give an .npz in which every input has "
            f"an array of its name, also {', '.join(map(repr, missing))}"
        )
    arrays = {key: array for key, array in data.arrays.items() if key == "labels"}
    arrays |= {INPUT + name: array for name, array in wanted.items() if array is not None}
    lengths = {key.removeprefix(INPUT): len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"DATA: expected arrays with the same number of rows, got {lengths}")
    return Data(arrays)


def fed(net: Any, batch: DataBatch) -> Any:
    """Inputs, or inputs and labels, as the model takes them: torch tensors, or NumPy arrays for an ONNX model.

    For an input of floating-point numbers, bytes are scaled to [0, 1]; for whole numbers they stay as they are. Images
    from a folder have their colours first, or last where only that fits the model.
    """
    if not isinstance(net, OnnxModel):
        return batch.tensors()
    labels = batch.arrays.get("labels")
    alone = batch.arrays.get("inputs")
    inputs = {
        one.name: _as_taken(batch.arrays[INPUT + one.name] if alone is None else alone, one, bool(batch.files))
        for one in net.inputs
    }
    return inputs if labels is None else (inputs, np.asarray(labels))


def _as_taken(values: np.ndarray, to: Input, from_files: bool) -> np.ndarray:
    """One input in the layout and the range of values that the model takes."""
    last = values.ndim == 4 and len(to.shape) == 4 and to.shape[3] == values.shape[1] != to.shape[1]
    if from_files and last:
        values = values.transpose(0, 2, 3, 1)
    if values.dtype == np.uint8 and to.dtype is not None and to.dtype.kind == "f":
        values = values.astype(to.dtype) / to.dtype.type(255)
    return values


class NamedExamples:
    """Labelled data as a data set for an ONNX model, of which one batch is in memory at a time."""

    def __init__(self, net: OnnxModel, data: Data) -> None:
        self._net = net
        self._data = replace(data, mode=data.mode or image_mode(data.files[0])) if data.files else data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, row: int) -> dict[str, Any]:
        batch = next(self._data.take(np.asarray([row])).batches(1))
        inputs, labels = fed(self._net, batch)
        return {**{name: values[0] for name, values in inputs.items()}, "labels": labels[0]}


@contextmanager
def named_arguments(net: Any) -> Iterator[None]:
    """Errors about an ONNX model's inputs name DATA, and those about its tensors name --features."""
    try:
        yield
    except (ValueError, TypeError) as error:
        text = str(error)
        if not isinstance(net, OnnxModel):
            raise
        if _BATCH.match(text):
            raise InputError(f"DATA: {_BATCH.sub('', text, count=1)}") from error
        if text.startswith("layers: "):
            raise UserError(f"--features: {text.removeprefix('layers: ')}") from error
        raise
