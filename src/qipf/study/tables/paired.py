"""Paired differences between two methods, with intervals that know about networks and intensities.

Both methods have scored the same inputs of the same networks (seeds) under the same intensities. The interval resamples
seeds and intensities, each with replacement: predictions of one network are no independent trials of a method. Fewer
than six pairs decide nothing: even if all favour one side, a fair coin would do the same in more than 5 % of trials.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from qipf.metrics import METRICS
from qipf.study.tables import paper
from qipf.study.tables.paper import Case
from qipf.study.tables.rows import column_of, comparable, is_shift

Verdict = Literal["yes", "no", "undecided", "not measured"]

LEAST_PAIRS = 6
SHOWN = 0.0005
"""Half of the last decimal that differences are shown with: what ends nearer to zero than that is no difference."""


@dataclass(frozen=True)
class Difference:
    """By how much one method is better than another, whatever the metric's direction.

    Attributes:
        value: mean over the cases of the mean over seeds and intensities.
        low: lower end of its 95 % interval.
        high: upper end.
        pairs: how many numbers were compared.
        seeds: of how many networks, at most.
        cases: shifts, datasets and networks.
    """

    value: float
    low: float
    high: float
    pairs: int
    seeds: int
    cases: int

    @property
    def verdict(self) -> Verdict:
        """Whether it is above zero: "yes" or "no" only where the whole interval is on that side."""
        return verdict(self.low, self.high) if self.pairs >= LEAST_PAIRS else "undecided"


class Paired:
    """The values of every method in one metric, under shifts, ready to be compared.

    Args:
        rows: of a long table; other metrics, clean inputs and other errors than the base network's are passed over.
        metric: which to compare in.
        resamples: for the intervals.
        seed: of the resamples.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], metric: str, resamples: int = 10_000, seed: int = 0) -> None:
        self.sign = sign(metric)
        self.resamples, self.seed = resamples, seed
        self._times_drawn = cache(self._count_draws)
        values: dict[Case, dict[str, dict[tuple[Any, Any], float]]] = defaultdict(lambda: defaultdict(dict))
        for row in comparable(row for row in rows if row["metric"] == metric):
            if is_shift(row):
                case = Case(row["shift"], row["dataset"], row["net"])
                values[case][column_of(row)][row.get("seed", 0), row["intensity"]] = self.sign * float(row["value"])
        self.values = {case: values[case] for case in sorted(values, key=paper.case_order)}

    def difference(self, ours: str, theirs: str, cases: Iterable[Case] | None = None) -> Difference | None:
        """Ours less theirs, on average over the cases that have both; None where there is none.

        Args:
            ours: a column, see `qipf.study.tables.rows.column_of`.
            theirs: another.
            cases: which to take; all if left out.
        """
        found = [
            (case, self.grid(case, ours, theirs))
            for case in (self.values if cases is None else cases)
            if {ours, theirs} <= set(self.values[case])
        ]
        known = [(case, grid) for case, grid in found if np.isfinite(grid).any()]
        if not known:
            return None
        drawn = np.mean([self.resampled(case, grid) for case, grid in known], axis=0)
        low, high = (float(v) for v in np.nanquantile(drawn, [0.025, 0.975]))
        return Difference(
            value=float(np.mean([np.nanmean(grid) for _, grid in known])),
            low=low,
            high=high,
            pairs=sum(int(np.isfinite(grid).sum()) for _, grid in known),
            seeds=max(len(grid) for _, grid in known),
            cases=len(known),
        )

    def grid(self, case: Case, ours: str, theirs: str) -> np.ndarray:
        """Ours less theirs, seeds by intensities, NaN where one of them is missing."""
        mine, other = self.values[case][ours], self.values[case][theirs]
        seeds = sorted({s for s, _ in mine} & {s for s, _ in other})
        intensities = sorted({i for _, i in mine} & {i for _, i in other})
        missing = float("nan")
        rows = [[mine.get((s, i), missing) - other.get((s, i), missing) for i in intensities] for s in seeds]
        return np.array(rows).reshape(len(seeds), len(intensities))

    def resampled(self, case: Case, grid: np.ndarray) -> np.ndarray:
        """Means of the grid with seeds and intensities drawn anew; networks of one pair share their draws."""
        rows = self._times_drawn(grid.shape[0], case.dataset, case.net)
        columns = self._times_drawn(grid.shape[1], *case)
        known = np.isfinite(grid)
        total = ((rows @ np.where(known, grid, 0.0)) * columns).sum(axis=1)
        count = ((rows @ known) * columns).sum(axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nanmean(grid))

    def _count_draws(self, number: int, *names: str) -> np.ndarray:
        """How often each of `number` things is drawn in every resample."""
        generator = np.random.default_rng([self.seed, zlib.crc32("/".join(names).encode())])
        drawn = generator.integers(number, size=(self.resamples, number))
        return (drawn[:, :, None] == np.arange(number)).sum(axis=1).astype(float)


def sign(metric: str) -> float:
    """What a difference is multiplied by so that above zero is better."""
    return -1.0 if METRICS[metric].better == "lower" else 1.0


def verdict(low: float, high: float) -> Verdict:
    """On which side of zero an interval lies, to the decimals that are shown."""
    if low > SHOWN:
        return "yes"
    return "no" if high < -SHOWN else "undecided"
