"""What the function of a cell receives and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qipf.study.run.store import Store

Parents = Mapping[str, Mapping[str, str]]
"""The kind and the key of each parent, by role."""


@dataclass(frozen=True)
class Context:
    """Where a cell runs: the store with the results of its parents, its own kind and key, and the folder with data."""

    store: Store
    kind: str
    key: str
    data: str | None = None

    def record(self, parent: Mapping[str, str]) -> dict[str, Any]:
        """The record of a parent."""
        return self.store.record(parent["kind"], parent["key"])

    def arrays(self, parent: Mapping[str, str]) -> dict[str, np.ndarray]:
        """The arrays of a parent."""
        return self.store.arrays(parent["kind"], parent["key"])


@dataclass(frozen=True)
class Result:
    """What a cell leaves in the store.

    Attributes:
        facts: JSON values for its record.
        arrays: arrays by name.
        files: the bytes of other files by suffix, for instance ".qipf".
    """

    facts: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] | None = None
    files: Mapping[str, bytes] | None = None
