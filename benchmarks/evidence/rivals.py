"""The methods of several passes as they were measured again: every statistic, and their calibration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evidence.judging import FAILS, HOLDS, WORDS, Found
from evidence.results import NOTHING, Results, markdown, number
from qipf.study.plan.registry import column
from qipf.study.tables.paired import SMALLEST

AGAIN = {
    ("mnist", "lenet"): "MNIST", ("kmnist", "lenet"): "K-MNIST", ("cifar10", "vgg3"): "VGG-3",
    ("cifar10", "resnet18"): "ResNet-18",
}  # fmt: skip
"""The pairs that were measured again, and their names in the tables."""
METHODS = {
    "mc-dropout": "MC dropout", "mc-dropout-ll": "MC dropout LL",
    "mc-dropout-ll-authors": "MC dropout LL, their layer", "svi": "SVI",
    "svi-authors": "SVI, their training", "svi-ll": "SVI-LL", "svi-ll-authors": "SVI-LL, their training",
    "swag": "SWAG", "sgd-iterates": "SGD iterates", "ensemble": "ensemble",
}  # fmt: skip
STATISTICS = {
    "std": "std", "std_mean_class": "std, own class", "entropy": "entropy", "contrast": "contrast",
    "mutual_information": "mutual inf.", "max_logit_one_pass": "one pass",
}  # fmt: skip
MISSING = "*Not measured yet.*"
TRIAL = {"seeds": (0, 1, 2), "severities": (2, 5, 8)}
"""The networks and severities of the trial of dropout rates."""
PLANS = {"mnist": ("mnist", "lenet"), "kmnist": ("kmnist", "lenet"), "cifar10-vgg3": ("cifar10", "vgg3")}
RATES_FILE = "paper/dropout-rates.json"
DROPPING = {"mc-dropout": "every layer", "mc-dropout-ll": "before the last"}
PLAN_NAMES = {"mnist": "MNIST", "kmnist": "K-MNIST", "cifar10-vgg3": "VGG-3"}
PAPER_RATES = {
    "mc-dropout": {"mnist": 0.1, "kmnist": 0.1, "cifar10-vgg3": 0.2},
    "mc-dropout-ll": dict.fromkeys(PLAN_NAMES, 0.2),
}
"""The rates that the paper's appendix F.2 calls the best."""


def statistics(results: Results) -> str:
    """ROC-AUC under shift by every statistic, the best of each method in bold: LeNets, then CIFAR-10."""
    return "\n\n".join(_statistics(results, pairs) for pairs in (list(AGAIN)[:2], list(AGAIN)[2:]))


def _statistics(results: Results, pairs: list[tuple[str, str]]) -> str:
    rows = []
    for method, name in METHODS.items():
        values = np.array([[results.mean("roc_auc", column(method, one), p) for p in pairs] for one in STATISTICS])
        values = np.round(values, 3)
        best = np.nanmax(values, axis=0, initial=-np.inf)
        rows.append([name, *(_cell(line, best) for line in values)])
    return markdown([" / ".join(AGAIN[pair] for pair in pairs), *STATISTICS.values()], rows)


def _cell(values: np.ndarray, best: np.ndarray) -> str:
    if not np.isfinite(values).any():
        return NOTHING
    return " / ".join(number(value, bold=bool(value == high)) for value, high in zip(values, best, strict=True))


def calibration(results: Results) -> str:
    """Conventional ECE and Brier score under shift, each method's own prediction: LeNets, then CIFAR-10."""
    found = results.rows
    found = found[found["metric"].isin(["ece_confidence", "brier_confidence"]) & (found["severity"] > 0)]
    by_network = found.groupby(["method", "dataset", "net", "metric", "shift", "seed"])["value"].mean()
    values = by_network.groupby(["method", "dataset", "net", "metric"]).mean()
    if not len(values):
        return MISSING
    tables = []
    for pairs in (list(AGAIN)[:2], list(AGAIN)[2:]):
        columns = [(pair, metric) for pair in pairs for metric in ("ece_confidence", "brier_confidence")]
        rows = [
            [name, *(number(values.get((method, *pair, metric), np.nan)) for pair, metric in columns)]
            for method, name in {"entropy": "one network, and QIPF", **METHODS}.items()
        ]
        heads = [f"{AGAIN[pair]} {what}" for pair in pairs for what in ("ECE", "Brier")]
        tables.append(markdown(["our networks, lower is better", *heads], rows))
    return "\n\n".join(tables)


def own_accuracy(results: Results, method: str, dataset: str, net: str) -> str:
    """The accuracy of a method's own predictions on clean images."""
    rows = results.rows
    rows = rows[(rows["method"] == method) & (rows["dataset"] == dataset) & (rows["net"] == net)]
    rows = rows[rows["shift"] == "clean"]
    return f"{100 * rows[(rows['metric'] == 'accuracy') & (rows['errors'] == 'own')]['value'].mean():.1f} %"


def rates(results: Results) -> str:
    """ROC-AUC of MC dropout's standard deviation by rate, means over networks, the paper's rate in bold."""
    found = results.json(RATES_FILE)
    if found is None:
        return MISSING
    rows = []
    for kind, words in DROPPING.items():
        for pair, values in found["roc_auc"].items():
            own = [float(np.mean(values[kind][f"{rate:g}"])) for rate in found["rates"]]
            cells = [
                number(v, bold=rate == PAPER_RATES[kind][pair]) for rate, v in zip(found["rates"], own, strict=True)
            ]
            rows.append([f"{words}, {PLAN_NAMES[pair]}", *cells])
    return markdown(["ROC-AUC by dropout rate", *(f"{rate:g}" for rate in found["rates"])], rows)


def at_best_rate(results: Results, plan: str) -> str:
    """What the best rate would make of MC dropout's deviation in the study, and what the authors' QIPF has there.

    The study's numbers are those of the networks and severities of the trial of rates, on all of its own images.
    """
    values = {
        rate: float(np.mean(own)) for rate, own in results.json(RATES_FILE)["roc_auc"][plan]["mc-dropout"].items()
    }
    gain = max(values.values()) - values[f"{PAPER_RATES['mc-dropout'][plan]:g}"]
    rows = results.under_shift("roc_auc")
    dataset, net = PLANS[plan]
    rows = rows[(rows["dataset"] == dataset) & (rows["net"] == net)]
    rows = rows[rows["seed"].isin(TRIAL["seeds"]) & rows["severity"].isin(TRIAL["severities"])]
    means = rows.groupby("column")["value"].mean()
    deviation = float(means["mc-dropout"])
    return f"{number(deviation)} to {number(deviation + gain)} (QIPF {number(float(means['qipf-published']))})"


def best_rates(kind: str) -> Callable[[Results], Found]:
    """Whether the paper's rate is the best of those that were tried, or nearly so, on every pair."""

    def found(results: Results) -> Found:
        facts = results.json(RATES_FILE)
        if facts is None:
            return WORDS["not measured"], ""
        behind = []
        for pair, values in facts["roc_auc"].items():
            means = {float(rate): float(np.mean(own)) for rate, own in values[kind].items()}
            behind.append(max(means.values()) - means[PAPER_RATES[kind][pair]])
        sizes = ", ".join(number(size) for size in behind)
        return (HOLDS if max(behind) < SMALLEST else FAILS), f"behind the best by {sizes}; not ResNet-18"

    return found
