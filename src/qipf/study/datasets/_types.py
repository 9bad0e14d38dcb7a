"""What every dataset is made of."""

from __future__ import annotations

from dataclasses import dataclass

from qipf.models.split import Split


@dataclass(frozen=True)
class Dataset:
    """A training and a test split."""

    name: str
    train: Split
    test: Split
    classes: int
    """Number of classes; 1 for regression."""
