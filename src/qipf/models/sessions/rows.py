"""One row of numbers per input from a tensor of any shape, with the readings of `qipf.models.readings`, in NumPy."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from qipf.runners.onnx_graph import Graph

_FORM = re.compile(r"(?:([1-9]\d*)x([1-9]\d*)(-last)?|tokens([12])|first|rows|mean-last)\Z")


class TensorReading(NamedTuple):
    """The name of a tensor and how it becomes rows.

    In addition to the readings of modules there is "mean-last", the mean over all but the last dimension: of a tensor
    (N, length, width) alone nobody can tell which dimension has the features, so a plain name takes the first of them.
    """

    tensor: str
    form: str = ""

    @classmethod
    def parse(cls, text: str, graph: Graph | None) -> TensorReading:
        """The reading that `text` describes; names of tensors may have an "@" of their own."""
        name, at, ending = text.rpartition("@")
        if not at or (graph is not None and text in graph.tensors):
            return cls(text)
        if _FORM.match(ending):
            return cls(name, ending)
        if graph is not None and name in graph.tensors:
            raise ValueError(
                f"layers: {text!r} ends in an unknown reading {ending!r}; expected for instance '{name}@2x2' for a "
                f"map, '{name}@tokens1' for tokens, or '{name}' for the average"
            )
        return cls(text)

    def __str__(self) -> str:
        return f"{self.tensor}@{self.form}" if self.form else self.tensor

    def rows(self, values: np.ndarray) -> np.ndarray:
        """The rows (N, D) in float32 or wider.

        Raises:
            ValueError: The tensor does not have the dimensions that the reading needs, or it has no numbers to read.
        """
        if values.dtype.kind != "f":
            raise ValueError(f"layers: the tensor {self.tensor!r} has {values.dtype}, expected floating-point numbers")
        array = values if values.dtype.itemsize >= 4 else values.astype(np.float32)
        if not self.form:
            return array.reshape(*array.shape[:2], -1).mean(2) if array.ndim > 2 else array.reshape(len(array), -1)
        if self.form == "mean-last":
            return array.reshape(len(array), -1, array.shape[-1]).mean(1)
        found = _FORM.match(self.form)
        height, width, last, tokens = found.groups() if found else (None,) * 4
        wanted = 4 if height else 2 if self.form == "rows" else 3
        if array.ndim != wanted or (tokens and array.shape[1] <= int(tokens)):
            more = f" and more than {tokens} token(s)" if tokens else ""
            raise ValueError(
                f"{self}: this reading needs a tensor of {wanted} dimensions{more}, and it has shape {array.shape}; "
                f"choose another reading of {self.tensor!r}"
            )
        if height and width:
            return _grid(array.transpose(0, 3, 1, 2) if last else array, int(height), int(width))
        if tokens:
            first = array[:, : int(tokens)].reshape(len(array), -1)
            return np.concatenate([first, array[:, int(tokens) :].mean(1)], axis=1)
        return array[:, 0] if self.form == "first" else array


def _grid(maps: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Means over a grid of cells, flattened, as adaptive pooling in torch has them."""
    height, width = maps.shape[-2:]
    if (height, width) == (rows, columns):
        return maps.reshape(len(maps), -1)
    weights = np.kron(_cells(height, rows), _cells(width, columns)).astype(maps.dtype)
    return (maps.reshape(*maps.shape[:2], -1) @ weights).reshape(len(maps), -1)


def _cells(size: int, cells: int) -> np.ndarray:
    """(size, cells): cell k averages the places from floor(k size / cells) to ceil((k + 1) size / cells)."""
    result = np.zeros((size, cells))
    for cell in range(cells):
        start, stop = cell * size // cells, -(-(cell + 1) * size // cells)
        result[start:stop, cell] = 1 / (stop - start)
    return result
