"""What every dataset is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class Split(NamedTuple):
    """Inputs and what they should be mapped to."""

    inputs: Tensor
    """`(N, c, h, w)` float32 in [0, 1], or `(N, d)`."""
    targets: Tensor
    """`(N,)` int64 classes, or float32 values for regression."""

    # len(split) stays 2, as for every NamedTuple: `inputs, targets = split` must keep working


@dataclass(frozen=True)
class Dataset:
    """A training and a test split."""

    name: str
    train: Split
    test: Split
    classes: int
    """Number of classes; 1 for regression."""
