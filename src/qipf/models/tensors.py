"""Tensors from everything that stands for an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, as_tensor

from qipf.models.whole import as_numbers


def to_tensor(values: Any, name: str = "data") -> Tensor:
    """Return `values` as a tensor; only read-only memory and negative strides need a copy.

    Raises:
        TypeError: the values are not numbers.
    """
    if isinstance(values, Tensor):
        return values
    array = as_numbers(values, name)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    if array.dtype.itemsize > 8 and array.dtype.kind == "f":
        array = array.astype(np.float64)  # torch has no longer ones
    return as_tensor(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))
