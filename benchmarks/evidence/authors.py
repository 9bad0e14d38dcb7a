"""Results on the authors' own networks, and small computations for single claims."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from evidence.marks import table, value
from evidence.results import NOTHING, SHIFTS, Results, grid, markdown, number, short, slashed
from qipf.study.tables import paper

DATASETS = {"mnist": "MNIST", "kmnist": "K-MNIST"}
SCORES = {
    "mc-dropout (std_mean_class)": "mc-dropout", "mc-dropout (entropy)": "",
    "mc-dropout-ll (std_mean_class)": "mc-dropout-ll",
    "mc-dropout-ll (entropy)": "", "svi-ll (max_logit_one_pass)": "svi-ll", "svi-ll": "", "svi-ll (entropy)": "",
    "ensemble (std_mean_class)": "ensemble", "ensemble": "", "ensemble (entropy)": "", "qipf-published": "qipf",
    "qipf-160": "", "max-logit": "", "softmax-response": "", "entropy": "",
}  # fmt: skip
"""The scores, each with the method of the paper for which the authors' program uses it."""
HISTOGRAMS = (
    "mc-dropout (std_mean_class)", "mc-dropout-ll (std_mean_class)", "svi-ll (max_logit_one_pass)",
    "ensemble (std_mean_class)", "qipf-published", "max-logit",
)  # fmt: skip
PREDICTIONS = {
    "base network": ("base network, QIPF", "qipf"), "mc-dropout": ("MC dropout", "mc-dropout"),
    "mc-dropout-ll": ("MC dropout LL", "mc-dropout-ll"), "svi-ll": ("SVI-LL", "svi-ll"),
    "ensemble": ("ensemble", "ensemble"),
}  # fmt: skip
"""Sources of predictions, each with its title and the corresponding method of the paper."""
BENCH = {
    ("default", "score"): "qipf.default (the probe)",
    ("mc-dropout", "contrast"): "MC dropout, contrast",
    ("mc-dropout", "entropy"): "MC dropout, entropy",
    ("max-logit", "score"): "max logit",
    ("entropy", "score"): "entropy",
    ("qipf-published", "score"): "QIPF, authors' program",
}
"""Titles of the methods and scores in the plan results/authors/bench.toml."""
MODES = {"qipf-published": "program, factor 80", "qipf-80": "exact, factor 80", "qipf-160": "exact, factor 160"}
SMALL = "paper/small-claims.json"


def facts_of(results: Results) -> dict[str, Any]:
    """Return the measurements by dataset."""
    return {dataset: results.json(f"authors/{dataset}.json") for dataset in DATASETS}


@table("authors-{metric}", metric=("roc_auc", "pr_auc"))
def scores(results: Results, metric: str) -> str:
    """Return means on the authors' networks, with the paper's numbers."""
    rows = []
    for score, method in SCORES.items():
        found = [(number(mean(results, name, score, metric)), _theirs(name, method, metric)) for name in DATASETS]
        rows.append([short(score), *(text for both in found for text in both)])
    heads = [text for name in DATASETS.values() for text in (f"{name} here", f"{name} paper")]
    return markdown([f"{'ROC' if metric == 'roc_auc' else 'PR'}-AUC, the authors' networks", *heads], rows)


@table("authors-bench")
def bench(results: Results) -> str:
    """Return means measured by `qipf bench`."""
    rows = pd.read_csv(results.folder / "authors" / "bench.csv")
    means = rows[rows["severity"] > 0].groupby(["dataset", "method", "score", "metric"])["value"].mean()
    return grid(
        "ROC-AUC / PR-AUC, `qipf bench`",
        BENCH,
        DATASETS,
        lambda key, name: slashed(means[name, *key, metric] for metric in ("roc_auc", "pr_auc")),
    )


@table("authors-by-shift")
def by_shift(results: Results) -> str:
    """Return the ROC-AUC of the authors' scores by shift."""
    theirs, rows = paper.values("roc_auc"), []
    for dataset, title in DATASETS.items():
        found = _table(results, dataset).groupby(["score", "shift"])["roc_auc"].mean()
        for score in ("svi-ll (max_logit_one_pass)", "qipf-published", "ensemble (std_mean_class)"):
            cells = []
            for shift in SHIFTS:
                printed = theirs.get((paper.Case(shift, dataset, "lenet"), SCORES[score]))
                own = number(float(found.get((score, shift), np.nan)), 2)
                cells.append(f"{own} ({number(printed.mean, 2)})" if printed else own)
            rows.append([f"{title}, {short(score)}", *cells])
    return markdown(["here (paper)", *SHIFTS], rows)


@table("authors-calibration")
def calibration(results: Results) -> str:
    """Return ECE and Brier score of each method's own predictions."""
    facts, metrics = facts_of(results), {"ece": "ECE", "brier": "Brier"}

    def cell(who: str, place: tuple[str, str]) -> str:
        dataset, metric = place
        own = facts[dataset]["calibration"][who][metric]
        return f"{number(own)} ({_theirs(dataset, PREDICTIONS[who][1], f'{metric}_paper')})"

    heads = {(name, metric): f"{words} {what}" for name, words in DATASETS.items() for metric, what in metrics.items()}
    return grid("here (paper), lower is better", {key: words for key, (words, _) in PREDICTIONS.items()}, heads, cell)


@table("fewer-passes")
def fewer(results: Results) -> str:
    """Return the ROC-AUC with fewer passes or members."""
    facts, names = facts_of(results), {}
    for key in facts["mnist"]["passes"]:
        method, count, statistic = key.split(", ")
        of = "ensemble, {} members" if method == "ensemble" else "MC dropout, {} passes"
        names[key] = f"{of.format(count)}, {statistic}"
    corner = "ROC-AUC, the authors' networks"
    return grid(corner, names, DATASETS, lambda key, name: number(facts[name]["passes"][key]))


@table("image-errors")
def images(results: Results) -> str:
    """Return standard errors over images."""
    facts = facts_of(results)
    shown = ("mc-dropout", "mc-dropout-ll", "svi-ll", "ensemble", "ensemble (entropy)", "entropy", "max-logit")
    return grid(
        f"authors' QIPF minus, {facts['mnist']['images']:,} images",
        {key: short(key) for key in shown},
        DATASETS,
        lambda key, name: number(facts[name]["image standard error"][key], 4),
    )


@value("image-error")
def largest_image_error(results: Results) -> str:
    """Return the largest standard error, scaled to the images of the study."""
    facts = facts_of(results)
    worst = max(max(facts[d]["image standard error"].values()) for d in DATASETS)
    return f"{worst * (facts['mnist']['images'] / 10_000) ** 0.5:.4f}"


@table("histograms")
def histograms(results: Results) -> str:
    """Return the overlap of histograms of correct and wrong predictions (Fig. 4 a)."""
    rows = []
    for key in HISTOGRAMS:
        found = facts_of(results)["mnist"]["overlap"][key]
        rows.append([short(key), number(found["overlap"], 2), f"{found['distance']:+.2f}", number(found["roc_auc"])])
    return markdown(["MNIST, rotation by 270 degrees", "overlap", "distance of modes (std)", "ROC-AUC"], rows)


@table("modes")
def modes(results: Results) -> str:
    """Return the medians of the modes."""
    facts = facts_of(results)
    values = {
        f"{title} LeNet, {name}": facts[dataset]["modes"][key]
        for dataset, title in DATASETS.items()
        for key, name in MODES.items()
    }
    for name, places in results.json(SMALL, "modes").items():
        ratio = np.median(np.array(places["unseen"]) / np.array(places["seen"]), axis=0)
        values[f"regression, {name}, unseen / seen"] = ratio
    rows = [[name, *(f"{value:.3g}" for value in line)] for name, line in values.items()]
    return markdown(["median of the mode of order", "2", "4", "6", "8"], rows)


@table("bands")
def bands(results: Results) -> str:
    """Return widths and correlations of the bands in the regression example."""
    keys = {"outside / seen": "outer regions / seen"}
    keys["rank correlation with the error, seen"] = "rank correlation with the error, seen"
    found = results.json(SMALL, "bands")
    names = dict(zip(found, found, strict=True))
    return grid("half band, five seeds", names, keys, lambda name, key: spread(found[name][key]))


@value("authors")
def one(results: Results, dataset: str, score: str) -> str:
    """Return the mean ROC-AUC of a score."""
    return number(mean(results, dataset, score))


def mean(results: Results, dataset: str, score: str, metric: str = "roc_auc") -> float:
    """Return the mean over intensities, then over shifts."""
    own = _table(results, dataset)
    return float(own[own["score"] == score].groupby("shift")[metric].mean().mean())


@cache
def _table(results: Results, dataset: str) -> pd.DataFrame:
    rows = pd.read_csv(results.folder / "authors" / f"{dataset}.csv")
    return rows[rows["shift"] != "clean"]


def _theirs(dataset: str, method: str, metric: str) -> str:
    """Return the paper's mean over the shifts in its table."""
    values = [v.mean for (case, m), v in paper.values(metric).items() if m == method and case[1:] == (dataset, "lenet")]
    return number(float(np.mean(values)), 2) if values else NOTHING


def spread(values: list[float]) -> str:
    """Return a median with its range."""
    return f"{np.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"
