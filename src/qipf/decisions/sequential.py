r"""A sequential test of whether live scores still follow the held-out ones, with a false-alarm rate that holds forever.

It is a conformal test martingale (Vovk et al., 2005). The rank of every live score among all scores before it, held-out
ones included, with ties broken at random, is uniform and independent of the earlier ranks as long as nothing changes.
The test bets against that: for each of a few stakes :math:`\epsilon`, the capital is multiplied by
:math:`1 + \epsilon (p - 1/2)` for every rank p, and every `BLOCK` scores a little of it moves between the stakes (the
"simple jumper"), so that a late change is found as well. The whole capital starts at 1 and is expected not to grow
unless something changes; by Ville's inequality it ever reaches :math:`1 / \alpha` with probability :math:`\alpha` at
most. Ranks are taken among bins, so that memory is bounded; the held-out scores that set the edges of the bins are not
counted in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BINS = 32
BLOCK = 50
STAKES = np.array([-1.6, -0.8, -0.3, 0.0, 0.3, 0.8, 1.6])
JUMP = 0.02
"""The share of the capital that moves between the stakes after each block."""
_CHUNK = 8_192


class SequentialTest:
    """Bets on the ranks of scores; memory does not grow with their number.

    Args:
        reference: held-out scores (N,), at least two.
        seed: of the random breaking of ties, and of the half of the reference that sets the bins.
    """

    def __init__(self, reference: np.ndarray, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        order = self.random.permutation(reference.size)
        shaping, counted = reference[order[::2]], reference[order[1::2]]
        self.edges = np.unique(np.quantile(shaping, np.arange(1, BINS) / BINS))
        self.reference = np.bincount(self.bins(counted), minlength=self.edges.size + 1)
        self.counts = self.reference.copy()
        """scores seen so far in each bin, held-out ones included"""
        self.log_capital = np.full(STAKES.size, -np.log(STAKES.size))
        self.place = 0
        """rows of the block that is under way"""
        self.peak = 0.0
        """the largest logarithm of the whole capital so far"""

    def bins(self, scores: np.ndarray) -> np.ndarray:
        """The bin of each score."""
        return np.searchsorted(self.edges, scores, side="right")

    @property
    def evidence(self) -> float:
        """The logarithm of the capital: at least log(1 / a) with probability a at most, if nothing has changed."""
        return float(np.logaddexp.reduce(self.log_capital))

    def add(self, scores: np.ndarray) -> None:
        """Bet on the ranks of further scores, in their order. How they are cut into batches does not matter."""
        bins = self.bins(scores)
        for start in range(0, bins.size, _CHUNK):
            self._bet(self._ranks(bins[start : start + _CHUNK]))

    def _ranks(self, bins: np.ndarray) -> np.ndarray:
        """The smoothed rank of each score among all before it and itself, uniform on [0, 1]."""
        ones = np.zeros((bins.size + 1, self.counts.size), dtype=np.int64)
        ones[0] = self.counts
        ones[np.arange(1, bins.size + 1), bins] = 1
        seen = np.cumsum(ones, axis=0)
        self.counts = seen[-1].copy()
        below = np.cumsum(seen[1:], axis=1)
        rows = np.arange(bins.size)
        equal = seen[1:][rows, bins]
        return (below[rows, bins] - equal + self.random.random(bins.size) * equal) / below[:, -1]

    def _bet(self, ranks: np.ndarray) -> None:
        if self.place == BLOCK:
            self._jump()
            self.place = 0
        gains = np.log1p(STAKES * (ranks[:, None] - 0.5))
        first = BLOCK - self.place
        starts = np.concatenate([[0], np.arange(first, ranks.size, BLOCK)]) if ranks.size > first else np.array([0])
        for number, gain in enumerate(np.add.reduceat(gains, starts, axis=0)):
            if number > 0:
                self._jump()
            self.log_capital = self.log_capital + gain
            self.peak = max(self.peak, self.evidence)
        self.place = (self.place + ranks.size - 1) % BLOCK + 1

    def _jump(self) -> None:
        whole = self.evidence
        moved = np.log(JUMP / STAKES.size) + whole
        self.log_capital = np.logaddexp(np.log1p(-JUMP) + self.log_capital, moved)

    def merge(self, other: SequentialTest) -> None:
        """Take over another test against the same reference: counts add up, and capitals are averaged."""
        if not np.array_equal(self.edges, other.edges) or not np.array_equal(self.reference, other.reference):
            raise ValueError("cannot merge monitors with different references; make both from one scorer's file")
        self.counts = self.counts + other.counts - other.reference
        self.log_capital = np.logaddexp(self.log_capital, other.log_capital) - np.log(2)
        self.peak = max(self.evidence, 0.0)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which `from_state` makes an equal test."""
        arrays = {name: getattr(self, name) for name in ("edges", "reference", "counts", "log_capital")}
        random = self.random.bit_generator.state
        words = {key: str(value) for key, value in random["state"].items()}
        facts = {"place": self.place, "peak": self.peak, "random": words}
        return arrays, facts

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> SequentialTest:
        """The test that the state came from."""
        result = cls.__new__(cls)
        for name in ("edges", "reference", "counts", "log_capital"):
            setattr(result, name, np.asarray(arrays[name]))
        result.place, result.peak = int(facts["place"]), float(facts["peak"])
        result.random = np.random.default_rng(0)
        state = dict(result.random.bit_generator.state)
        state["state"] = {key: int(value) for key, value in facts["random"].items()}
        result.random.bit_generator.state = state
        bins = result.edges.size + 1
        good = result.log_capital.shape == STAKES.shape and result.counts.shape == result.reference.shape == (bins,)
        if not good or not np.isfinite(result.log_capital).all() or not (result.counts >= result.reference).all():
            raise ValueError("not the state of a Monitor: its counts and capitals do not fit together")
        return result
