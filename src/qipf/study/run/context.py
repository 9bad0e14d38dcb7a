"""What the function of a cell is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qipf.study.run.store import Store

Parents = Mapping[str, Mapping[str, str]]
"""By role, the kind and the key of a parent."""


@dataclass(frozen=True)
class Context:
    """Where a cell runs: the store it reads its parents from, its own kind and key, the user's data folder."""

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
    """What a cell leaves in the store: JSON values and arrays."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] | None = None
