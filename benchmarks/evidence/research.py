"""The tables of docs/research/class-fields.md about how the class fields were developed (results/class-fields).

tables.csv names the rows of the tables, and says which score of which file each one quotes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from evidence.marks import table, value
from evidence.results import Results, markdown, number, slashed

PAIRS = {"lenet-mnist": "MNIST LeNet", "vgg3-cifar10": "CIFAR-10 VGG-3"}
METRICS = ("roc_auc", "average_precision")


@table("research-{name}", name=("grid", "views", "chosen"))
def rows_of(results: Results, name: str) -> str:
    """The main rows of the grid, of more views of one pass, and of the fitted scorer itself in small runs."""
    listed = _rows(results, name)
    values = [[cell(results, row.file, row.score, pair, row.study) for pair in PAIRS] for row in listed.itertuples()]
    best = [[max(line[i][k] for line in values) for k in (0, 1)] for i in range(len(PAIRS))]
    lines = [
        [words, *(_bold(pair, top) for pair, top in zip(line, best, strict=True))]
        for words, line in zip(listed["row"], values, strict=True)
    ]
    return markdown(["score (ROC-AUC / average precision)", *PAIRS.values()], lines)


def _bold(values: tuple[float, ...], best: list[float]) -> str:
    return " / ".join(number(value, bold=value == top) for value, top in zip(values, best, strict=True))


def _rows(results: Results, name: str) -> pd.DataFrame:
    rows = _file(results.folder / "class-fields" / "tables.csv").fillna("")
    return rows[rows["table"] == name]


@value("development")
def development(results: Results, file: str, score: str, pair: str, study: str = "") -> str:
    """ROC-AUC / average precision of a row of results/class-fields."""
    return slashed(cell(results, file, score, pair, study))


@value("development-under")
def development_under(results: Results, score: str, pair: str, shift: str) -> str:
    """ROC-AUC of a score of the grid under one shift."""
    rows = _file(results.folder / "class-fields" / "shifts.csv")
    own = rows[(rows["score"] == score) & (rows["pair"] == pair) & (rows["shift"] == shift)]
    return number(float(own["roc_auc"].item()))


@value("grid-errors")
def grid_errors(results: Results, pair: str) -> str:
    """The least and the largest standard error of ROC-AUC in a pair's column of the grid's table."""
    found = [cell(results, "grid", score, pair, end=ERROR)[0] for score in _rows(results, "grid")["score"]]
    return f"{number(min(found))} to {number(max(found))}"


@value("largest-errors")
def largest_errors(results: Results, file: str, pair: str, *scores: str) -> str:
    """The largest standard error of ROC-AUC, and of average precision, among some scores."""
    found = [cell(results, file, score, pair, end=ERROR) for score in scores]
    return slashed(max(errors) for errors in zip(*found, strict=True))


ERROR = "_standard_error"


def cell(results: Results, file: str, score: str, pair: str, study: str = "", end: str = "") -> tuple[float, ...]:
    """Return ROC-AUC and average precision of a row, or their standard errors over networks (`end`)."""
    rows = _file(results.folder / "class-fields" / f"{file}.csv")
    own = rows[(rows["score"] == score) & (rows["pair"] == pair)]
    own = own[own["study"] == study] if study else own
    if len(own) != 1:
        raise ValueError(f"{file}.csv has {len(own)} rows for {study} {score} on {pair}, expected one")
    return tuple(float(own[metric + end].iloc[0]) for metric in METRICS)


@cache
def _file(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)
