"""The methods of several passes as they were measured again on the LeNets: every statistic, and their calibration."""

from __future__ import annotations

import numpy as np

from evidence.authors import DATASETS
from evidence.results import Results, markdown, number
from qipf.study.plan.registry import column

METHODS = {
    "mc-dropout": "MC dropout", "mc-dropout-ll-authors": "MC dropout LL, their layer", "svi": "SVI",
    "svi-authors": "SVI, their training", "svi-ll": "SVI-LL", "svi-ll-authors": "SVI-LL, their training",
    "swag": "SWAG", "sgd-iterates": "SGD iterates", "ensemble": "ensemble",
}  # fmt: skip
STATISTICS = {
    "std": "std", "std_mean_class": "std, own class", "entropy": "entropy", "contrast": "contrast",
    "mutual_information": "mutual inf.", "max_logit_one_pass": "one pass",
}  # fmt: skip
MISSING = "*Not measured yet.*"


def statistics(results: Results) -> str:
    """ROC-AUC under shift by every statistic of every method, MNIST / K-MNIST, the best of each row in bold."""
    rows = []
    for method, name in METHODS.items():
        values = np.array([[_mean(results, column(method, one), d) for d in DATASETS] for one in STATISTICS])
        best = np.nanmax(np.round(values, 3), axis=0, initial=-np.inf)
        cells = [" / ".join(number(v, bold=bool(v == b)) for v, b in zip(np.round(line, 3), best, strict=True))
                 if np.isfinite(line).all() else "–" for line in values]  # fmt: skip
        rows.append([name, *cells])
    known = any(cell != "–" for row in rows for cell in row[4:])
    return markdown(["MNIST / K-MNIST", *STATISTICS.values()], rows) if known else MISSING


def calibration(results: Results) -> str:
    """Conventional ECE and Brier score of our networks under shift, each method's own prediction."""
    rows, found = [], results.rows
    found = found[found["metric"].isin(["ece_confidence", "brier_confidence"]) & (found["severity"] > 0)]
    by_network = found.groupby(["method", "dataset", "metric", "shift", "seed"])["value"].mean()
    values = by_network.groupby(["method", "dataset", "metric"]).mean()
    for method, name in {"entropy": "one network, and QIPF", **METHODS}.items():
        cells = [
            number(values.get((method, dataset, metric), np.nan))
            for dataset in DATASETS
            for metric in ("ece_confidence", "brier_confidence")
        ]
        rows.append([name, *cells])
    heads = [f"{title} {what}" for title in DATASETS.values() for what in ("ECE", "Brier")]
    return markdown(["our networks, lower is better", *heads], rows) if len(values) else MISSING


def _mean(results: Results, name: str, dataset: str) -> float:
    return results.mean("roc_auc", name, (dataset, "lenet"))


def own_accuracy(results: Results, method: str, dataset: str) -> str:
    """The accuracy of a method's own predictions on clean images."""
    rows = results.rows
    rows = rows[(rows["method"] == method) & (rows["dataset"] == dataset) & (rows["shift"] == "clean")]
    return f"{100 * rows[(rows['metric'] == 'accuracy') & (rows['errors'] == 'own')]['value'].mean():.1f} %"
