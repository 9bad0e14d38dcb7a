"""Our results beside the paper's tables and curves, by cell, by intensity and at matched error rates."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from evidence.marks import table, value
from evidence.results import NETS, NOTHING, SHIFTS, Results, grid, markdown, number
from qipf.study.tables import paper
from qipf.study.tables.claims import RIVALS
from qipf.study.tables.paired import sign
from qipf.study.tables.paper import Case

SHORT = {
    "mc-dropout": "MC drop", "mc-dropout-ll": "MC drop LL", "svi": "SVI", "svi-ll": "SVI-LL", "ensemble": "ensemble",
    "qipf": "QIPF exact", "qipf-published": "QIPF program",
}  # fmt: skip
"""Short names of the paper's methods, with the two forms of QIPF."""
CURVES = (
    (("mnist", "lenet"), "rotation", "Fig. 4 d-g"),
    (("kmnist", "lenet"), "rotation", "appendix G.1"),
    (("kmnist", "lenet"), "shear", "appendix G.1"),
    (("kmnist", "lenet"), "zoom", "appendix G.1"),
    (("cifar10", "resnet18"), "rotation", "appendix G.2"),
)
"""The paper's curves over intensities."""
CURVE_METRICS = {"roc_auc": "ROC-AUC", "pr_auc": "PR-AUC", "ece_paper": "ECE min-max", "point_biserial": "point-bis."}
AT_CHANCE = 0.06
"""The maximum distance between 0.5 and a ROC-AUC at chance, for which average precision is about the error rate."""


@table("cells-{metric}", metric=paper.METRICS)
def by_shift(results: Results, metric: str) -> str:
    """Return our mean and, in brackets, the paper's number for every cell of a table."""
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


@value("agreement")
def agreement(results: Results, metric: str) -> str:
    """Return the number of cells with the paper's number within our range."""
    return "{} of {}".format(*within(results, metric))


def within(results: Results, metric: str = "roc_auc") -> tuple[int, int]:
    """Count the cells with the paper's number within our range over networks and intensities."""
    rows = results.under_shift(metric)
    spread = rows.groupby(["column", "shift", "dataset", "net"])["value"].agg(["min", "max"])
    values = {(method, *case): value.mean for (case, method), value in paper.values(metric).items()}
    known = {key: mean for key, mean in values.items() if key in spread.index}
    inside = sum(bool(spread.loc[key, "min"] <= mean <= spread.loc[key, "max"]) for key, mean in known.items())
    return inside, len(known)


def best_at(results: Results, pair: tuple[str, str], shift: str, metric: str, ours: str) -> tuple[int, int]:
    """Count the intensities at which one form of QIPF is best, and all intensities."""
    levels = _levels(results, pair, shift, metric)
    if ours not in levels or not set(RIVALS) <= set(levels):
        return 0, 0
    levels = sign(metric) * levels
    best = levels[ours] > levels[list(RIVALS)].max(axis=1)
    return int(best.sum()), len(best)


@table("curves")
def curves(results: Results) -> str:
    """Return the number of intensities at which QIPF is best."""
    rows = []
    for pair, shift, figure in CURVES:
        cells = []
        for metric in CURVE_METRICS:
            found = [best_at(results, pair, shift, metric, ours) for ours in ("qipf", "qipf-published")]
            cells.append(f"{found[0][0]} / {found[1][0]} of {found[0][1]}" if found[0][1] else NOTHING)
        rows.append([figure, f"{NETS[pair]} {shift}", *cells])
    return markdown(["figure", "exact / program best at", *CURVE_METRICS.values()], rows)


@table("turned")
def turned(results: Results) -> str:
    """Return the metrics on rotated MNIST (Fig. 4 b and c)."""

    def cell(method: str, metric: str) -> str:
        levels = _levels(results, ("mnist", "lenet"), "rotation", metric)
        return number(float(levels[method].iloc[-1])) if method in levels else NOTHING

    return grid("MNIST, rotation by 270 degrees", SHORT, CURVE_METRICS, cell)


@table("error-rates")
def error_rates(results: Results) -> str:
    """Return the paper's error rates, our means and the best matches."""
    rows = []
    for name, revealed, rates, gaps in matched_cells(results):
        found = (revealed, float(rates.mean()), float(rates[(rates - revealed).abs().idxmin()]))
        cells = [f"{ours:+.2f} ({theirs:+.2f})" for ours, theirs in gaps.values()]
        rows.append([name, *(number(rate, 2) for rate in found), *cells])
    return markdown(["", "paper", "here, mean", "matched", "QIPF − MC dropout", "QIPF − ensemble"], rows)


@value("matched")
def matched_summary(results: Results, rival: str) -> str:
    """Return the mean lead of QIPF over a rival at matched error rates."""
    ours, theirs = zip(*(gaps[rival] for *_, gaps in matched_cells(results)), strict=True)
    ahead = sum(value > 0 for value in ours)
    return f"{np.mean(ours):+.3f} (ahead in {ahead} of {len(ours)} cells; in the paper, {np.mean(theirs):+.3f})"


@cache
def matched_cells(results: Results) -> list[tuple[str, float, pd.Series, dict[str, tuple[float, float]]]]:
    """Return the cells with a revealed error rate, our rates by severity, and the leads over rivals."""
    found, printed = [], paper.values("roc_auc")
    for pair, name in NETS.items():
        for shift in SHIFTS:
            case, own = Case(shift, *pair), results.rows_of("roc_auc", pair, shift, "qipf-published")
            revealed, rates = revealed_rate(case), 1 - own.groupby("severity")["accuracy"].mean()
            if revealed is None or rates.empty:
                continue
            level = _levels(results, pair, shift, "roc_auc").loc[(rates - revealed).abs().idxmin()]
            gaps = {
                rival: (
                    float(level["qipf-published"] - level[rival]),
                    printed[case, "qipf"].mean - printed[case, rival].mean,
                )
                for rival in ("mc-dropout", "ensemble")
            }
            found.append((f"{name} {shift}", revealed, rates, gaps))
    return found


def revealed_rate(case: Case) -> float | None:
    """Return the paper's error rate, the average precision of a method at chance."""
    areas, precisions = paper.values("roc_auc"), paper.values("pr_auc")
    near = [
        (abs(areas[case, method].mean - 0.5), precisions[case, method].mean)
        for method in RIVALS
        if (case, method) in areas and abs(areas[case, method].mean - 0.5) <= AT_CHANCE
    ]
    return min(near)[1] if near else None


@cache
def _levels(results: Results, pair: tuple[str, str], shift: str, metric: str) -> pd.DataFrame:
    """Return means over networks, with one row per intensity and one column per score."""
    own = results.rows_of(metric, pair, shift)
    return own.pivot_table(index="severity", columns="column", values="value", aggfunc="mean")


@value("above-one")
def above_one(results: Results) -> str:
    """Return the number of calibration values above 1, and their methods."""
    values = [key for metric in ("ece_paper", "brier_paper") for key in paper.values(metric).items()]
    found = [method for (_, method), value in values if value.mean > 1]
    return f"{len(found)}, all of {' and '.join(SHORT[method] for method in dict.fromkeys(found))}"


@value("paper-cell")
def paper_cell(results: Results, metric: str, shift: str, dataset: str, net: str, method: str) -> str:
    """Return a number in the paper's tables."""
    return number(paper.values(metric)[Case(shift, dataset, net), method].mean, 2)
