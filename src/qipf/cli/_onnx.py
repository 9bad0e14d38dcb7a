"""ONNX models on the command line: how data becomes their inputs, and errors that name the argument."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from qipf._common.errors import InputError, UserError
from qipf.cli._data import Batch
from qipf.cli._device import usable_device
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


def fed(net: Any, batch: Batch) -> Any:
    """Inputs, or inputs and labels, as the model takes them: torch tensors, or NumPy arrays for an ONNX model.

    For an input of floating-point numbers, bytes are scaled to [0, 1]; for whole numbers they stay as they are. Images
    from a folder have their colours first, or last where only that fits the model.
    """
    if not isinstance(net, OnnxModel):
        return batch.tensors()
    inputs = batch.arrays["inputs"]
    if len(net.inputs) != 1:
        names = ", ".join(map(str, net.inputs))
        raise UserError(f"MODEL: {net.path} takes {names}, and DATA has one input; use qipf.collect in Python")
    (to,) = net.inputs
    last = len(to.shape) == 4 and to.shape[3] == inputs.shape[1] != to.shape[1] if inputs.ndim == 4 else False
    if batch.files and last:
        inputs = inputs.transpose(0, 2, 3, 1)
    if inputs.dtype == np.uint8 and to.dtype is not None and to.dtype.kind == "f":
        inputs = inputs.astype(to.dtype) / to.dtype.type(255)
    labels = batch.arrays.get("labels")
    return inputs if labels is None else (inputs, np.asarray(labels))


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
