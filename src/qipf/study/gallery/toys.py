"""Four methods fitted to one small network, seed by seed, for the regression and the two-moons figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import nn

from qipf.predictive import SWAG, MCDropout, Predictive, SGDIterates
from qipf.study import nets
from qipf.study.gallery.plate import Table
from qipf.study.recipes import recipe
from qipf.training import train
from qipf.training.loop import Split

PASSES = 100  # of MC dropout, as in the paper
AUC = "AUC"
RATE = 0.1  # of dropout, as in the paper
ITERATES = 30  # of SGD and SWAG


@dataclass(frozen=True)
class Toy:
    """A network, its dataset, and the constant rate and batch size of SGD from the trained network."""

    net: str
    data: str
    sgd_rate: float
    sgd_batch: int

    def train(self, split: Split, seed: int) -> nn.Module:
        """Train the network that every method but MC dropout starts from."""
        return train(nets.build(self.net, seed=seed), split, seed=seed, progress=False, **self._training)

    def many_pass(self, net: nn.Module, split: Split, seed: int) -> dict[str, Predictive]:
        """Fit SGD iterates, SWAG and MC dropout, which trains a network of its own."""
        wander: dict[str, Any] = {"sgd_rate": self.sgd_rate, "batch_size": self.sgd_batch, "iterates": ITERATES}
        dropout = MCDropout(RATE, passes=PASSES, **self._training)
        return {
            "SGD iterates": SGDIterates(**wander).fit(net, split, seed=seed, progress=False),
            "SWAG": SWAG(**wander).fit(net, split, seed=seed, progress=False),
            "MC dropout": dropout.fit(lambda: nets.build(self.net), split, seed=seed, progress=False),
        }

    @property
    def _training(self) -> dict[str, Any]:
        return asdict(recipe(self.net, self.data))


Regions = Mapping[str, Mapping[str, np.ndarray]]
"""Uncertainty by method and region, one value per seed."""


def separation(values: np.ndarray, regions: Mapping[str, np.ndarray]) -> float:
    """Return the probability that an unseen point is less certain than a seen one, ties counting one half."""
    from scipy.stats import mannwhitneyu

    unseen, seen = values[regions["unseen"]], values[regions["seen"]]
    return float(mannwhitneyu(unseen, seen).statistic) / (len(unseen) * len(seen))


def by_region(
    uncertainty: Mapping[str, np.ndarray],
    regions: Mapping[str, np.ndarray],
    summary: Callable[[np.ndarray], Any] = np.median,
) -> dict[str, dict[str, float]]:
    """Return the uncertainty of every method in every region, and the separation under `AUC`.

    The median stands for a region: a point near a pole of a mode can dominate a mean.
    """
    return {
        method: {region: float(summary(values[mask])) for region, mask in regions.items()}
        | {AUC: separation(values, regions)}
        for method, values in uncertainty.items()
    }


def gather(found: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, np.ndarray]]:
    """Turn [seed][method][region] into [method][region][seed]."""
    return {
        method: {region: np.asarray([one[method][region] for one in found]) for region in regions}
        for method, regions in found[0].items()
    }


def ratios(found: Regions, method: str, region: str) -> np.ndarray:
    """Return the uncertainty in a region over that in the seen one, per seed."""
    return found[method][region] / found[method]["seen"]


def as_text(found: Regions) -> Table:
    """Return medians over the seeds, with the smallest and largest ratio and AUC."""
    regions = [region for region in next(iter(found.values())) if region != AUC]
    others = [region for region in regions if region != "seen"]
    rows = []
    for method, values in found.items():
        row = [method, *(readable(np.median(values[region])) for region in regions)]
        row += [_spread(ratios(found, method, region)) for region in others]
        rows.append([*row, _spread(values[AUC])])
    return Table(["median over seeds", *regions, *(f"{region} / seen" for region in others), AUC], rows)


def readable(value: float) -> str:
    """Return a number with three significant digits and no exponent."""
    rounded = float(f"{float(value):.3g}")
    if rounded == 0 or not np.isfinite(rounded):
        return f"{rounded:g}"
    digits = max(0, 2 - int(np.floor(np.log10(abs(rounded)))))
    return f"{rounded:.{digits}f}"


def _spread(values: np.ndarray) -> str:
    return f"{readable(np.median(values))} [{readable(values.min())}, {readable(values.max())}]"
