"""The inputs that an ONNX model declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}  # fmt: skip
"""NumPy's types by the names that ONNX Runtime gives them."""


class Input(NamedTuple):
    """An input of the model."""

    name: str
    dtype: np.dtype | None
    """None for texts and sequences"""
    shape: tuple[int | None, ...]
    """None where any size is allowed; empty where the shape is not known"""

    @property
    def batch(self) -> int | None:
        """The number of rows that every run must have; None where any number is allowed."""
        return self.shape[0] if self.shape else None

    def __str__(self) -> str:
        return f"{self.name!r} ({self.dtype}, {form(self.shape)})"


def form(shape: Sequence[int | None]) -> str:
    """A shape in words: (N, 3, any)."""
    words = [
        "N" if place == 0 and size is None else "any" if size is None else str(size) for place, size in enumerate(shape)
    ]
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def declared_shape(sizes: Sequence[Any]) -> tuple[int | None, ...]:
    """The sizes that ONNX Runtime gives, with None for those that are names."""
    return tuple(size if isinstance(size, int) and size > 0 else None for size in sizes)
