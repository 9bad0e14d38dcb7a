"""Columns of numbers about tokens, batch after batch, on their way to where they are kept."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from qipf.models.logits import Rows

WAITING = 2**22
"""Bytes that wait on the device of the model. A copy from a GPU waits for all that is queued there, so few large copies
are better than one per batch and column."""
MOST = 256
"""Batches that wait at most; of small ones, what they are kept in would be larger than their numbers."""


class Columns:
    """Named columns that grow together.

    Args:
        device: Where they are kept.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._waiting: list[Mapping[str, Tensor]] = []
        self._bytes = 0
        self._widths: dict[str, tuple[int, ...]] = {}
        self._rows: dict[str, Rows] = {}

    def append(self, batch: Mapping[str, Tensor]) -> None:
        """Append the columns of one batch.

        Raises:
            ValueError: It does not have the columns of the batches before, or other numbers of values per token.
        """
        widths = {name: tuple(values.shape[1:]) for name, values in batch.items()}
        self._widths = self._widths or widths
        if set(self._widths) != set(widths):
            raise ValueError(
                "data: some batches have labels and others have none; give labels to all batches or to none"
            )
        for name, width in widths.items():
            if width != self._widths[name]:
                raise ValueError(
                    f"{name}: expected rows of shape {self._widths[name]}, as in the batches before, got {width}"
                )
        self._waiting.append(batch)
        self._bytes += sum(values.nbytes for values in batch.values())
        if self._bytes >= WAITING or len(self._waiting) >= MOST:
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
        self._bytes = 0
