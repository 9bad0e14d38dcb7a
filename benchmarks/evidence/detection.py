"""Tables of error detection: every score, by pair, by shift, on clean inputs, and differences with intervals."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from evidence.results import COLUMNS, PAIRS, SHIFTS, Results, markdown, number, short, signed, title
from qipf.study.report.severity import severity_of

METRICS = ("roc_auc", "pr_auc")
MAIN = ("default", "ensemble (entropy)", "entropy", "qipf-published")
RIVALS = ("ensemble (entropy)", "entropy", "max-logit", "knn")
FEWER = "† measured on fewer networks than the other rows."
PART = "‡ every row on the same random part of the test images: {}."
DEVELOPED_ON = {("mnist", "lenet"), ("cifar10", "vgg3")}
DEVELOPED_UNDER = {"rotation", "shear", "brightness"}


def everything(results: Results) -> str:
    """Every score that was measured on all pairs."""
    shown = [column for column in COLUMNS if np.isfinite(results.mean("roc_auc", column))]
    return main_table(results, shown)


def main_table(results: Results, columns: tuple[str, ...] | list[str]) -> str:
    """ROC-AUC / average precision by pair and on average, the best of the table in bold."""
    places = [*PAIRS, None]
    values = np.array([[[results.mean(m, c, pair) for m in METRICS] for pair in places] for c in columns])
    best = np.nanmax(np.round(values, 3), axis=0, initial=-np.inf)
    rows, fewer = [], False
    for column, line in zip(columns, np.round(values, 3), strict=True):
        marks = [pair is not None and results.fewer_networks(column, pair) for pair in places]
        fewer |= any(marks)
        cells = [
            " / ".join(number(v, bold=bool(v == b)) for v, b in zip(cell, top, strict=True)) + "†" * mark
            for cell, top, mark in zip(line, best, marks, strict=True)
        ]
        rows.append([short(column), *cells])
    heads = ["ROC-AUC / PR-AUC", *pair_heads(results), "mean"]
    return markdown(heads, rows, _below(results, fewer))


def by_shift(results: Results) -> str:
    """ROC-AUC by shift, mean over the four pairs."""
    rows = [[title(c), *(number(results.mean("roc_auc", c, shift=s)) for s in SHIFTS)] for c in MAIN]
    return markdown(["score (ROC-AUC, mean of the four pairs)", *SHIFTS], rows)


def authors_lenet(results: Results) -> str:
    """The authors' own network under shift."""
    rows = pd.read_csv(results.folder / "paper" / "authors-lenet.csv")
    return markdown(["score", *rows.columns[1:]], [[row[0], *map(number, row[1:])] for row in rows.to_numpy().tolist()])


def differences(results: Results, metric: str) -> str:
    """The recommended score minus a rival, by pair and over all pairs."""
    rows = [
        [title(rival), *(signed(results.difference(metric, "default", rival, pair)) for pair in (*PAIRS, None))]
        for rival in RIVALS
    ]
    return markdown([f"{title('default')} minus", *pair_heads(results), "mean"], rows)


def clean(results: Results) -> str:
    """Accuracy and ROC-AUC on the unshifted test set."""
    rows = results.rows[(results.rows["errors"] == "base") & (results.rows["shift"] == "clean")]
    values = rows.groupby(["column", "metric", "dataset", "net"])["value"].mean()
    lines = [["accuracy, mean of the networks", *(f"{100 * accuracy(results, pair):.1f} %" for pair in PAIRS)]]
    for column in MAIN:
        cells = [number(values.get((column, "roc_auc", *pair), np.nan)) for pair in PAIRS]
        lines.append([f"ROC-AUC, {short(column)}", *cells])
    return markdown(["clean test set", *pair_heads(results)], lines)


@cache
def accuracy(results: Results, pair: tuple[str, str]) -> float:
    """The accuracy of the base networks on all clean test images."""
    rows = results.all_rows
    asked = {
        "dataset": pair[0], "net": pair[1], "shift": "clean", "metric": "accuracy", "method": "entropy",
        "errors": "base", "subset": "all",
    }  # fmt: skip
    own = rows[(rows[list(asked)] == pd.Series(asked)).all(axis=1)]
    return float(own["value"].mean())


def out_of_distribution(results: Results) -> str:
    """ROC-AUC of telling another dataset's images from the network's own, mean over networks."""
    rows = results.rows[(results.rows["errors"] == "ood") & (results.rows["metric"] == "roc_auc")]
    if rows.empty:
        return "*Not measured yet.*"
    values = rows.groupby(["column", "shift"])["value"].mean()
    places = sorted(rows["shift"].unique())
    lines = [
        [short(column), *(number(values.get((column, place), np.nan)) for place in places)]
        for column in COLUMNS
        if column in set(rows["column"])
    ]
    return markdown(["MNIST LeNet (ROC-AUC)", *(place.removeprefix("ood:") for place in places)], lines)


def own_errors(results: Results) -> str:
    """Methods with several passes: finding the base network's errors, and those of their own mean prediction."""
    rows = results.rows[(results.rows["severity"] > 0) & (results.rows["metric"] == "roc_auc")]
    own = rows[rows["errors"] == "own"]
    if own.empty:
        return "*Not measured yet.*"
    both = rows[rows["column"].isin(own["column"].unique())]
    values = both.groupby(["column", "errors", "dataset", "net"])["value"].mean()
    lines = []
    for column in [c for c in COLUMNS if c in set(own["column"])]:
        pairs = [[values.get((column, e, *pair), np.nan) for e in ("base", "own")] for pair in PAIRS]
        lines.append([short(column), *(f"{number(base)} / {number(mine)}" for base, mine in pairs)])
    return markdown(["base network's errors / own", *pair_heads(results)], lines)


def own_accuracy(results: Results) -> str:
    """The accuracy of the mean prediction of methods with several passes on clean inputs: were they trained well?"""
    rows = results.rows[(results.rows["shift"] == "clean") & (results.rows["metric"] == "accuracy")]
    lines = [["one network", *(f"{100 * accuracy(results, pair):.1f} %" for pair in PAIRS)]]
    own = rows[rows["errors"] == "own"].groupby(["column", "dataset", "net"])["value"].mean()
    for column in [c for c in COLUMNS if c in own.index.get_level_values(0)]:
        cells = [own.get((column, *pair), np.nan) for pair in PAIRS]
        name = short(column).removesuffix(", entropy")
        lines.append([name, *(f"{100 * value:.1f} %" if np.isfinite(value) else "–" for value in cells)])
    return markdown(["accuracy, clean test set", *pair_heads(results)], lines)


def unseen(results: Results, column: str) -> float:
    """ROC-AUC over the pairs and shifts that were not used in the development of the recommended score."""
    values = results.means("roc_auc")
    found = [
        values.get((column, *pair, shift), np.nan)
        for pair in PAIRS
        for shift in SHIFTS
        if not (pair in DEVELOPED_ON and shift in DEVELOPED_UNDER)
    ]
    return float(np.mean(found))


def pair_heads(results: Results) -> list[str]:
    """The headings of the pairs, with a mark on those that were measured on a part of the images."""
    part = _parts(results)
    return [name + "‡" * (pair in part) for pair, name in PAIRS.items()]


def _parts(results: Results) -> dict[tuple[str, str], int]:
    common = results.shifted[results.shifted["subset"] == "common"]
    return {(str(d), str(n)): int(size) for (d, n), size in common.groupby(["dataset", "net"])["n"].max().items()}


def _below(results: Results, fewer: bool) -> str:
    part = sorted(set(_parts(results).values()))
    notes = [PART.format(" or ".join(f"{size:,}" for size in part))] if part else []
    return " ".join([*notes, *([FEWER] if fewer else [])])


def severity_means(results: Results, column: str, pair: tuple[str, str], shift: str) -> pd.Series:
    """ROC-AUC by severity from the mildest, mean over networks."""
    rows = results.under_shift("roc_auc")
    chosen = (rows["dataset"] == pair[0]) & (rows["net"] == pair[1]) & (rows["shift"] == shift)
    own = rows[chosen & (rows["column"] == column)]
    places = zip(own["intensity"], own["severity"], strict=True)
    levels = [severity_of(shift, intensity, severity) for intensity, severity in places]
    return own.assign(severity=levels).groupby("severity")["value"].mean()
