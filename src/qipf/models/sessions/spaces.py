"""Find what a probe should read of an ONNX model: its last map, its tokens, its features or its first hidden layer.

The rules are those of `qipf.models.spaces` for modules. In a graph without modules, the candidates are the tensors that
every way from the inputs to the logits passes through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from qipf.models.sessions.model import OnnxModel
from qipf.models.sessions.rows import TensorReading

WIDEST = 2048
"""The most numbers that a reading of a map has, as for modules."""


def find_reading(model: OnnxModel, feeds: Mapping[str, np.ndarray], logits: str, classes: int) -> str:
    """The reading that a probe gets by default, found by running one or two inputs.

    Args:
        model: The model.
        feeds: A batch of its inputs.
        logits: The name of the tensor with the logits.
        classes: How many logits there are.

    Raises:
        ValueError: The model has nothing of that kind; the message names tensors that could be read.
    """
    graph = model.graph
    few = {name: values[:2] if values.ndim else values for name, values in feeds.items()}
    count = max(len(values) for values in few.values() if values.ndim)
    shapes = _shapes(model, few, [name for name in graph.cuts(logits) if name not in graph.inputs])
    head = next((name for name in graph.head_inputs(logits) if name in shapes), None)
    width = shapes[head][-1] if head in shapes else None
    if any(values.dtype.kind in "iu" and values.ndim == 2 for values in few.values()):  # texts, which are padded
        flat = [name for name, shape in shapes.items() if len(shape) == 2 and 1 < shape[1] != classes]
        if flat:
            return str(TensorReading(head if head in flat else flat[-1], "rows"))
    spatial = {name: shape for name, shape in shapes.items() if _is_spatial(shape, classes)}
    if spatial:
        name, shape = list(spatial.items())[-1]
        return str(TensorReading(name, _form(shape, width)))
    first = graph.first_linear()
    if first in shapes and len(shapes[first]) == 2 and shapes[first][1] > 1 and first != logits:
        return str(TensorReading(first, "rows"))
    flat = [name for name, shape in shapes.items() if len(shape) == 2 and shape[1] > 1]
    if flat:
        return str(TensorReading(head if head in flat else flat[-1], "rows"))
    names = [repr(name) for name in graph.tensors if name != logits][-5:]
    raise ValueError(
        f"features: this ONNX model has no map, no tokens and no hidden layer to read for {count} input(s); name a "
        f"tensor with features=, for instance one of {', '.join(names) or 'those that `qipf inspect MODEL` lists'}"
    )


def _shapes(model: OnnxModel, feeds: Mapping[str, np.ndarray], names: list[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors with one row of floating-point numbers per input."""
    found = {}
    for start in range(0, len(names), 200):  # a network with thousands of layers is read in several runs
        part = model.look(feeds, names[start : start + 200])
        found |= {name: values.shape for name, values in part.items() if values.dtype.kind == "f" and values.ndim > 1}
    return found


def _is_spatial(shape: tuple[int, ...], classes: int) -> bool:
    """Whether a tensor has places, more than one, and is not the logits of every place."""
    if len(shape) == 4:
        return shape[2] * shape[3] > 1 and classes not in (shape[1], shape[3]) and min(shape[1:]) > 0
    return len(shape) == 3 and min(shape[1:]) > 1 and classes not in shape[1:]


def _form(shape: tuple[int, ...], width: int | None) -> str:
    if len(shape) == 3:
        return "" if shape[1] == width and shape[2] != width else "tokens1"
    last = shape[3] == width and shape[1] != width
    channels, height, across = (shape[3], *shape[1:3]) if last else shape[1:]
    side = max(1, math.isqrt(WIDEST // channels)) if channels <= WIDEST else 1
    if channels * height * across > WIDEST:
        height, across = min(side, height), min(side, across)
    return f"{height}x{across}" + ("-last" if last else "")
