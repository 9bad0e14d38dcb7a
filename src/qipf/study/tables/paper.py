"""The numbers in the paper's tables, and the order and names of their rows."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple


class Value(NamedTuple):
    """Mean and standard deviation over `size` values (None if unknown)."""

    mean: float
    std: float
    size: int | None = None

    def __str__(self) -> str:
        """Return `0.75 ± 0.07`, or `0.75` if the standard deviation is 0 and `size` is not above 1."""
        spread = self.std > 0 or (self.size or 0) > 1
        return f"{self.mean:.2f}" + (f" ± {self.std:.2f}" if spread else "")


class Case(NamedTuple):
    """One shift on one pair of dataset and network."""

    shift: str
    dataset: str
    net: str


PAIRS = {
    ("mnist", "lenet"): "MNIST",
    ("kmnist", "lenet"): "K-MNIST",
    ("cifar10", "vgg3"): "CIFAR-10 (VGG-3)",
    ("cifar10", "resnet18"): "CIFAR-10 (RESNET-18)",
}
"""Headings of the paper's pairs of dataset and network, in the paper's order."""

METHODS = ("mc-dropout", "mc-dropout-ll", "svi", "svi-ll", "ensemble", "qipf")

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
"""Our metrics that have a counterpart in the paper, mapped to the name of the counterpart in paper_tables.csv."""

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
"""Table 3 of the paper: milliseconds per test sample, keyed by network and method."""


@cache
def values(metric: str) -> Mapping[tuple[Case, str], Value]:
    """Return the paper's numbers for a metric, keyed by case and method."""
    name = METRICS.get(metric)
    return {(case, method): value for (case, method, own), value in _table().items() if own == name}


def pair_title(dataset: str, net: str) -> str:
    """Return the title of a pair of dataset and network."""
    return PAIRS.get((dataset, net), f"{dataset} ({net})")


def case_order(case: Case) -> tuple[object, ...]:
    """Return a sort key: first the paper's order, then the name."""
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
