"""Which score finds a network's errors best: every score of one pair of dataset and network, the best first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qipf.study.tables.frame import PAIR, comparable, long_frame
from qipf.study.tables.tables import averages

UNSHIFTED = "clean"
"""The only place of a ranking where nothing was measured under a shift."""


@dataclass(frozen=True)
class Standing:
    """One score in a ranking.

    Attributes:
        column: the score, see `qipf.study.tables.frame.column_of`.
        values: by place, the mean over severities and networks; NaN where the score has no value.
        mean: the mean over the places that have a value.
        complete: whether every place has one. Scores that lack some are ranked after all that do not.
    """

    column: str
    values: Mapping[str, float]
    mean: float
    complete: bool


@dataclass(frozen=True)
class Ranking:
    """The scores of one pair, the best first.

    Attributes:
        dataset: name of the dataset.
        net: name of the network.
        places: the shifts, or only "clean" where nothing was shifted.
        standings: the scores.
    """

    dataset: str
    net: str
    places: tuple[str, ...]
    standings: tuple[Standing, ...]

    def find(self, column: str) -> Standing | None:
        """The standing of a score; None where it was not measured."""
        return next((standing for standing in self.standings if standing.column == column), None)

    @property
    def shifted(self) -> bool:
        """Whether it is about shifted inputs."""
        return self.places != (UNSHIFTED,)


def rankings(table: Any, metric: str = "roc_auc") -> list[Ranking]:
    """One ranking per pair of dataset and network, in the order of the table; more is better.

    Where a pair was measured under shifts, only these count; otherwise its clean inputs do.
    """
    frame = long_frame(table)
    found = averages(frame, metric)
    result = []
    for dataset, net in frame[PAIR].drop_duplicates().itertuples(index=False):
        own = {(c.shift, name): v.mean for (c, name), v in found.items() if (c.dataset, c.net) == (dataset, net)}
        result.append(_ranking(dataset, net, own or _clean(frame, dataset, net, metric)))
    return result


def _ranking(dataset: str, net: str, values: Mapping[tuple[str, str], float]) -> Ranking:
    places = tuple(dict.fromkeys(place for place, _ in values))
    standings = []
    for name in dict.fromkeys(name for _, name in values):
        own = {place: values.get((place, name), np.nan) for place in places}
        known = [value for value in own.values() if np.isfinite(value)]
        standings.append(Standing(name, own, float(np.mean(known)), len(known) == len(places)))
    standings.sort(key=lambda standing: (not standing.complete, -standing.mean))
    return Ranking(dataset, net, places, tuple(standings))


def _clean(frame: Any, dataset: str, net: str, metric: str) -> dict[tuple[str, str], float]:
    rows = comparable(frame[frame["metric"] == metric])
    asked = {"dataset": dataset, "net": net, "errors": "base", "shift": UNSHIFTED}
    for name, value in asked.items():
        rows = rows[rows[name] == value]
    means = rows.groupby("column", sort=False)["value"].mean().dropna()
    return {(UNSHIFTED, str(name)): float(value) for name, value in means.items()}
