"""The paper's tables and curves cell by cell: ours next to theirs, every intensity, and cells of equal error rates."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from evidence.results import NOTHING, SHIFTS, Results, markdown, number
from qipf.study.tables import paper
from qipf.study.tables.claims import RIVALS
from qipf.study.tables.paired import sign
from qipf.study.tables.paper import Case

SHORT = {
    "mc-dropout": "MC drop", "mc-dropout-ll": "MC drop LL", "svi": "SVI", "svi-ll": "SVI-LL", "ensemble": "ensemble",
    "qipf": "QIPF exact", "qipf-published": "QIPF program",
}  # fmt: skip
"""The paper's methods in few letters, and its QIPF twice."""
NETS = {
    ("mnist", "lenet"): "MNIST", ("kmnist", "lenet"): "K-MNIST", ("cifar10", "vgg3"): "VGG-3",
    ("cifar10", "resnet18"): "ResNet-18",
}  # fmt: skip
CURVES = (
    (("mnist", "lenet"), "rotation", "Fig. 4 d-g"),
    (("kmnist", "lenet"), "rotation", "appendix G.1"),
    (("kmnist", "lenet"), "shear", "appendix G.1"),
    (("kmnist", "lenet"), "zoom", "appendix G.1"),
    (("cifar10", "resnet18"), "rotation", "appendix G.2"),
)
"""The curves over intensities that the paper draws."""
CURVE_METRICS = {"roc_auc": "ROC-AUC", "pr_auc": "PR-AUC", "ece_paper": "ECE min-max", "point_biserial": "point-bis."}
AT_CHANCE = 0.06
"""A ROC-AUC this near to one half is taken as chance; average precision is then about the error rate."""


def by_shift(results: Results, metric: str) -> str:
    """Every cell of one of the paper's tables: our mean over intensities and networks, the paper's in brackets."""
    theirs, ours = paper.values(metric), results.means(metric)
    rows = []
    for pair, name in NETS.items():
        for shift in SHIFTS:
            cells = []
            for method in SHORT:
                own = number(ours.get((method, *pair, shift), np.nan), 2)
                value = theirs.get((Case(shift, *pair), "qipf" if method == "qipf-published" else method))
                cells.append(f"{own} ({number(value.mean, 2)})" if value else own)
            rows.append([f"{name} {shift}", *cells])
    return markdown(["here (paper)", *SHORT.values()], rows)


def agreement(results: Results, metric: str = "roc_auc") -> str:
    """In how many cells the paper's number lies within the spread of ours over networks and intensities."""
    theirs = paper.values(metric)
    rows = results.under_shift(metric)
    spread = rows.groupby(["column", "shift", "dataset", "net"])["value"].agg(["min", "max"])
    known = [
        (value.mean, (method, *case)) for (case, method), value in theirs.items() if (method, *case) in spread.index
    ]
    inside = sum(bool(spread.loc[key, "min"] <= mean <= spread.loc[key, "max"]) for mean, key in known)
    return f"{inside} of {len(known)}"


def best_at(results: Results, pair: tuple[str, str], shift: str, metric: str, ours: str) -> tuple[int, int]:
    """At how many intensities a QIPF is the best of the paper's methods, on average over networks; and of how many."""
    levels = _levels(results, pair, shift, metric)
    if ours not in levels or not set(RIVALS) <= set(levels):
        return 0, 0
    levels = sign(metric) * levels
    best = levels[ours] > levels[list(RIVALS)].max(axis=1)
    return int(best.sum()), len(best)


def curves(results: Results) -> str:
    """The curves of Fig. 4 and appendix G: at how many intensities QIPF is best."""
    rows = []
    for pair, shift, figure in CURVES:
        cells = []
        for metric in CURVE_METRICS:
            found = [best_at(results, pair, shift, metric, ours) for ours in ("qipf", "qipf-published")]
            cells.append(f"{found[0][0]} / {found[1][0]} of {found[0][1]}" if found[0][1] else NOTHING)
        rows.append([figure, f"{NETS[pair]} {shift}", *cells])
    return markdown(["figure", "exact / program is best at", *CURVE_METRICS.values()], rows)


def turned(results: Results) -> str:
    """Fig. 4 b and c: MNIST turned by 270 degrees."""
    rows = []
    for method, name in SHORT.items():
        cells = []
        for metric in CURVE_METRICS:
            levels = _levels(results, ("mnist", "lenet"), "rotation", metric)
            cells.append(number(float(levels[method].iloc[-1])) if method in levels else NOTHING)
        rows.append([name, *cells])
    return markdown(["MNIST, rotation by 270 degrees", *CURVE_METRICS.values()], rows)


def error_rates(results: Results) -> str:
    """The error rate that the paper's own numbers reveal, ours, and both at the intensity of ours that matches best."""
    rows = []
    for pair, name in NETS.items():
        for shift in SHIFTS:
            revealed, rates = revealed_rate(Case(shift, *pair)), _rates(results, pair, shift)
            if revealed is None or rates.empty:
                continue
            at = (rates - revealed).abs().idxmin()
            ours = [_gap(results, pair, shift, at, rival) for rival in ("mc-dropout", "ensemble")]
            theirs = [_paper_gap(Case(shift, *pair), rival) for rival in ("mc-dropout", "ensemble")]
            rows.append(
                [f"{name} {shift}", number(revealed, 2), number(float(rates.mean()), 2), number(float(rates[at]), 2)]
                + [f"{_sign(own)} ({_sign(their)})" for own, their in zip(ours, theirs, strict=True)]
            )
    heads = ["", "paper", "here, mean", "matched", "QIPF − MC dropout", "QIPF − ensemble"]
    return markdown(heads, rows)


def matched_summary(results: Results, rival: str) -> str:
    """The mean lead of the authors' QIPF over a rival at matched error rates, in how many cells, and the paper's."""
    ours, theirs = [], []
    for pair in NETS:
        for shift in SHIFTS:
            revealed, rates = revealed_rate(Case(shift, *pair)), _rates(results, pair, shift)
            if revealed is not None and not rates.empty:
                ours.append(_gap(results, pair, shift, (rates - revealed).abs().idxmin(), rival))
                theirs.append(_paper_gap(Case(shift, *pair), rival))
    ahead = sum(value > 0 for value in ours)
    return f"{np.mean(ours):+.3f} (ahead in {ahead} of {len(ours)} cells; the paper {np.mean(theirs):+.3f})"


def revealed_rate(case: Case) -> float | None:
    """The error rate of a cell of the paper: the average precision of a method whose ROC-AUC is at chance."""
    areas, precisions = paper.values("roc_auc"), paper.values("pr_auc")
    near = [
        (abs(areas[case, method].mean - 0.5), precisions[case, method].mean)
        for method in RIVALS
        if (case, method) in areas and abs(areas[case, method].mean - 0.5) <= AT_CHANCE
    ]
    return min(near)[1] if near else None


@cache
def _levels(results: Results, pair: tuple[str, str], shift: str, metric: str) -> pd.DataFrame:
    """By intensity and column: the mean over networks, as it is."""
    rows = results.under_shift(metric)
    own = rows[(rows["dataset"] == pair[0]) & (rows["net"] == pair[1]) & (rows["shift"] == shift)]
    return own.pivot_table(index="severity", columns="column", values="value", aggfunc="mean")


@cache
def _rates(results: Results, pair: tuple[str, str], shift: str) -> pd.Series:
    """By severity: the mean error rate of the base networks."""
    rows = results.under_shift("roc_auc")
    chosen = (rows["dataset"] == pair[0]) & (rows["net"] == pair[1]) & (rows["shift"] == shift)
    own = rows[chosen & (rows["column"] == "qipf-published")]
    return 1 - own.groupby("severity")["accuracy"].mean()


def _gap(results: Results, pair: tuple[str, str], shift: str, severity: int, rival: str) -> float:
    levels = _levels(results, pair, shift, "roc_auc")
    return float(levels.loc[severity, "qipf-published"] - levels.loc[severity, rival])


def _paper_gap(case: Case, rival: str) -> float:
    values = paper.values("roc_auc")
    return values[case, "qipf"].mean - values[case, rival].mean


def _sign(value: float) -> str:
    return f"{value:+.2f}"


def paper_cell(results: Results, metric: str, shift: str, dataset: str, net: str, method: str) -> str:
    """One number of the paper's tables."""
    return number(paper.values(metric)[Case(shift, dataset, net), method].mean, 2)
