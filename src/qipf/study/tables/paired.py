"""Paired differences between two methods, with intervals over networks, intensities and shifts.

Both methods have scored the same inputs of the same networks (seeds) under the same intensities. The interval resamples
seeds, intensities and, where cases with several shifts are averaged, shifts, each with replacement, because predictions
of one network are not independent trials of a method. All pairs of dataset and network share the draws of shifts, and
all cases of a pair share those of networks. The table has no single predictions, so images are not resampled; where
their standard error is known from elsewhere, every resample is moved by an error of that size. Fewer than six pairs of
numbers decide nothing: even if all favour one side, a fair coin would do the same in more than 5 % of trials.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np

from qipf.metrics import METRICS
from qipf.study.tables import paper
from qipf.study.tables.frame import CASE, comparable, long_frame, shifted
from qipf.study.tables.paper import Case

Verdict = Literal["yes", "no", "undecided", "not measured"]

LEAST_PAIRS = 6
SHOWN = 0.0005
"""Half of the last decimal that differences are shown with; an interval that ends nearer to zero decides nothing."""
SMALLEST = 0.005
"""The smallest difference that matters. Networks that differ only in their seed usually differ by more."""


@dataclass(frozen=True)
class Difference:
    """By how much one method is better than another; positive is better, whichever way the metric runs.

    Attributes:
        value: mean over the cases of the mean over seeds and intensities.
        low: lower end of its 95 % interval.
        high: upper end of its 95 % interval.
        pairs: how many numbers were compared.
        seeds: the largest number of networks in any case.
        cases: how many combinations of shift, dataset and network were compared.
        chance: twice the share of resamples on the other side of zero, at most 1: how easily chance gives the sign.
    """

    value: float
    low: float
    high: float
    pairs: int
    seeds: int
    cases: int
    chance: float = 1.0

    @property
    def negligible(self) -> bool:
        """Whether the whole interval is nearer to zero than the smallest difference that matters."""
        return max(-self.low, self.high) < SMALLEST

    @property
    def verdict(self) -> Verdict:
        """Whether it is above zero: "yes" or "no" only where the whole interval lies on that side."""
        return verdict(self.low, self.high) if self.pairs >= LEAST_PAIRS else "undecided"


class Paired:
    """The values of every method in one metric under shift, ready to be compared.

    Args:
        table: the long table. Rows about other metrics, clean inputs or errors other than the base network's are
            ignored.
        metric: the metric to compare in.
        resamples: how many resamples the intervals are made from.
        seed: seed of the resamples.

    Attributes:
        values: by case and column, the values by seed and intensity, signed so that more is better.
    """

    def __init__(self, table: Any, metric: str, resamples: int = 10_000, seed: int = 0) -> None:
        self.sign = sign(metric)
        self.resamples, self.seed = resamples, seed
        self._times_drawn = cache(self._count_draws)
        frame = long_frame(table)
        rows = shifted(comparable(frame[frame["metric"] == metric]))
        rows = rows.assign(value=self.sign * rows["value"])
        values: dict[Case, dict[str, dict[tuple[int, float], float]]] = {}
        for key, found in rows.groupby([*CASE, "column"], sort=False):
            places = zip(found["seed"], found["intensity"], strict=True)
            values.setdefault(Case(*key[:3]), {})[key[3]] = dict(zip(places, found["value"], strict=True))
        self.values = {case: values[case] for case in sorted(values, key=paper.case_order)}

    def difference(
        self, ours: str, theirs: str, cases: Iterable[Case] | None = None, *, image_error: float = 0.0
    ) -> Difference | None:
        """Ours minus theirs, on average over the cases that have both; None where there is no such case.

        Args:
            ours: a column, see `qipf.study.tables.frame.column_of`.
            theirs: another column.
            cases: the cases to take; all of them if left out.
            image_error: the standard error of the mean difference over the choice of images, where it is known.
        """
        found = [
            (case, self.grid(case, ours, theirs))
            for case in (self.values if cases is None else cases)
            if {ours, theirs} <= set(self.values[case])
        ]
        known = [(case, grid) for case, grid in found if np.isfinite(grid).any()]
        if not known:
            return None
        drawn = self.averaged([case for case, _ in known], [self.resampled(case, grid) for case, grid in known])
        drawn = drawn + image_error * self._errors
        low, high = (float(v) for v in np.nanquantile(drawn, [0.025, 0.975]))
        beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
        return Difference(
            value=float(np.mean([np.nanmean(grid) for _, grid in known])),
            low=low,
            high=high,
            pairs=sum(int(np.isfinite(grid).sum()) for _, grid in known),
            seeds=max(len(grid) for _, grid in known),
            cases=len(known),
            chance=min(1.0, 2 * (beyond + 1) / (len(drawn) + 1)),
        )

    def grid(self, case: Case, ours: str, theirs: str) -> np.ndarray:
        """Ours minus theirs as an array of seeds by intensities, NaN where one of them is missing."""
        mine, other = self.values[case][ours], self.values[case][theirs]
        seeds = sorted({s for s, _ in mine} & {s for s, _ in other})
        intensities = sorted({i for _, i in mine} & {i for _, i in other})
        missing = float("nan")
        rows = [[mine.get((s, i), missing) - other.get((s, i), missing) for i in intensities] for s in seeds]
        return np.array(rows).reshape(len(seeds), len(intensities))

    def resampled(self, case: Case, grid: np.ndarray) -> np.ndarray:
        """Means of the grid with seeds and intensities drawn again; cases of one pair share the draws of networks."""
        rows = self._times_drawn(grid.shape[0], case.dataset, case.net)
        columns = self._times_drawn(grid.shape[1], *case)
        known = np.isfinite(grid)
        total = np.einsum("ij,ij->i", rows @ np.where(known, grid, 0.0), columns)
        if known.all():
            return total / grid.size
        count = np.einsum("ij,ij->i", rows @ known, columns)
        return np.where(count > 0, total / np.maximum(count, 1), np.nanmean(grid))

    def averaged(self, cases: Sequence[Case], draws: Sequence[np.ndarray]) -> np.ndarray:
        """The mean over cases of their resamples, with the shifts drawn again where there are several."""
        shifts = sorted({case.shift for case in cases})
        if len(shifts) == 1:
            return np.mean(draws, axis=0)
        times = self._times_drawn(len(shifts), *shifts)
        weights = np.stack([times[:, shifts.index(case.shift)] for case in cases])
        return (weights * np.stack(draws)).sum(axis=0) / weights.sum(axis=0)

    @cached_property
    def _errors(self) -> np.ndarray:
        """A standard normal number for every resample."""
        return np.random.default_rng([self.seed, zlib.crc32(b"images")]).normal(size=self.resamples)

    def _count_draws(self, number: int, *names: str) -> np.ndarray:
        """How often each of `number` items is drawn in every resample."""
        generator = np.random.default_rng([self.seed, zlib.crc32("/".join(names).encode())])
        drawn = generator.integers(number, size=(self.resamples, number))
        cells = (number * np.arange(self.resamples)[:, None] + drawn).ravel()
        return np.bincount(cells, minlength=self.resamples * number).reshape(self.resamples, number).astype(float)


def sign(metric: str) -> float:
    """The factor that makes a positive difference mean better."""
    return -1.0 if METRICS[metric].better == "lower" else 1.0


def verdict(low: float, high: float) -> Verdict:
    """On which side of zero an interval lies, to the decimals that are shown."""
    if low > SHOWN:
        return "yes"
    return "no" if high < -SHOWN else "undecided"
