"""Populations whose error rate at every threshold is known, to hold promises against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, softmax

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
        scores, shares, errors = self._totals
        accepted = int(np.searchsorted(scores, threshold, side="right"))
        return float(errors[accepted] / max(shares[accepted], 1e-300)), float(shares[accepted])

    @cached_property
    def _totals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores, rising, and the shares of all and of wrong predictions among the first k of them."""
        wrong = MASS * expit(self.slope * GRID + self.start)
        return self._rounded(GRID), *(np.concatenate([[0.0], np.cumsum(part)]) for part in (MASS, wrong))

    def oracle(self, limit: float) -> float:
        """The largest share that can be accepted with an error rate of at most `limit`."""
        values = np.unique(self._rounded(GRID[::100]))
        return max((share for rate, share in map(self.risk, values) if rate <= limit), default=0.0)

    def _rounded(self, u: np.ndarray) -> np.ndarray:
        return np.round(u / self.step) * self.step if self.step else u


CLASSES = 5


def classified(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are too sure, and labels from what they should be; class 4 is rare and hard."""
    logits = rng.standard_normal((count, CLASSES)) * 1.5 - np.array([0, 0, 0, 0, 2.0])
    true = softmax(logits, axis=1)
    labels = (rng.random((count, 1)) > np.cumsum(true, axis=1)).sum(axis=1).clip(max=CLASSES - 1)
    return softmax(3 * logits, axis=1), labels
