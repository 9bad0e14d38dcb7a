"""ONNX models on the command line: how data becomes their inputs, and errors that name the argument."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from qipf._common.errors import InputError, UserError
from qipf.cli.arguments import usable_device
from qipf.data.reading import INPUT, Data, DataBatch
from qipf.models.keys import MASK
from qipf.models.kinds.excerpts import Excerpt
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
    if INPUT + MASK in batch.arrays:  # it counts for tokens, also where the model does not take it
        inputs.setdefault(MASK, batch.arrays[INPUT + MASK])
    return inputs if labels is None else (inputs, np.asarray(labels))


def _as_taken(values: np.ndarray, to: Input, from_files: bool) -> np.ndarray:
    """One input in the layout and the range of values that the model takes."""
    last = values.ndim == 4 and len(to.shape) == 4 and to.shape[3] == values.shape[1] != to.shape[1]
    if from_files and last:
        values = values.transpose(0, 2, 3, 1)
    if values.dtype == np.uint8 and to.dtype is not None and to.dtype.kind == "f":
        values = values.astype(to.dtype) / to.dtype.type(255)
    return values


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


def excerpt(net: Any, data: Data, size: int) -> Excerpt:
    """The batches of some data as the model takes them; errors name the rows of the file."""
    return Excerpt((fed(net, batch) for batch in data.batches(size)), data.numbers)


def one_batch(net: Any, batch: DataBatch) -> Excerpt:
    """One batch as the model takes it; errors name the rows of the file."""
    return Excerpt([fed(net, batch)], range(batch.start, batch.start + len(batch)))
