r"""An anytime-valid sequential test of whether live scores follow the distribution of the held-out scores.

The test is a conformal test martingale (Vovk et al., 2005). If nothing changes, the rank of each live score among all
held-out and earlier live scores, with ties broken at random, is uniform and independent of the earlier ranks. The test
bets against this hypothesis: the capital is divided among several stakes :math:`\epsilon`, and for every rank p (scaled
to [0, 1]), each part is multiplied by :math:`1 + \epsilon (p - 1/2)`. After every `BLOCK` scores, a small part of the
capital moves between the stakes (the "simple jumper"), so that late changes are also detected. The total capital starts
at 1 and is not expected to grow unless something changes. By Ville's inequality, if nothing changes, the probability
that it ever reaches :math:`1 / \alpha` is at most :math:`\alpha`. Scores are counted in bins to bound memory. Half of
the held-out scores determine the bin edges and are not counted in the ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

BINS = 32
BLOCK = 50
STAKES = np.array([-1.6, -0.8, -0.3, 0.0, 0.3, 0.8, 1.6])
JUMP = 0.02
"""The fraction of the capital that moves between the stakes after each block."""
_CHUNK = 8_192


class SequentialTest:
    """A sequential test that bets on the ranks of scores, in bounded memory.

    Args:
        reference: Held-out scores (N,), at least two.
        seed: The seed for breaking ties and choosing the bins.
    """

    def __init__(self, reference: np.ndarray, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        order = self.random.permutation(reference.size)
        shaping, counted = reference[order[::2]], reference[order[1::2]]
        self.edges = np.unique(np.quantile(shaping, np.arange(1, BINS) / BINS))
        self.reference = np.bincount(self.bins(counted), minlength=self.edges.size + 1)
        self.counts: np.ndarray
        """The number of scores in each bin so far, including held-out scores."""
        self.log_capital: np.ndarray
        self.parts: int
        """The number of merged tests that have received data, including this one."""
        self.place: int
        """The number of rows in the current block."""
        self.peak: float
        """The largest log capital that any merged test has reached."""
        self.restart()

    def bins(self, scores: np.ndarray) -> np.ndarray:
        """Return the bin index of each score."""
        return np.searchsorted(self.edges, scores, side="right")

    def restart(self) -> None:
        """Discard all live scores."""
        self.counts = self.reference.copy()
        self.log_capital = np.full(STAKES.size, -np.log(STAKES.size))
        self.parts, self.place, self.peak = 0, 0, 0.0

    @property
    def evidence(self) -> float:
        """The log capital; if nothing has changed, it reaches log(1 / a) with probability at most a."""
        return float(np.logaddexp.reduce(self.log_capital))

    def less_sure(self) -> float:
        """Return the probability that a live score exceeds a held-out score; pairs in the same bin count one half."""
        live = self.counts - self.reference
        if not live.any():
            return 0.5
        below = np.cumsum(self.reference) - self.reference / 2
        return float(live @ below / (live.sum() * self.reference.sum()))

    def add(self, scores: np.ndarray) -> None:
        """Bet on the ranks of further scores, in order."""
        bins = self.bins(scores)
        self.parts = max(self.parts, min(1, bins.size))
        for start in range(0, bins.size, _CHUNK):
            self._bet(self._ranks(bins[start : start + _CHUNK]))

    def _ranks(self, bins: np.ndarray) -> np.ndarray:
        """Return the smoothed rank of each score among all scores so far; uniform on [0, 1] if nothing changes."""
        lower = bins[:, None] < np.arange(self.counts.size + 1)  # True if the score lies below the bin
        lower = np.cumsum(lower, axis=0, dtype=np.uint16)  # running count, including the score itself
        rows, before = np.arange(bins.size), np.concatenate([[0], np.cumsum(self.counts)])
        below = before[bins] + lower[rows, bins]
        equal = before[bins + 1] + lower[rows, bins + 1] - below
        self.counts = self.counts + np.bincount(bins, minlength=self.counts.size)
        return (below + self.random.random(bins.size) * equal) / (before[-1] + rows + 1)

    def _bet(self, ranks: np.ndarray) -> None:
        """Multiply the capital by the gains of the ranks, and move capital between the stakes after each block."""
        gains = np.log1p(STAKES * (ranks[:, None] - 0.5))
        first = BLOCK - self.place % BLOCK
        gains = np.add.reduceat(gains, [0, *range(first, ranks.size, BLOCK)], axis=0)
        scale = gains.max(axis=1)
        whole, sums = self.evidence, np.empty(len(gains))
        shares, jumps = np.exp(self.log_capital - whole), self.place == BLOCK
        for number, factors in enumerate(np.exp(gains - scale[:, None])):
            if number or jumps:
                shares = (1 - JUMP) * shares + JUMP / STAKES.size
            shares = shares * factors
            sums[number] = total = shares.sum()
            shares /= total
        wholes = whole + np.cumsum(scale + np.log(sums))
        self.log_capital = np.log(shares) + wholes[-1]
        self.peak = max(self.peak, float(wholes.max()))
        self.place = (self.place + ranks.size - 1) % BLOCK + 1

    def merge(self, other: SequentialTest) -> None:
        """Add the counts of another test with the same reference, and average the capitals of all merged tests.

        If nothing changes, the probability that any of k merged tests, or their average, ever reaches the capital 1 / a
        is at most k a.
        """
        if not np.array_equal(self.edges, other.edges) or not np.array_equal(self.reference, other.reference):
            raise ValueError("other: expected a monitor with the same reference; create both from the same scorer file")
        self.counts = self.counts + other.counts - other.reference
        weights = np.array([[self.parts], [other.parts]])
        self.parts += other.parts
        if self.parts:
            both = np.stack([self.log_capital, other.log_capital])
            self.log_capital = special.logsumexp(both, axis=0, b=weights / self.parts)
        self.peak = max(self.peak, other.peak, self.evidence)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and JSON values from which `from_state` restores the test."""
        arrays = {name: getattr(self, name) for name in ("edges", "reference", "counts", "log_capital")}
        random = self.random.bit_generator.state
        words = {key: str(value) for key, value in random["state"].items()}
        facts = {"place": self.place, "peak": self.peak, "parts": self.parts, "random": words}
        return arrays, facts

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> SequentialTest:
        """Build a test from its `state`."""
        result = cls.__new__(cls)
        for name in ("edges", "reference", "counts", "log_capital"):
            setattr(result, name, np.asarray(arrays[name]))
        result.place, result.peak, result.parts = int(facts["place"]), float(facts["peak"]), int(facts["parts"])
        result.random = np.random.default_rng(0)
        state = dict(result.random.bit_generator.state)
        state["state"] = {key: int(value) for key, value in facts["random"].items()}
        result.random.bit_generator.state = state
        return result
