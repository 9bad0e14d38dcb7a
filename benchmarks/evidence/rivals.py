"""Multi-pass methods (statistics, calibration, dropout rates), and small experiments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from evidence.marks import table, value
from evidence.results import NETS, NOTHING, SHIFTS, Missing, Results, grid, markdown, number, slashed
from qipf.study.plan.registry import column
from qipf.study.tables.claims import RIVALS

METHODS = {
    "mc-dropout": "MC dropout", "mc-dropout-ll": "MC dropout LL",
    "mc-dropout-ll-authors": "MC dropout LL, authors' layer", "svi": "SVI",
    "svi-authors": "SVI, authors' training", "svi-ll": "SVI-LL", "svi-ll-authors": "SVI-LL, authors' training",
    "swag": "SWAG", "sgd-iterates": "SGD iterates", "ensemble": "ensemble",
}  # fmt: skip
STATISTICS = {
    "std": "std", "std_mean_class": "std, own class", "entropy": "entropy", "contrast": "contrast",
    "mutual_information": "mutual inf.", "max_logit_one_pass": "one pass",
}  # fmt: skip
HALVES = (list(NETS)[:2], list(NETS)[2:])
"""The LeNets and the CIFAR-10 networks, which have separate tables."""
TRIAL = {"seeds": (0, 1, 2), "severities": (2, 5, 8)}
"""The networks and severities of the trial of dropout rates."""
RATES_FILE = "paper/dropout-rates.json"
DROPPING = {"mc-dropout": "every layer", "mc-dropout-ll": "before the last"}
RATED = {"mnist": ("mnist", "lenet"), "kmnist": ("kmnist", "lenet"), "cifar10-vgg3": ("cifar10", "vgg3")}
PAPER_RATES = {
    "mc-dropout": {"mnist": 0.1, "kmnist": 0.1, "cifar10-vgg3": 0.2},
    "mc-dropout-ll": dict.fromkeys(RATED, 0.2),
}
"""The best rates according to appendix F.2 of the paper."""


@table("rivals-statistics")
def statistics(results: Results) -> str:
    """Return the ROC-AUC of every statistic; the best of each method is bold."""
    tables = []
    for pairs in HALVES:
        rows = []
        for method, name in METHODS.items():
            values = np.array([[results.mean("roc_auc", column(method, one), p) for p in pairs] for one in STATISTICS])
            values = np.round(values, 3)
            best = np.nanmax(values, axis=0, initial=-np.inf)
            cells = [slashed(line, best) if np.isfinite(line).any() else NOTHING for line in values]
            rows.append([name, *cells])
        tables.append(markdown([" / ".join(NETS[pair] for pair in pairs), *STATISTICS.values()], rows))
    return "\n\n".join(tables)


@table("rivals-calibration")
def calibration(results: Results) -> str:
    """Return conventional ECE and Brier score."""
    metrics = {"ece_confidence": "ECE", "brier_confidence": "Brier"}
    values = _confidence(results).groupby(["method", "dataset", "net", "metric"]).mean()
    names = {"entropy": "one network, and QIPF", **METHODS}
    tables = []
    for pairs in HALVES:
        heads = {(*pair, metric): f"{NETS[pair]} {words}" for pair in pairs for metric, words in metrics.items()}
        cells: Callable[[str, tuple], str] = lambda method, place: number(values.get((method, *place), np.nan))  # noqa: E731
        tables.append(grid("our networks, lower is better", names, heads, cells))
    return "\n\n".join(tables)


def _confidence(results: Results) -> pd.Series:
    """Return ECE and Brier score of predicted probabilities under shift."""
    found = results.rows
    found = found[found["metric"].isin(["ece_confidence", "brier_confidence"]) & (found["severity"] > 0)]
    return found.groupby(["method", "dataset", "net", "metric", "shift", "seed"])["value"].mean()


def calibrated_best(results: Results, metric: str) -> tuple[int, int]:
    """Count the pairs and shifts in which a single network is best calibrated."""
    means = _confidence(results).groupby(["metric", "dataset", "net", "shift", "method"]).mean()
    found = []
    for pair in NETS:
        for shift in SHIFTS:
            cell = {method: means.get((metric, *pair, shift, method), np.nan) for method in ("entropy", *RIVALS)}
            known = [cell[method] for method in RIVALS if np.isfinite(cell[method])]
            found += [bool(cell["entropy"] < min(known))] if known else []
    if not found:
        raise Missing(metric)
    return sum(found), len(found)


@value("own-accuracy")
def own_accuracy(results: Results, method: str, dataset: str, net: str) -> str:
    """Return the clean accuracy of a method."""
    rows = results.rows
    rows = rows[(rows["method"] == method) & (rows["dataset"] == dataset) & (rows["net"] == net)]
    rows = rows[rows["shift"] == "clean"]
    return f"{100 * rows[(rows['metric'] == 'accuracy') & (rows['errors'] == 'own')]['value'].mean():.1f}%"


def mean_rates(results: Results, kind: str) -> dict[str, dict[float, float]]:
    """Return the mean ROC-AUC of MC dropout by plan and rate."""
    return {
        plan: {float(rate): float(np.mean(own)) for rate, own in values[kind].items()}
        for plan, values in results.json(RATES_FILE, "roc_auc").items()
    }


@table("dropout-rates")
def rates(results: Results) -> str:
    """Return the ROC-AUC of MC dropout by rate; the paper's is bold."""
    tried, rows = results.json(RATES_FILE, "rates"), []
    for kind, words in DROPPING.items():
        for plan, values in mean_rates(results, kind).items():
            cells = [number(values[rate], bold=rate == PAPER_RATES[kind][plan]) for rate in tried]
            rows.append([f"{words}, {NETS[RATED[plan]]}", *cells])
    return markdown(["ROC-AUC by dropout rate", *(f"{rate:g}" for rate in tried)], rows)


@value("best-rate")
def at_best_rate(results: Results, plan: str) -> str:
    """Return the ROC-AUC of MC dropout's deviation, in the study and at the best rate, and that of the authors' QIPF.

    The numbers from the study are for the networks and severities of the trial of rates, but for all images.
    """
    values = mean_rates(results, "mc-dropout")[plan]
    gain = max(values.values()) - values[PAPER_RATES["mc-dropout"][plan]]
    rows = results.rows_of("roc_auc", RATED[plan])
    rows = rows[rows["seed"].isin(TRIAL["seeds"]) & rows["severity"].isin(TRIAL["severities"])]
    means = rows.groupby("column")["value"].mean()
    deviation = float(means["mc-dropout"])
    return f"{number(deviation)} to {number(deviation + gain)} (QIPF {number(float(means['qipf-published']))})"


@table("why-one-number")
def one_number(results: Results) -> str:
    """Return QIPF compared with the largest logit."""
    rows = []
    for name, values in results.json("paper/why-one-number.json").items():
        cells = [NOTHING] * 4
        if "won" in values:
            cells = [f"{100 * values[key]:.1f}%" for key in ("won", "lost", "rising side")]
            cells.append(number(values["stopped"]))
        correlations = [number(values[key]) for key in ("spearman", "point_biserial")]
        rows.append([name, number(values["roc_auc"]), *cells, *correlations])
    return markdown(["MNIST LeNet", "ROC-AUC", "won", "lost", "rising", "stopped", "Spearman", "pt-bis."], rows)


@table("why-reliability")
def reliability(results: Results) -> str:
    """Return the effect of the rising modes on calibration."""
    found, keys = results.json("paper/why-one-number.json"), ("reliability", "reliability, stopped")
    rows = [[name, *(number(values.get(key, np.nan)) for key in keys)] for name, values in found.items()]
    return markdown(["MNIST LeNet (lower is better)", *keys], rows)


@table("why-calibration")
def scales(results: Results) -> str:
    """Return the calibration of one ranking on several scales."""
    metrics = {
        "roc_auc": "ROC-AUC", "ece_paper": "ECE m", "brier_paper": "Brier m", "ece_proper": "ECE i",
        "brier_proper": "Brier i", "spearman": "Spearman", "point_biserial": "pt-bis.",
    }  # fmt: skip
    found = results.json("paper/why-calibration.json")
    names = dict(zip(found, found, strict=True))
    return grid("softmax response", names, metrics, lambda name, metric: number(found[name][metric]))


@table("why-spread")
def spread(results: Results) -> str:
    """Return ranks by the standard deviation and the entropy of an ensemble."""
    rows = []
    for name, values in results.json("paper/why-spread.json").items():
        if name == "roc_auc":
            areas = [f"ROC-AUC {number(values[key])}" for key in ("std", "entropy")]
            rows.append(["all", NOTHING, NOTHING, *areas])
        else:
            rows.append([name, *(f"{100 * values[key]:.0f}%" for key in ("share", "error rate", "std", "entropy"))])
    heads = ["ensemble of 5, MNIST LeNet", "predictions", "base network wrong", "mean rank by std", "by entropy"]
    return markdown(heads, rows)
