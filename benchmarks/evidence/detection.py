"""Error detection in the study of the paper, and facts about its runs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from scipy import stats

from evidence.marks import table, value
from evidence.results import (
    COLUMNS,
    NOTHING,
    PAIRS,
    SHIFTS,
    SHORT,
    Results,
    grid,
    markdown,
    number,
    short,
    signed,
    slashed,
)

METRICS = ("roc_auc", "pr_auc")
MAIN = ("default", "ensemble (entropy)", "entropy", "qipf-published")
FEWER = "† Measured on fewer networks than the other rows."
PART = "‡ All rows were measured on the same {} random test images."
PAPER_ACCURACY = {
    ("mnist", "lenet"): 98.6, ("kmnist", "lenet"): 91.9, ("cifar10", "vgg3"): 87.5, ("cifar10", "resnet18"): 91.5,
}  # fmt: skip
MANY = {"mc-dropout": "passes", "svi": "epochs", "svi-ll": "epochs", "ensemble": "members", "swag": "passes"}


@table("everything")
def everything(results: Results) -> str:
    """Return ROC-AUC / average precision of every score; the best are bold."""
    columns = [column for column in COLUMNS if np.isfinite(results.mean("roc_auc", column))]
    places = [*PAIRS, None]
    values = np.array([[[results.mean(m, c, pair) for m in METRICS] for pair in places] for c in columns])
    values = np.round(values, 3)
    best = np.nanmax(values, axis=0, initial=-np.inf)
    rows, fewer = [], False
    for column, line in zip(columns, values, strict=True):
        marks = [pair is not None and results.fewer_networks(column, pair) for pair in places]
        fewer |= any(marks)
        cells = [slashed(*both) + "†" * mark for *both, mark in zip(line, best, marks, strict=True)]
        rows.append([short(column), *cells])
    parts = sorted(set(_parts(results).values()))
    notes = [PART.format(" or ".join(f"{size:,}" for size in parts))] if parts else []
    return markdown(
        ["ROC-AUC / PR-AUC", *pair_heads(results).values(), "mean"], rows, " ".join([*notes, *[FEWER] * fewer])
    )


@table("authors-lenet")
def authors_lenet(results: Results) -> str:
    """Return the ROC-AUC on the authors' network."""
    rows = pd.read_csv(results.folder / "paper" / "authors-lenet.csv")
    return markdown(["score", *rows.columns[1:]], [[row[0], *map(number, row[1:])] for row in rows.to_numpy().tolist()])


@table("clean")
def clean(results: Results) -> str:
    """Return accuracy and ROC-AUC on clean test images."""
    rows = results.rows[(results.rows["errors"] == "base") & (results.rows["shift"] == "clean")]
    values = rows.groupby(["column", "metric", "dataset", "net"])["value"].mean()
    lines = [["accuracy, mean of the networks", *(f"{100 * accuracy(results, pair):.1f}%" for pair in PAIRS)]]
    for column in MAIN:
        cells = [number(values.get((column, "roc_auc", *pair), np.nan)) for pair in PAIRS]
        lines.append([f"ROC-AUC, {short(column)}", *cells])
    return markdown(["clean test set", *pair_heads(results).values()], lines)


def accuracy(results: Results, pair: tuple[str, str]) -> float:
    """Return the mean accuracy of the base networks."""
    return float(accuracies(results, pair).mean())


@cache
def accuracies(results: Results, pair: tuple[str, str]) -> pd.Series:
    """Return the accuracy of every base network."""
    rows = results.all_rows
    asked = {
        "dataset": pair[0], "net": pair[1], "shift": "clean", "metric": "accuracy", "method": "entropy",
        "errors": "base", "subset": "all",
    }  # fmt: skip
    return rows[(rows[list(asked)] == pd.Series(asked)).all(axis=1)]["value"]


@table("out-of-distribution")
def out_of_distribution(results: Results) -> str:
    """Return the ROC-AUC for detecting images of another dataset."""
    rows = results.rows[(results.rows["errors"] == "ood") & (results.rows["metric"] == "roc_auc")]
    values = rows.groupby(["column", "shift"])["value"].mean()
    return grid(
        "MNIST LeNet (ROC-AUC)",
        {column: short(column) for column in COLUMNS if column in set(rows["column"])},
        {place: place.removeprefix("ood:") for place in sorted(rows["shift"].unique())},
        lambda column, place: number(values.get((column, place), np.nan)),
    )


@table("own-errors")
def own_errors(results: Results) -> str:
    """Return the ROC-AUC for the base network's errors and for a method's own."""
    rows = results.rows[(results.rows["severity"] > 0) & (results.rows["metric"] == "roc_auc")]
    own = rows[rows["errors"] == "own"]
    both = rows[rows["column"].isin(own["column"].unique())]
    values = both.groupby(["column", "errors", "dataset", "net"])["value"].mean()
    return grid(
        "errors of the base network / own errors",
        {column: short(column) for column in COLUMNS if column in set(own["column"])},
        pair_heads(results),
        lambda column, pair: slashed(values.get((column, errors, *pair), np.nan) for errors in ("base", "own")),
    )


@table("own-accuracy")
def own_accuracy(results: Results) -> str:
    """Return the clean accuracy of the mean prediction."""
    rows = results.rows[(results.rows["shift"] == "clean") & (results.rows["metric"] == "accuracy")]
    lines = [["one network", *(f"{100 * accuracy(results, pair):.1f}%" for pair in PAIRS)]]
    own = rows[rows["errors"] == "own"].groupby(["column", "dataset", "net"])["value"].mean()
    for column in [c for c in COLUMNS if c in own.index.get_level_values(0)]:
        cells = [own.get((column, *pair), np.nan) for pair in PAIRS]
        name = short(column).removesuffix(", entropy")
        lines.append([name, *(f"{100 * value:.1f}%" if np.isfinite(value) else NOTHING for value in cells)])
    return markdown(["accuracy, clean test set", *pair_heads(results).values()], lines)


def pair_heads(results: Results) -> dict[tuple[str, str], str]:
    """Return the titles of the pairs, marked if measured on only some images."""
    part = _parts(results)
    return {pair: name + "‡" * (pair in part) for pair, name in PAIRS.items()}


def _parts(results: Results) -> dict[tuple[str, str], int]:
    common = results.shifted[results.shifted["subset"] == "common"]
    return {(str(d), str(n)): int(size) for (d, n), size in common.groupby(["dataset", "net"])["n"].max().items()}


@value("geometric")
def geometric(results: Results, column: str) -> str:
    """Return the ROC-AUC over all shifts except brightness."""
    return number(float(np.mean([results.mean("roc_auc", column, shift=s) for s in SHIFTS if s != "brightness"])))


@value("gap")
def gap(results: Results, metric: str, ours: str, theirs: str, pair: str = "") -> str:
    """Return a difference with its interval."""
    places = {" ".join(known): known for known in PAIRS} | {"": None}
    return signed(results.difference(metric, ours, theirs, places[pair]))


@table("runs")
def runs(results: Results) -> str:
    """Return accuracies, sizes and settings by pair."""
    columns = []
    for pair in PAIRS:
        plan = results.plan(pair)
        settings = {method["name"]: method["params"] for method in plan.get("methods", ())}
        right = 100 * accuracy(results, pair)
        counts = [
            plan.get("test_size"),
            plan.get("multi_pass_size") or plan.get("test_size"),
            *(settings.get(method, {}).get(key) for method, key in MANY.items()),
        ]
        columns.append(
            [
                f"{right:.1f}%" if np.isfinite(right) else NOTHING,
                f"{PAPER_ACCURACY[pair]}%",
                str(results.rows_of("roc_auc", pair)["seed"].nunique()),
                *(f"{count:,}" if count else NOTHING for count in counts),
            ]
        )
    heads = ["accuracy", "accuracy in the paper", "networks", "images", "images, multi-pass methods"]
    heads += [f"{SHORT[method]}, {key}" for method, key in MANY.items()]
    return markdown(["", *PAIRS.values()], [[head, *cells] for head, *cells in zip(heads, *columns, strict=True)])


def interval(values: list[float]) -> tuple[float, float]:
    """Return the 95% prediction interval for one further network (Student's t)."""
    count, spread = len(values), float(np.std(values, ddof=1))
    half = float(stats.t.ppf(0.975, count - 1)) * spread * (1 + 1 / count) ** 0.5
    return float(np.mean(values)) - half, float(np.mean(values)) + half


@table("looks")
def looks(results: Results) -> str:
    """Return the published leads of the old default over the ensemble."""
    rows = [[look["look"], look["interval"], look["published"]] for look in results.json("paper/looks.json")]
    gap = results.difference("roc_auc", "default", "ensemble (entropy)")
    rows.append(["the same numbers, current interval", "networks, intensities, shifts, images", signed(gap)])
    return markdown(["look", "the interval resamples", "old default minus ensemble, ROC-AUC"], rows)
