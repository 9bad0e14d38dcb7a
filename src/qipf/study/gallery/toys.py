"""What the regression and the two-moons figure share: four methods fitted to one small network, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from qipf.models.split import Split
from qipf.predictive import SWAG, MCDropout, Predictive, SGDIterates
from qipf.study import nets
from qipf.study.gallery.plate import Table
from qipf.study.recipes import recipe
from qipf.training import train

PASSES = 100  # of MC dropout, as in the paper
AUC = "AUC"
RATE = 0.1  # of dropout, as in the paper
ITERATES = 30  # of SGD and SWAG


@dataclass(frozen=True)
class Toy:
    """A network and the data it is trained on.

    Attributes:
        net: name of the network.
        data: name of the dataset.
        sgd_rate: constant learning rate at which SGD wanders from the trained network.
        sgd_batch: its batch size.
    """

    net: str
    data: str
    sgd_rate: float
    sgd_batch: int

    def train(self, split: Split, seed: int) -> nn.Module:
        """The trained network that every method but MC dropout starts from."""
        return train(nets.build(self.net, seed=seed), split, seed=seed, progress=False, **self._training)

    def many_pass(self, net: nn.Module, split: Split, seed: int) -> dict[str, Predictive]:
        """SGD iterates, SWAG and MC dropout, fitted; MC dropout trains a network of its own with dropout in place."""
        wander: dict[str, Any] = {"sgd_rate": self.sgd_rate, "batch_size": self.sgd_batch, "iterates": ITERATES}
        dropout = MCDropout(RATE, passes=PASSES, **self._training)
        return {
            "SGD iterates": SGDIterates(**wander).fit(net, split, seed=seed, progress=False),
            "SWAG": SWAG(**wander).fit(net, split, seed=seed, progress=False),
            "MC dropout": dropout.fit(lambda: nets.build(self.net), split, seed=seed, progress=False),
        }

    @property
    def _training(self) -> dict[str, Any]:
        found = recipe(self.net, self.data)
        return {"epochs": found.epochs, "batch_size": found.batch_size, "learning_rate": found.learning_rate}


Means = Mapping[str, Mapping[str, np.ndarray]]
"""Mean uncertainty by method and region, one value a seed."""


def separation(values: np.ndarray, regions: Mapping[str, np.ndarray]) -> float:
    """P(uncertainty at an unseen place > at a seen one), ties counting one half: unlike a mean, no pole decides it."""
    from scipy.stats import mannwhitneyu

    unseen, seen = values[regions["unseen"]], values[regions["seen"]]
    return float(mannwhitneyu(unseen, seen).statistic) / (len(unseen) * len(seen))


def region_means(
    uncertainty: Mapping[str, np.ndarray], regions: Mapping[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """The mean uncertainty of every method in every region (boolean masks), and the separation under `AUC`."""
    return {
        method: {region: float(values[mask].mean()) for region, mask in regions.items()}
        | {AUC: separation(values, regions)}
        for method, values in uncertainty.items()
    }


def gather(found: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, np.ndarray]]:
    """Seeds as arrays: [seed][method][region] -> [method][region][seed]."""
    return {
        method: {region: np.asarray([one[method][region] for one in found]) for region in regions}
        for method, regions in found[0].items()
    }


def ratios(means: Means, method: str, region: str, base: str = "seen") -> np.ndarray:
    """Mean uncertainty in a region over that in the seen one, one value a seed."""
    return means[method][region] / means[method][base]


def as_csv(means: Means) -> Table:
    """One row for each method and seed."""
    regions, others = _regions(means)
    rows = []
    for method, values in means.items():
        for seed in range(len(values["seen"])):
            row = [float(values[region][seed]) for region in regions]
            row += [float(ratios(means, method, region)[seed]) for region in others]
            rows.append([method, seed, *row, float(values[AUC][seed])])
    return Table(["method", "seed", *regions, *(f"{region}/seen" for region in others), AUC], rows)


def as_text(means: Means) -> Table:
    """Medians over the seeds, with the smallest and largest ratio: a mean would be one seed's pole."""
    regions, others = _regions(means)
    rows = []
    for method, values in means.items():
        row = [method, *(f"{np.median(values[region]):.3g}" for region in regions)]
        for region in others:
            ratio = ratios(means, method, region)
            row.append(f"{np.median(ratio):.3g} [{ratio.min():.2g}, {ratio.max():.2g}]")
        rows.append([*row, f"{np.median(values[AUC]):.2f}"])
    return Table(["median over seeds", *regions, *(f"{region} / seen" for region in others), AUC], rows)


def _regions(means: Means) -> tuple[list[str], list[str]]:
    """All regions, and those that are compared with the seen one."""
    regions = [region for region in next(iter(means.values())) if region != AUC]
    return regions, [region for region in regions if region != "seen"]
