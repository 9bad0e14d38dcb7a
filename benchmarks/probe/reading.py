"""Measurements of the probe study in results/probe: means by column, and differences with intervals.

A family is one kind of shift or corruption, and a column is a set of families. A value is the mean over the intensities
of a family, then over the families of a column, then over networks and ensembles. All pairs have the same weight.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PAIRS = {"mnist": "MNIST LeNet", "kmnist": "K-MNIST LeNet", "vgg3": "CIFAR-10 VGG-3", "resnet18": "CIFAR-10 ResNet-18"}
METRICS = ("roc_auc", "pr_auc", "aurc")
GROUPS = {
    "shift": "the paper's five shifts",
    "geometric": "four geometric shifts",
    "unseen": "unseen families",
    "strict": "unseen families without noise and blur",
    "resembling": "resembling families",
    "clean": "clean",
    "ood": "out of distribution",
}
"""The columns of the study and their titles."""
RELATIVES = ("shot-noise", "impulse-noise", "motion-blur", "glass-blur")
"""Unseen families that are kinds of noise or blur, like two of the training perturbations."""
WEATHER = ("fog", "snow")
WITHIN = {"geometric": "shift", "strict": "unseen", "no weather": "unseen"}
"""Columns that are part of another column. A name such as "shift: shear" means one family of a column."""
LEFT_OUT = {"geometric": ("brightness",), "strict": RELATIVES, "no weather": (*RELATIVES, *WEATHER)}
SETS = {"lenets": ("mnist", "kmnist"), "cifar": ("vgg3", "resnet18")}
"""Sets of pairs for which means are quoted."""
RESAMPLES = 2000


def heads(found: Iterable[str]) -> list[str]:
    """Return the titles of pairs."""
    return [PAIRS[name] for name in found]


def _whole(group: str) -> str:
    whole = group.partition(": ")[0]
    return WITHIN.get(whole, whole)


class Interval(NamedTuple):
    """A difference with its 95% interval."""

    value: float
    low: float
    high: float


class Pair:
    """Measurements on the networks of one pair."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self.units: list[dict[str, Any]] = [json.loads(path.with_suffix(".json").read_text()) for path in paths]
        accuracy = {name: values for unit in self.units for name, values in unit["accuracy"].items()}
        self.facts = {**self.units[0], "accuracy": accuracy}
        self.rows: list[dict[str, Any]] = [row for unit in self.units for row in unit["rows"]]
        self.places = [(c["group"], c["family"]) for c in self.facts["conditions"]]
        self.bases = sorted({row["base"] for row in self.rows})

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        parts = []
        for path in self.paths:
            with np.load(path) as file:
                parts.append({name: file[name].astype(np.float64) for name in ("metrics", "replicates")})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def families(self, group: str) -> list[str]:
        """Return the families of a column."""
        whole, _, one = group.partition(": ")
        found = dict.fromkeys(family for own, family in self.places if own == WITHIN.get(whole, whole))
        return [family for family in found if family not in LEFT_OUT.get(whole, ()) and one in ("", family)]

    def own_group(self, group: str, family: str) -> str:
        """Return the group of a column's family."""
        return _whole(group)

    def of(self, score: str) -> list[int]:
        """Return the row indices of a score."""
        return [number for number, row in enumerate(self.rows) if row["score"] == score]

    def family(self, score: str, group: str, family: str, metric: str, base: int | None = None) -> float:
        """Return the mean of a score in one family; NaN if not measured."""
        wanted = self.own_group(group, family)
        conditions = [number for number, place in enumerate(self.places) if place == (wanted, family)]
        rows = [number for number in self.of(score) if base in (None, self.rows[number]["base"])]
        if not rows:
            return np.nan
        values = self._arrays["metrics"][rows, METRICS.index(metric)][:, conditions]
        return float(np.mean(np.nanmean(values, axis=1)))

    def value(self, score: str, group: str, metric: str = "roc_auc", base: int | None = None) -> float:
        """Return the mean of a score over a column, for all networks or one."""
        return float(np.mean([self.family(score, group, family, metric, base) for family in self.families(group)]))

    def replicates(self, score: str, group: str, metric: str) -> np.ndarray:
        """Return bootstrap values (networks, ensembles, families, replicates) of a score."""
        listed = [tuple(place) for place in self.facts["families"]]
        columns = [listed.index((self.own_group(group, family), family)) for family in self.families(group)]
        by_base = [[row for row in self.of(score) if self.rows[row]["base"] == base] for base in self.bases]
        return self._arrays["replicates"][:, METRICS.index(metric)][np.array(by_base)][:, :, columns]

    def accuracy(self, who: str, group: str) -> float:
        """Return the mean accuracy of "network", "ensemble" or a probe."""
        rows = [np.array(values) for name, values in self.facts["accuracy"].items() if name.rpartition(" ")[0] == who]
        means = []
        for family in self.families(group):
            conditions = [n for n, place in enumerate(self.places) if place[1] == family]
            means.append(np.mean([row[conditions].mean() for row in rows]))
        return float(np.mean(means))


class Study:
    """The measured pairs in a folder with the layout of results/probe."""

    kind: type[Pair] = Pair
    files = "{}.npz"

    def __init__(self, folder: Path) -> None:
        found = {name: sorted(folder.glob(self.files.format(name))) for name in PAIRS}
        self.pairs: dict[str, Any] = {name: self.kind(*paths) for name, paths in found.items() if paths}
        self.difference = cache(self._difference)

    def mean(self, score: str, group: str, metric: str = "roc_auc", only: str = "") -> float:
        """Return the mean over all pairs, or over those in `SETS[only]`."""
        pairs = [pair for name, pair in self.pairs.items() if name in SETS.get(only, self.pairs)]
        return float(np.mean([pair.value(score, group, metric) for pair in pairs]))

    def _difference(self, ours: str, theirs: str, group: str, metric: str, only: str = "") -> Interval:
        """Return the paired difference of two rows with its 95% interval, for one pair or on average.

        Each resample draws networks, ensembles and one replicate of the images for each pair, and the same families for
        all pairs.
        """
        pairs = [pair for name, pair in self.pairs.items() if not only or name in SETS.get(only, (only,))]
        value = np.mean([pair.value(ours, group, metric) - pair.value(theirs, group, metric) for pair in pairs])
        gaps = [pair.replicates(ours, group, metric) - pair.replicates(theirs, group, metric) for pair in pairs]
        rng = np.random.default_rng(0)
        families = rng.integers(0, gaps[0].shape[2], (RESAMPLES, 1, 1, gaps[0].shape[2]))
        drawn = np.zeros(RESAMPLES)
        for gap in gaps:
            networks = rng.integers(0, gap.shape[0], (RESAMPLES, gap.shape[0], 1, 1))
            ensembles = rng.integers(0, gap.shape[1], (RESAMPLES, 1, gap.shape[1], 1))
            images = rng.integers(0, gap.shape[3], (RESAMPLES, 1, 1, 1))
            drawn += np.nanmean(gap[networks, ensembles, families, images], axis=(1, 2, 3)) / len(gaps)
        low, high = np.percentile(drawn, [2.5, 97.5])
        return Interval(float(value), float(low), float(high))
