"""The authors' own networks (benchmarks/authors_networks.py), and what benchmarks/small_claims.py computes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from evidence.results import NOTHING, SHIFTS, Results, markdown, number, short
from qipf.study.tables import paper

MISSING = "*Not measured yet: run benchmarks/authors_networks.py and benchmarks/small_claims.py.*"
DATASETS = {"mnist": "MNIST", "kmnist": "K-MNIST"}
SCORES = {
    "mc-dropout (std_mean_class)": "mc-dropout", "mc-dropout (entropy)": "",
    "mc-dropout-ll (std_mean_class)": "mc-dropout-ll",
    "mc-dropout-ll (entropy)": "", "svi-ll (max_logit_one_pass)": "svi-ll", "svi-ll": "", "svi-ll (entropy)": "",
    "ensemble (std_mean_class)": "ensemble", "ensemble": "", "ensemble (entropy)": "", "qipf-published": "qipf",
    "qipf-160": "", "max-logit": "", "softmax-response": "", "entropy": "",
}  # fmt: skip
"""The scores, and the paper's method that is computed so in the authors' program."""
HISTOGRAMS = (
    "mc-dropout (std_mean_class)", "mc-dropout-ll (std_mean_class)", "svi-ll (max_logit_one_pass)",
    "ensemble (std_mean_class)", "qipf-published", "max-logit",
)  # fmt: skip
PREDICTIONS = {
    "base network": "base network, QIPF",
    "mc-dropout": "MC dropout", "mc-dropout-ll": "MC dropout LL",
    "svi-ll": "SVI-LL", "ensemble": "ensemble",
}  # fmt: skip
IN_PAPER = {"base network": "qipf", "mc-dropout": "mc-dropout", "mc-dropout-ll": "mc-dropout-ll", "svi-ll": "svi-ll"}


def facts_of(results: Results) -> dict[str, Any] | None:
    """What was found out about each dataset's networks; None where one of them is missing."""
    found = {dataset: results.json(f"authors/{dataset}.json") for dataset in DATASETS}
    return None if None in found.values() else found


def scores(results: Results, metric: str = "roc_auc") -> str:
    """Mean over shifts and intensities on the authors' networks, next to the paper's rows."""
    if facts_of(results) is None:
        return MISSING
    rows = []
    for score, method in SCORES.items():
        found = [(number(mean(results, name, score, metric)), _theirs(name, method, metric)) for name in DATASETS]
        rows.append([short(score), *(text for both in found for text in both)])
    heads = [text for name in DATASETS.values() for text in (f"{name} here", f"{name} paper")]
    return markdown([f"{'ROC' if metric == 'roc_auc' else 'PR'}-AUC, the authors' networks", *heads], rows)


BENCH = {
    ("default", "score"): "qipf.default (the probe)",
    ("mc-dropout", "contrast"): "MC dropout, contrast",
    ("mc-dropout", "entropy"): "MC dropout, entropy",
    ("max-logit", "score"): "max logit",
    ("entropy", "score"): "entropy",
    ("qipf-published", "score"): "QIPF, authors' program",
}
"""Methods and scores of the plan results/authors/bench.toml."""


def bench(results: Results) -> str:
    """What `qipf bench` found on the authors' networks: means over shifts and intensities."""
    table = pd.read_csv(results.folder / "authors" / "bench.csv")
    table = table[table["severity"] > 0]
    means = table.groupby(["dataset", "method", "score", "metric"])["value"].mean()
    rows = [
        [words, *(" / ".join(number(means[name, *key, m]) for m in ("roc_auc", "pr_auc")) for name in DATASETS)]
        for key, words in BENCH.items()
    ]
    return markdown(["ROC-AUC / PR-AUC, `qipf bench`", *DATASETS.values()], rows)


def one(results: Results, dataset: str, score: str) -> str:
    """The mean ROC-AUC of one score on one of the authors' networks."""
    return NOTHING if facts_of(results) is None else number(mean(results, dataset, score))


def by_shift(results: Results) -> str:
    """SVI-LL as the authors score it, and their QIPF, shift by shift."""
    if facts_of(results) is None:
        return MISSING
    chosen = {
        "svi-ll (max_logit_one_pass)": "svi-ll",
        "qipf-published": "qipf",
        "ensemble (std_mean_class)": "ensemble",
    }
    rows = []
    for dataset, title in DATASETS.items():
        table = _table(results, dataset).groupby(["score", "shift"])["roc_auc"].mean()
        for score, method in chosen.items():
            theirs = paper.values("roc_auc")
            cells = []
            for shift in SHIFTS:
                value = theirs.get((paper.Case(shift, dataset, "lenet"), method))
                own = number(float(table.get((score, shift), np.nan)), 2)
                cells.append(f"{own} ({number(value.mean, 2)})" if value else own)
            rows.append([f"{title}, {short(score)}", *cells])
    return markdown(["here (paper)", *SHIFTS], rows)


def calibration(results: Results) -> str:
    """ECE and Brier score with the predicted probability as confidence, each method's own prediction."""
    facts = facts_of(results)
    if facts is None:
        return MISSING
    rows = []
    for key, name in PREDICTIONS.items():
        cells = []
        for dataset in DATASETS:
            found = facts[dataset]["calibration"][key]
            for metric, ours in (("ece_paper", "ece"), ("brier_paper", "brier")):
                theirs = _theirs(dataset, IN_PAPER.get(key, key), metric)
                cells.append(f"{number(found[ours])} ({theirs})")
        rows.append([name, *cells])
    heads = [f"{title} {what}" for title in DATASETS.values() for what in ("ECE", "Brier")]
    return markdown(["here (paper), lower is better", *heads], rows)


def fewer(results: Results) -> str:
    """ROC-AUC with fewer passes or members."""
    facts = facts_of(results)
    if facts is None:
        return MISSING
    rows = []
    for key in facts["mnist"]["passes"]:
        method, count, statistic = key.split(", ")
        unit = "members" if method == "ensemble" else "passes"
        cells = [number(facts[dataset]["passes"][key]) for dataset in DATASETS]
        rows.append([f"{'ensemble' if method == 'ensemble' else 'MC dropout'}, {count} {unit}, {statistic}", *cells])
    return markdown(["ROC-AUC, the authors' networks", *DATASETS.values()], rows)


def images(results: Results) -> str:
    """The standard error of a difference in ROC-AUC to the authors' QIPF, when images are drawn again."""
    facts = facts_of(results)
    if facts is None:
        return MISSING
    chosen = ("mc-dropout", "mc-dropout-ll", "svi-ll", "ensemble", "ensemble (entropy)", "entropy", "max-logit")
    rows = [[short(key), *(number(facts[d]["image standard error"][key], 4) for d in DATASETS)] for key in chosen]
    return markdown([f"authors' QIPF less, {facts['mnist']['images']:,} images", *DATASETS.values()], rows)


def largest_image_error(results: Results) -> str:
    """The largest of these standard errors, scaled to the 10,000 images of the study."""
    facts = facts_of(results)
    if facts is None:
        return NOTHING
    worst = max(max(facts[d]["image standard error"].values()) for d in DATASETS)
    return f"{worst * (facts['mnist']['images'] / 10_000) ** 0.5:.4f}"


def histograms(results: Results) -> str:
    """Fig. 4 a: the histograms of right and wrong predictions of MNIST turned by 270 degrees."""
    facts = facts_of(results)
    if facts is None:
        return MISSING
    rows = []
    for key in HISTOGRAMS:
        found = facts["mnist"]["overlap"][key]
        rows.append([short(key), number(found["overlap"], 2), f"{found['distance']:+.2f}", number(found["roc_auc"])])
    return markdown(["MNIST, rotation by 270 degrees", "overlap", "modes apart (std)", "ROC-AUC"], rows)


def modes(results: Results) -> str:
    """The medians of the modes of orders 2, 4, 6 and 8, over clean test images and in the regression example."""
    facts, small = facts_of(results), results.json("paper/small-claims.json")
    if facts is None or small is None:
        return MISSING
    names = {"qipf-published": "program, factor 80", "qipf-80": "exact, factor 80", "qipf-160": "exact, factor 160"}
    rows = [
        [f"{title} LeNet, {name}", *(f"{value:.3g}" for value in facts[dataset]["modes"][key])]
        for dataset, title in DATASETS.items()
        for key, name in names.items()
    ]
    for name, places in small["modes"].items():
        ratio = np.median(np.array(places["unseen"]) / np.array(places["seen"]), axis=0)
        rows.append([f"regression, {name}, unseen / seen", *(f"{value:.3g}" for value in ratio)])
    return markdown(["median of the mode of order", "2", "4", "6", "8"], rows)


def bands(results: Results) -> str:
    """The regression example: outside the seen regions, and whether bands are wide where errors are large."""
    small = results.json("paper/small-claims.json")
    if small is None:
        return MISSING
    keys = ("outside / seen", "rank correlation with the error, seen")
    rows = [[name, *(_spread(values[key]) for key in keys)] for name, values in small["bands"].items()]
    return markdown(["half band, five seeds", "outer regions / seen", "rank correlation with the error, seen"], rows)


def mean(results: Results, dataset: str, score: str, metric: str = "roc_auc") -> float:
    """The mean over shifts of the mean over intensities."""
    own = _table(results, dataset)
    own = own[own["score"] == score]
    return float(own.groupby("shift")[metric].mean().mean())


@cache
def _table(results: Results, dataset: str) -> pd.DataFrame:
    rows = pd.read_csv(results.folder / "authors" / f"{dataset}.csv")
    return rows[rows["shift"] != "clean"]


def _theirs(dataset: str, method: str, metric: str) -> str:
    """The paper's mean over the shifts that its table has."""
    values = [v.mean for (case, m), v in paper.values(metric).items() if m == method and case[1:] == (dataset, "lenet")]
    return number(float(np.mean(values)), 2) if values else NOTHING


def _spread(values: list[float]) -> str:
    return f"{np.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"
