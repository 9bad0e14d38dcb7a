"""Columns of numbers about tokens, batch after batch, on their way to where they are kept."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from qipf.models.logits import Rows

WAITING = 2**22
"""Bytes that wait on the device of the model. A copy from a GPU waits for all that is queued there, so few large copies
are better than one per batch and column."""


class Columns:
    """Named columns that grow together.

    Args:
        device: Where they are kept.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._waiting: list[Mapping[str, Tensor]] = []
        self._rows: dict[str, Rows] = {}

    def append(self, batch: Mapping[str, Tensor]) -> None:
        """Append the columns of one batch.

        Raises:
            ValueError: It does not have the columns of the batches before.
        """
        names = set(self._waiting[0]) if self._waiting else set(self._rows)
        if names and names != set(batch):
            raise ValueError(
                "data: some batches have labels and others have none; give labels to all batches or to none"
            )
        self._waiting.append(batch)
        if sum(values.nbytes for columns in self._waiting for values in columns.values()) >= WAITING:
            self._move()

    def finish(self) -> dict[str, Tensor]:
        """Return the columns by name; none without any batch."""
        self._move()
        return {name: rows.finish() for name, rows in self._rows.items()}

    def _move(self) -> None:
        for name in self._waiting[0] if self._waiting else ():
            parts = [columns[name] for columns in self._waiting]
            rows = self._rows.setdefault(name, Rows(None, self._device))
            rows.append(parts[0] if len(parts) == 1 else torch.cat(parts))
        self._waiting.clear()
