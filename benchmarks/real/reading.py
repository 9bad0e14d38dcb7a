"""Measurements of the study in results/real: means by suite, best rivals, and differences with intervals.

The value of a family is the mean over its intensities, and that of a suite the mean over its families. See
results/real/PROTOCOL.md for the weights of networks and suites and the choice of the best rival.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from probe.reading import RELATIVES, Interval

GROUPS = {
    "cifar": "CIFAR-10 ResNets",
    "imagenette": "EfficientNet-Lite",
    "text": "text",
    "imagenet": "ImageNet",
    "imagenet-first": "ImageNet, first run",
    "sixteen": "sixteen classes",
    "camvid": "CamVid",
    "g2p": "g2p-en, words",
    "g2p-phonemes": "g2p-en, phonemes",
    "to-tiny": "Full size, then tiny",
    "from-tiny": "Tiny, then full size",
}
FIRST = ("cifar", "imagenette", "text")
"""The families of the first protocol, which are judged together; those of the amendments are judged separately."""
SUITES = {
    "clean": "clean",
    "shift": "shift",
    "unseen": "unseen",
    "resembling": "resembling",
    "natural": "natural",
    "either": "either",
}
STRICT = "strict"
"""The suite "unseen" without noise and blur, which resemble training perturbations."""
SHIFTED = ("shift", "unseen", "natural")
"""The suites whose mean is subject to a criterion."""
BARRED = ("clean", *SHIFTED)
"""The suites in which every network is subject to a criterion."""
OURS = "probe"
METRICS = ("roc_auc", "pr_auc")
STEP = 1e-4
"""The unit of the stored replicates, which are differences from the value."""
RESAMPLES = 2000


class Group:
    """Measurements on one family of networks."""

    def __init__(self, path: Path) -> None:
        self.facts: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
        with np.load(path.with_suffix(".npz")) as file:
            self._metrics, self._moved = file["metrics"].astype(np.float64), file["replicates"]
        self._row = {(row["network"], row["score"]): number for number, row in enumerate(self.facts["rows"])}
        self._kind = {(row["network"], row["score"]): row["kind"] for row in self.facts["rows"]}
        self.networks = list(dict.fromkeys(row["network"] for row in self.facts["rows"]))
        self.families = [tuple(family) for family in self.facts["families"]]
        self.suites = [suite for suite in SUITES if any(own == suite for own, _ in self.families)]
        self.gaps, self.family = cache(self._gaps), cache(self._family)

    def scores(self, network: str, *kinds: str) -> list[str]:
        """Return the scores of the given kinds on a network."""
        return [score for (own, score), kind in self._kind.items() if own == network and kind in kinds]

    def _family(self, network: str, score: str, metric: str) -> np.ndarray:
        """Return the values (F,) of all families; NaN if no condition has both right and wrong predictions."""
        values = self._metrics[self._row[network, score], METRICS.index(metric)]
        found = []
        for family in self.families:
            inside = values[[tuple(place[:2]) == family for place in self.facts["conditions"]]]
            found.append(np.nanmean(inside) if np.isfinite(inside).any() else np.nan)
        return np.array(found)

    def value(self, network: str, score: str, suite: str, metric: str = "roc_auc") -> float:
        """Return the mean over the families of a suite."""
        return float(np.nanmean(self.family(network, score, metric)[self._inside(suite)]))

    def mean(self, score: str, suite: str, metric: str = "roc_auc", networks: list[str] | None = None) -> float:
        """Return the mean over networks."""
        return float(np.mean([self.value(name, score, suite, metric) for name in networks or self.networks]))

    def best(self, network: str, suite: str) -> str:
        """Return the best single-pass score other than the probes."""
        return max(self.scores(network, "single"), key=lambda score: self.value(network, score, suite))

    def rank(self, network: str, suite: str) -> tuple[int, int, bool]:
        """Return the rank of the default, the number of scores, and True if there is no tie."""
        rivals = [self.value(network, score, suite) for score in self.scores(network, "single")]
        own = self.value(network, OURS, suite)
        return 1 + sum(value > own for value in rivals), 1 + len(rivals), own not in rivals

    def has(self, suite: str) -> bool:
        """Return True if any condition belongs to a suite."""
        return suite in self.suites or (suite == STRICT and ("unseen", "fog") in self.families)

    def _inside(self, suite: str) -> np.ndarray:
        if suite == STRICT:
            return np.array([own == "unseen" and family not in RELATIVES for own, family in self.families])
        return np.array([own == suite for own, _ in self.families])

    def replicates(self, network: str, score: str, suite: str) -> np.ndarray:
        """Return bootstrap values (F, R) of the ROC-AUC."""
        inside = self._inside(suite)
        moved = self._moved[self._row[network, score]][inside]
        return self.family(network, score, "roc_auc")[inside][:, None] + STEP * moved

    def _gaps(self, suite: str, rival: str, own: str = OURS) -> tuple[np.ndarray, np.ndarray]:
        """Return values (networks,) and replicates (networks, F, R) of the difference in ROC-AUC from a rival.

        The rival "best" is the best rival on each network.
        """
        values, drawn = [], []
        for network in self.networks:
            theirs = self.best(network, suite) if rival == "best" else rival
            values.append(self.value(network, own, suite) - self.value(network, theirs, suite))
            drawn.append(self.replicates(network, own, suite) - self.replicates(network, theirs, suite))
        return np.array(values), np.stack(drawn)


class Study:
    """The families of networks in a folder with the layout of results/real."""

    def __init__(self, folder: Path) -> None:
        self.groups = {name: Group(folder / name) for name in GROUPS if (folder / f"{name}.json").is_file()}

    def one(self, group: str, network: str, suite: str, rival: str = "best") -> Interval:
        """Return the difference from a rival on one network."""
        found = self.groups[group]
        values, drawn = found.gaps(suite, rival)
        row = found.networks.index(network)
        return _interval(float(values[row]), [{suite: drawn[row : row + 1]}])

    def mean(self, suites: tuple[str, ...], rival: str = "best", group: str = "", own: str = OURS) -> Interval:
        """Return the mean difference from a rival; the interval resamples networks, families and images."""
        chosen = self._chosen(group)
        parts = [{s: found.gaps(s, rival, own) for s in suites if found.has(s)} for found in chosen]
        value = np.mean([np.mean([values.mean() for values, _ in part.values()]) for part in parts])
        return _interval(float(value), [{s: drawn for s, (_, drawn) in part.items()} for part in parts])

    def _chosen(self, only: str) -> list[Group]:
        """Return one family of networks, or those of the first protocol."""
        return [found for name, found in self.groups.items() if name == only or (only == "" and name in FIRST)]

    def strongest(self, only: str = "") -> str:
        """Return the rival with the best mean over the suites in `BARRED`."""
        groups = self._chosen(only)
        everywhere = [set(group.scores(network, "single")) for group in groups for network in group.networks]
        common = sorted(set.intersection(*everywhere))

        def strength(score: str) -> float:
            means = [
                np.mean([group.mean(score, suite) for suite in BARRED if suite in group.suites]) for group in groups
            ]
            return float(np.mean(means))

        return max(common, key=strength)


def _interval(value: float, groups: list[dict[str, np.ndarray]]) -> Interval:
    """Return the 95% percentile interval of the mean of replicates (networks, F, R) over groups and suites."""
    rng = np.random.default_rng(0)
    total = np.zeros(RESAMPLES)
    for suites in groups:
        networks, _, replicates = next(iter(suites.values())).shape
        rows = rng.integers(0, networks, (RESAMPLES, networks, 1))
        images = rng.integers(0, replicates, (RESAMPLES, 1, 1))
        for drawn in suites.values():
            families = rng.integers(0, drawn.shape[1], (RESAMPLES, 1, drawn.shape[1]))
            total += np.nanmean(drawn[rows, families, images], axis=(1, 2)) / len(suites) / len(groups)
    low, high = np.nanpercentile(total, [2.5, 97.5])
    return Interval(value, float(low), float(high))
