"""What was run, next to what the paper says about its own runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from evidence.detection import accuracy
from evidence.results import NOTHING, PAIRS, SHORT, Results, markdown, number, signed

PAPER_ACCURACY = {
    ("mnist", "lenet"): 98.6, ("kmnist", "lenet"): 91.9, ("cifar10", "vgg3"): 87.5, ("cifar10", "resnet18"): 91.5,
}  # fmt: skip
FIRST = 3
"""The smallest number of networks that the paper's plan would have."""
MANY = {"mc-dropout": "passes", "svi": "epochs", "svi-ll": "epochs", "ensemble": "members", "swag": "passes"}


def runs(results: Results) -> str:
    """By pair: accuracy here and in the paper, networks, images, and the settings of methods with several passes."""
    columns = []
    for pair in PAIRS:
        plan = results.plan(pair)
        own = results.shifted[(results.shifted["dataset"] == pair[0]) & (results.shifted["net"] == pair[1])]
        settings = {m["name"]: m["params"] for m in plan.get("methods", ())}
        right = 100 * accuracy(results, pair)
        columns.append(
            [
                f"{right:.1f} %" if np.isfinite(right) else NOTHING,
                f"{PAPER_ACCURACY[pair]} %",
                str(own["seed"].nunique()),
                _number(plan.get("test_size")),
                _number(plan.get("multi_pass_size") or plan.get("test_size")),
                *(_number(settings.get(method, {}).get(key)) for method, key in MANY.items()),
            ]
        )
    heads = ["accuracy", "accuracy in the paper", "networks", "images", "images of many-pass methods"]
    heads += [f"{SHORT[method]}, {key}" for method, key in MANY.items()]
    return markdown(["", *PAIRS.values()], [[head, *cells] for head, *cells in zip(heads, *columns, strict=True)])


def rerun(results: Results) -> str:
    """What benchmarks/rerun_cell.py found in all its runs."""
    found = {folder.name: pd.read_csv(folder / "rerun.csv") for folder in results.folders if _has_rerun(folder)}
    rows = []
    for name, table in found.items():
        for (shift, severity, method), own in table.groupby(["shift", "severity", "method"], sort=False):
            again, more = own[own["published"].notna()], own[own["published"].isna()]
            pairs = [f"{number(a)} → {number(b)}" for a, b in zip(again["published"], again["new"], strict=True)]
            inside = more["new"].between(more["low"], more["high"]).sum()
            expected = f"{number(own['low'].iloc[0])} to {number(own['high'].iloc[0])}"
            new = ", ".join(number(value) for value in more["new"])
            low, high = interval(_of_first(results, name, own.iloc[0]))
            of_first = more["new"].between(low, high).sum()
            kept = [", ".join(pairs), expected, new, f"{inside} / {of_first} of {len(more)}"]
            rows.append(
                [f"{name}, {shift} {severity}, {SHORT.get(method, method)}", *(text or NOTHING for text in kept)]
            )
    if not rows:
        return "*Not measured yet: run benchmarks/rerun_cell.py.*"
    heads = ["cell", "published → again", "expected", "further networks", f"inside / of {FIRST}"]
    return markdown(heads, rows)


def looks(results: Results) -> str:
    """Every published look at the lead of the old default over the ensemble, in order, and what it is today."""
    found = results.json("paper/looks.json")
    if found is None:
        return "*Not recorded.*"
    rows = [[look["look"], look["interval"], look["published"]] for look in found]
    gap = results.difference("roc_auc", "default", "ensemble (entropy)")
    rows.append(["the same numbers, today's interval", "networks, intensities, shifts; images", signed(gap)])
    return markdown(["look", "the interval resamples", "old default less ensemble, ROC-AUC"], rows)


def interval(values: list[float]) -> tuple[float, float]:
    """Return the 95 % interval for one further network (Student's t)."""
    count, spread = len(values), float(np.std(values, ddof=1))
    half = float(stats.t.ppf(0.975, count - 1)) * spread * (1 + 1 / count) ** 0.5
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def _of_first(results: Results, name: str, cell: pd.Series) -> list[float]:
    """The published numbers of a cell's first networks."""
    rows = pd.read_parquet(results.folder / "paper" / name / "table.parquet")
    for key in ("shift", "severity", "metric", "method"):
        rows = rows[rows[key] == cell[key]]
    return list(rows[(rows["errors"] == "base") & (rows["subset"] == "all") & (rows["seed"] < FIRST)]["value"])


def _has_rerun(folder: Path) -> bool:
    return (folder / "rerun.csv").is_file()


def _number(value: int | None) -> str:
    return f"{value:,}" if value else NOTHING
