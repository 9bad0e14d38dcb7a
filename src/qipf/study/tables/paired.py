"""Paired differences between two methods, with intervals over networks, intensities and shifts.

Both methods score the same inputs with the same networks (seeds) at the same intensities. Because the predictions of
one network are not independent trials, the bootstrap resamples seeds, intensities and, for averages over several
shifts, shifts. The resampled shifts are the same for every dataset and network, and the resampled seeds are the same
for every shift of a dataset and network. Images are not resampled. If the standard error over images is known, a random
error of this size is added to every resample. Fewer than six paired values allow no verdict, because five differences
have the same sign by chance with a probability of more than 5%.
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
RESAMPLES = 10_000
"""Number of resamples for an interval."""
SHOWN = 0.0005
"""Half a unit of the last decimal shown; only intervals that lie farther from zero than this allow a verdict."""
SMALLEST = 0.005
"""The smallest relevant difference; results of networks that differ only in their seeds usually differ by more."""


@dataclass(frozen=True)
class Difference:
    """The difference between two methods; in every metric, positive values favour the first.

    Attributes:
        value: Mean over cases of the mean over seeds and intensities.
        low: Lower end of the 95% interval.
        high: Upper end.
        pairs: Number of paired values.
        seeds: Largest number of networks in any case.
        chance: Two-sided bootstrap p-value.
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
        """True if the whole interval is closer to zero than `SMALLEST`."""
        return max(-self.low, self.high) < SMALLEST

    @property
    def verdict(self) -> Verdict:
        """The verdict on the interval (see `verdict`); "undecided" for fewer than `LEAST_PAIRS` pairs."""
        return verdict(self.low, self.high) if self.pairs >= LEAST_PAIRS else "undecided"


class Paired:
    """Paired comparisons of methods in one metric under shift.

    Args:
        table: The long table; only errors of the base network are used.

    Attributes:
        values: Keyed by case, by column, and by seed and intensity; higher is better.
    """

    def __init__(self, table: Any, metric: str) -> None:
        self.sign = sign(metric)
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
        """Return the mean difference between two columns over the cases that have both, or None if there are none.

        `image_error` is the standard error of the difference due to the choice of images.
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
        """Return ours minus theirs as an array of seeds by intensities, with NaN for missing values."""
        mine, other = self.values[case][ours], self.values[case][theirs]
        seeds = sorted({s for s, _ in mine} & {s for s, _ in other})
        intensities = sorted({i for _, i in mine} & {i for _, i in other})
        missing = float("nan")
        rows = [[mine.get((s, i), missing) - other.get((s, i), missing) for i in intensities] for s in seeds]
        return np.array(rows).reshape(len(seeds), len(intensities))

    def resampled(self, case: Case, grid: np.ndarray) -> np.ndarray:
        """Return the mean of the grid for every resample of its seeds and intensities."""
        rows = self._times_drawn(grid.shape[0], case.dataset, case.net)
        columns = self._times_drawn(grid.shape[1], *case)
        known = np.isfinite(grid)
        total = np.einsum("ij,ij->i", rows @ np.where(known, grid, 0.0), columns)
        if known.all():
            return total / grid.size
        count = np.einsum("ij,ij->i", rows @ known, columns)
        return np.where(count > 0, total / np.maximum(count, 1), np.nanmean(grid))

    def averaged(self, cases: Sequence[Case], draws: Sequence[np.ndarray]) -> np.ndarray:
        """Return the resamples averaged over cases, with the shifts resampled if there are several."""
        shifts = sorted({case.shift for case in cases})
        if len(shifts) == 1:
            return np.mean(draws, axis=0)
        times = self._times_drawn(len(shifts), *shifts)
        weights = np.stack([times[:, shifts.index(case.shift)] for case in cases])
        return (weights * np.stack(draws)).sum(axis=0) / weights.sum(axis=0)

    @cached_property
    def _errors(self) -> np.ndarray:
        """One standard normal variate per resample."""
        return np.random.default_rng([0, zlib.crc32(b"images")]).normal(size=RESAMPLES)

    def _count_draws(self, number: int, *names: str) -> np.ndarray:
        """Return the number of times that each of `number` items is drawn in every resample."""
        generator = np.random.default_rng([0, zlib.crc32("/".join(names).encode())])
        drawn = generator.integers(number, size=(RESAMPLES, number))
        cells = (number * np.arange(RESAMPLES)[:, None] + drawn).ravel()
        return np.bincount(cells, minlength=RESAMPLES * number).reshape(RESAMPLES, number).astype(float)


def sign(metric: str) -> float:
    """Return -1 if lower values of the metric are better, and 1 otherwise."""
    return -1.0 if METRICS[metric].better == "lower" else 1.0


def verdict(low: float, high: float) -> Verdict:
    """Return "yes" for an interval above zero, "no" for one below zero, and "undecided" otherwise."""
    if low > SHOWN:
        return "yes"
    return "no" if high < -SHOWN else "undecided"
