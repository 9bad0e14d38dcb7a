"""What happened over time, in a bounded number of windows: when there are too many, neighbours are joined."""

from __future__ import annotations

from typing import Self

import numpy as np

WINDOWS = 200
COLUMNS = ("rows", "estimate", "accepted", "evidence")
"""Of each window: rows, the sum of their accuracy estimates, how many are accepted, the log capital at its end."""


class History:
    """Windows of consecutive rows, the oldest first."""

    def __init__(self) -> None:
        self._windows: list[tuple[float, ...]] = []
        self.size = 1
        """rows that a window holds before the next one begins"""

    def add(self, rows: int, estimate: float, accepted: int, evidence: float) -> None:
        """Append a batch."""
        if rows == 0:
            return
        if self._windows and self._windows[-1][0] < self.size:
            last = self._windows[-1]
            self._windows[-1] = (last[0] + rows, last[1] + estimate, last[2] + accepted, evidence)
        else:
            self._windows.append((rows, estimate, accepted, evidence))
        if len(self._windows) > WINDOWS:
            self._join()

    def merge(self, other: History) -> None:
        """Append the windows of another history."""
        self._windows += other._windows
        self.size = max(self.size, other.size)
        while len(self._windows) > WINDOWS:
            self._join()

    def _join(self) -> None:
        pairs = [self._windows[start : start + 2] for start in range(0, len(self._windows), 2)]
        self._windows = [(*np.sum([part[:3] for part in pair], axis=0).tolist(), pair[-1][3]) for pair in pairs]
        self.size = max(2 * self.size, int(max(window[0] for window in self._windows)))

    def state(self) -> np.ndarray:
        """(W, 4) numbers in the order of `COLUMNS`."""
        return np.array(self._windows, dtype=np.float64).reshape(-1, len(COLUMNS))

    @classmethod
    def from_state(cls, windows: np.ndarray, size: int) -> Self:
        """The history that `state` and `size` came from; a window that is still filling goes on from where it is."""
        if size < 1 or windows.ndim != 2 or windows.shape[1] != len(COLUMNS) or len(windows) > WINDOWS:
            raise ValueError(f"not the state of a Monitor: its history has shape {windows.shape}, size {size}")
        result = cls()
        result.size = size
        result._windows = [tuple(row) for row in windows.tolist()]
        return result
