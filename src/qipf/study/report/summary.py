"""The first thing a reader sees: what was run, what came of it, and the methods in one small table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qipf.metrics import METRICS
from qipf.study.report.columns import Column, pair_id
from qipf.study.report.source import Source
from qipf.study.tables.claims import OTHERS, Claim, claims
from qipf.study.tables.rows import column_of, comparable, long_rows
from qipf.study.tables.tables import averages, mark


@dataclass(frozen=True)
class Verdicts:
    """The paper's claims beside what was found here.

    Attributes:
        counts: how many claims with a clear word in the paper hold here, do not, or are left open.
        front: the claims for the top of the page.
        rest: all others, by scope.
    """

    counts: Mapping[str, int]
    front: list[Claim]
    rest: dict[str, list[Claim]]


SCOPES = {"most": "Overall", "headline": "On average over all cases", "speed": "Speed", "case": "Case by case"}


def verdicts(source: Source) -> Verdicts:
    """The claims that these numbers can speak to; the paper's own about error detection and speed come first."""
    found = [claim for claim in claims(source.rows, source.times) if claim.here != "not measured"]
    own = [claim for claim in found if claim.paper in ("yes", "no")]
    front = [c for c in own if c.scope in ("most", "headline") and c.metric == "roc_auc"]
    front += [c for c in found if c.scope == "headline" and c.metric == "roc_auc" and c not in own and _simple(c)]
    front += [c for c in own if c.scope == "speed"]
    counts = Counter(agreement(claim) for claim in own if claim.scope != "case")
    rest: dict[str, list[Claim]] = defaultdict(list)
    for claim in found:
        if claim not in front and (claim.scope != "case" or _worth_a_line(claim)):
            rest[SCOPES[claim.scope]].append(claim)
    return Verdicts(counts, front, {title: rest[title] for title in SCOPES.values() if title in rest})


def agreement(claim: Claim) -> str:
    """Whether our numbers say the same as the paper's: "holds", "does not hold", "open" or "new"."""
    if claim.here == "undecided":
        return "open"
    if claim.paper not in ("yes", "no"):
        return "new"
    return "holds" if claim.here == claim.paper else "does not hold"


def evidence(claim: Claim) -> str:
    """What a claim's verdict rests on: the difference, its interval and how many pairs they come from."""
    return str(claim).removeprefix(f"{claim.text}: paper {claim.paper}, here {claim.here}").lstrip(", ")


def _worth_a_line(claim: Claim) -> bool:
    """Single cases are thousands: only error detection, against the paper's rivals and the simple ones."""
    rivals = any(f"beats {name} in" in claim.text for name in OTHERS.values())
    return claim.metric == "roc_auc" and (rivals or _simple(claim))


def _simple(claim: Claim) -> bool:
    """Whether the rival is a score of one pass that everybody has at hand."""
    return any(f"beats {name} in" in claim.text for name in ("softmax-response", "max-logit", "entropy"))


@dataclass(frozen=True)
class Figure:
    """A number of the headline table.

    Attributes:
        text: as it is shown.
        share: length of its bar, 0 to 1.
        mark: "best", "second" or None.
    """

    text: str
    share: float = 0.0
    mark: str | None = None


def headline(source: Source, columns: list[Column], pairs: Mapping[str, str]) -> dict[str, Any]:
    """Methods by pairs: mean ROC-AUC and average precision over all shifts and intensities, and the cost.

    Sorted by ROC-AUC, mutual information left out (it is in the tables).
    """
    rows = long_rows(source.rows)
    numbers = {metric: _means(averages(rows, metric)) for metric in ("roc_auc", "pr_auc")}
    costs = {(pair_id(time), str(time["method"])): time for time in source.times if _ratio(time) is not None}
    shown = [column for column in columns if column.score != "mutual_information"]
    shown = [c for c in shown if any((pair, c.id) in numbers["roc_auc"] for pair in pairs)] or shown
    overall = {c.id: _overall(numbers["roc_auc"], c.id, pairs) for c in shown}
    shown.sort(key=lambda column: -np.nan_to_num(overall[column.id], nan=-1.0))
    body: list[dict[str, Any]] = [{"column": column, "cells": []} for column in shown]
    for pair in pairs:
        for metric, values in numbers.items():
            for line, figure in zip(body, _figures(pair, metric, values, shown), strict=True):
                line["cells"].append(figure)
        for line in body:
            line["cells"].append(_cost(costs.get((pair, line["column"].method))))
    metrics = [("ROC-AUC", "how often an error is rated less sure than a right prediction"),
               ("AP", "average precision of finding errors"),
               ("cost", "time in units of one forward pass")]  # fmt: skip
    return {"metrics": metrics, "body": body}


def _figures(pair: str, metric: str, values: Mapping[tuple[str, str], float], shown: list[Column]) -> list[Figure]:
    own = {column.id: values[pair, column.id] for column in shown if (pair, column.id) in values}
    marks = mark(own, METRICS[metric].better or "higher")
    least = 0.5 if metric == "roc_auc" else 0.0
    return [
        Figure(f"{own[c.id]:.3f}", min(1.0, max(0.0, (own[c.id] - least) / (1 - least))), marks[c.id])
        if c.id in own
        else Figure("–")
        for c in shown
    ]


def _cost(time: Mapping[str, Any] | None) -> Figure:
    ratio = None if time is None else _ratio(time)
    return Figure("–") if ratio is None else Figure(f"{ratio:.2f}×" if ratio < 9.95 else f"{ratio:.0f}×")


def _ratio(time: Mapping[str, Any]) -> float | None:
    value = time.get("ratio")
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _means(values: Mapping[Any, Any]) -> dict[tuple[str, str], float]:
    """Over the shifts, by pair and column."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (case, column), value in values.items():
        groups[pair_id(case), column].append(value.mean)
    return {key: float(np.mean(found)) for key, found in groups.items()}


def _overall(values: Mapping[tuple[str, str], float], column: str, pairs: Mapping[str, str]) -> float:
    found = [values[pair, column] for pair in pairs if (pair, column) in values]
    return float(np.mean(found)) if found else float("nan")


def out_of_distribution(source: Source, columns: list[Column], pairs: Mapping[str, str]) -> dict[str, Any]:
    """ROC-AUC of telling another dataset's inputs from clean ones, by method; empty where it was not measured."""
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in comparable(row._asdict() for row in source.rows if row.errors == "ood" and row.metric == "roc_auc"):
        if np.isfinite(row["value"]):
            groups[pair_id(row), row["shift"].removeprefix("ood:"), column_of(row)].append(row["value"])
    heads = list(dict.fromkeys((pair, other) for pair, other, _ in groups))
    body = []
    for column in columns:
        cells = [groups.get((pair, other, column.id)) for pair, other in heads]
        if any(cells):
            body.append((column, [f"{np.mean(found):.3f}" if found else "–" for found in cells]))
    return {"heads": [(pairs[pair], other) for pair, other in heads], "body": body} if heads else {}


def _predictions(sizes: list[int], compared: list[int]) -> str:
    if not sizes:
        return "none"
    common = f", methods compared on {compared[-1]:,} of them" if compared else ""
    return f"{sizes[-1]:,} for each condition{common}"


def facts(source: Source, columns: list[Column], pairs: Mapping[str, str]) -> list[tuple[str, str]]:
    """What was run, in a few words each."""
    shifts = list(dict.fromkeys(r.shift for r in source.rows if r.shift != "clean" and not r.shift.startswith("ood:")))
    seeds = {(pair_id(row), row.seed) for row in source.rows}
    base = [row for row in source.rows if row.errors == "base"]
    clean = {(pair_id(r), r.seed): r for r in sorted(base, key=lambda row: row.n) if r.shift == "clean"}
    sizes = sorted({row.n for row in base})
    compared = sorted({row.n for row in base if row.subset == "common"})
    result = [
        ("Models", ", ".join(pairs.values())),
        ("Networks", f"{len(seeds)}, {'different seeds' if len(seeds) > len(pairs) else 'one seed each'}"),
        ("Methods", f"{len({column.method for column in columns})} with {len(columns)} scores"),
        ("Shifts", ", ".join(shifts) or "none"),
        ("Predictions", _predictions(sizes, compared)),
    ]
    if clean:
        accuracies = [row.accuracy for row in clean.values()]
        shown = list(dict.fromkeys(f"{100 * value:.1f}" for value in (min(accuracies), max(accuracies))))
        result.append(("Accuracy on clean inputs", f"{' to '.join(shown)} %"))
    started = str(source.environment.get("started", ""))
    if started:
        result.append(("Run", started.replace("T", " ").replace("+00:00", " UTC")))
    device = source.environment.get("gpu") or source.environment.get("processor")
    if device:
        result.append(("Machine", str(device)))
    return result
