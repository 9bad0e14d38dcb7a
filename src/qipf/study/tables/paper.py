"""The numbers of the paper's tables, with the order and the names that they have there."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple


class Value(NamedTuple):
    """A mean and a standard deviation over `size` intensities; the paper does not say how many."""

    mean: float
    std: float
    size: int | None = None

    def __str__(self) -> str:
        """`0.75 ± 0.07`, or `0.75` where there is no spread to tell."""
        spread = self.std > 0 or (self.size or 0) > 1
        return f"{self.mean:.2f}" + (f" ± {self.std:.2f}" if spread else "")


class Case(NamedTuple):
    """One row of the paper's tables."""

    shift: str
    dataset: str
    net: str


PAIRS = {
    ("mnist", "lenet"): "MNIST",
    ("kmnist", "lenet"): "K-MNIST",
    ("cifar10", "vgg3"): "CIFAR-10 (VGG-3)",
    ("cifar10", "resnet18"): "CIFAR-10 (RESNET-18)",
}
"""The paper's datasets and networks in its order, with the headings of its rows."""

NETS = {"lenet": "LeNet", "vgg3": "VGG-3", "resnet18": "ResNet-18"}

SHIFTS = ("rotation", "brightness", "shear", "zoom", "shift")

METRICS = {
    "roc_auc": "roc_auc",
    "pr_auc": "pr_auc",
    "pr_auc_trapezoid": "pr_auc",
    "ece_paper": "ece",
    "ece_proper": "ece",
    "brier_paper": "brier",
    "brier_proper": "brier",
    "point_biserial": "point_biserial",
    "spearman": "spearman",
}
"""Our metrics that have a counterpart in the paper, and its name in the file of the paper's numbers."""

TIMES = {
    ("lenet", "mc-dropout"): 3.84,
    ("lenet", "mc-dropout-ll"): 3.55,
    ("lenet", "qipf"): 0.64,
    ("vgg3", "mc-dropout"): 30.03,
    ("vgg3", "mc-dropout-ll"): 25.75,
    ("vgg3", "qipf"): 0.88,
    ("resnet18", "mc-dropout"): 51.33,
    ("resnet18", "mc-dropout-ll"): 39.72,
    ("resnet18", "qipf"): 1.86,
}
"""Table 3: milliseconds for one test sample, by network and method."""


@cache
def values(metric: str) -> Mapping[tuple[Case, str], Value]:
    """The paper's numbers for one of our metrics, by case and method; empty where it has none."""
    name = METRICS.get(metric)
    return {(case, method): value for (case, method, own), value in _table().items() if own == name}


def pair_title(dataset: str, net: str) -> str:
    """A pair of dataset and network in words, for the paper's pairs as the paper writes them."""
    return PAIRS.get((dataset, net), f"{dataset} ({net})")


def case_order(case: Case) -> tuple[object, ...]:
    """A sort key: the paper's order first, then by name."""
    shifts, pairs = list(SHIFTS), list(PAIRS)
    pair = (case.dataset, case.net)
    return (
        shifts.index(case.shift) if case.shift in shifts else len(shifts),
        case.shift,
        pairs.index(pair) if pair in pairs else len(pairs),
        pair,
    )


@cache
def _table() -> dict[tuple[Case, str, str], Value]:
    text = resources.files("qipf.study.tables").joinpath("paper_tables.csv").read_text(encoding="utf-8")
    return {
        (Case(row["shift"], row["dataset"], row["model"]), row["method"], row["metric"]): Value(
            float(row["mean"]), float(row["std"])
        )
        for row in csv.DictReader(text.splitlines())
    }
