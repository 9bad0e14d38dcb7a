"""Populations whose error rate at every threshold is known, to hold promises against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

GRID = np.linspace(-8, 8, 160_001)
MASS = np.exp(-(GRID**2) / 2) / np.sqrt(2 * np.pi) * (GRID[1] - GRID[0])


@dataclass(frozen=True)
class World:
    """Scores u ~ N(0, 1), rounded to `step` where there are ties; a prediction is wrong with expit(slope u + start)."""

    slope: float
    start: float
    step: float = 0.0

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores, and whether each prediction is correct."""
        u = rng.standard_normal(count)
        return self._rounded(u), rng.random(count) >= expit(self.slope * u + self.start)

    def risk(self, threshold: float) -> tuple[float, float]:
        """The error rate among accepted predictions, and the share accepted."""
        accepted = self._rounded(GRID) <= threshold
        share = MASS[accepted].sum()
        return float((MASS * expit(self.slope * GRID + self.start))[accepted].sum() / max(share, 1e-300)), float(share)

    def oracle(self, limit: float) -> float:
        """The largest share that can be accepted with an error rate of at most `limit`."""
        values = np.unique(self._rounded(GRID[::100]))
        return max((share for rate, share in map(self.risk, values) if rate <= limit), default=0.0)

    def _rounded(self, u: np.ndarray) -> np.ndarray:
        return np.round(u / self.step) * self.step if self.step else u
