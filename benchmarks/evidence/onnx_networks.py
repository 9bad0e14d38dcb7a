"""Tables of docs/results/onnx-networks.md, from results/real/onnx-*.json."""

from __future__ import annotations

from typing import Any

from evidence.marks import table, value
from evidence.results import NOTHING, Results, grid, markdown, number

SUITES = {
    "magika-apart": ("Magika, other folders", "onnx-magika-apart.json", (), "cells"),
    "magika": ("Magika, same folders", "onnx-magika-closed.json", (), "cells"),
    "magika-open": ("Magika, all 214 types", "onnx-magika.json", (), "cells"),
    "characters": ("PP-OCRv4, characters", "onnx-ocr.json", ("steps",), "steps"),
    "lines": ("PP-OCRv4, lines", "onnx-ocr.json", ("lines",), "lines"),
}
BEHIND, AHEAD = 0.01, 0.02
"""The thresholds of the protocol's criteria."""


@table("onnx-bars")
def bars(results: Results) -> str:
    """Return every suite with the verdicts on the criteria."""
    rows = []
    for name, (title, *_) in SUITES.items():
        found = summary(results, name)
        ahead = found["ahead"]
        low, high = found["interval"]
        rows.append([
            title, number(found["mean"]["default"]), f"{number(found['mean'][found['rival']])} ({found['rival']})",
            f"{ahead:+.3f} [{low:+.3f}, {high:+.3f}]", "yes" if ahead >= -BEHIND else "no",
            "yes" if ahead >= AHEAD else "no", f"{found['rank']} of {len(found['mean'])}",
            f"{found['cells_behind_any']} of {found['cells']}",
        ])  # fmt: skip
    heads = ["suite", "default", "best rival", "difference", "not behind by more than .01", "ahead by .02", "rank",
             "conditions more than .01 behind the best"]  # fmt: skip
    return markdown(heads, rows)


@table("onnx-means-characters", runs={"characters": "mean ROC-AUC"})
@table("onnx-means-lines", runs={"lines": "mean ROC-AUC"})
@table(
    "onnx-means-magika",
    runs={"magika-apart": "other folders", "magika": "same folders", "magika-open": "all 214 types"},
)
def means(results: Results, runs: dict[str, str]) -> str:
    """Return the mean ROC-AUC of every score, sorted by the first run."""
    found = {suite: summary(results, suite)["mean"] for suite in runs}
    names = {name: f"**{name}**" if name == "default" else name for name in found[next(iter(runs))]}
    return grid("score", names, runs, lambda name, suite: number(found[suite].get(name, float("nan"))))


@table("onnx-cells-{suite}", suite=("magika-apart", "magika", "characters", "lines"))
def by_cell(results: Results, suite: str) -> str:
    """Return every condition with the default and the best other score."""
    _, file, _, key = SUITES[suite]
    rows = []
    for name, cell in results.json(f"real/{file}")[key].items():
        count = next(cell[what] for what in ("files", "characters", "lines") if what in cell)
        areas = cell["roc_auc"]
        if areas is None:
            rows.append([name, f"{cell['wrong']:,} of {count:,}", NOTHING, NOTHING, NOTHING])
            continue
        value, best = max((value, score) for score, value in areas.items() if score != "default")
        ours = areas["default"]
        shown = [number(ours, bold=ours >= value), number(value, bold=ours < value), best]
        rows.append([name, f"{cell['wrong']:,} of {count:,}", *shown])
    return markdown(["condition", "wrong", "default", "best other", "score"], rows)


def summary(results: Results, suite: str) -> dict[str, Any]:
    """Return the summary of a suite."""
    _, file, keys, _ = SUITES[suite]
    return results.json(f"real/{file}", "shifted", *keys)


@value("onnx-unknown-first")
def unknown_first(results: Results, score: str) -> str:
    """Return the mean ROC-AUC of an unfitted score with all types."""
    cells = results.json("real/onnx-magika-closed.json")["cells"]
    found = [cell["open"]["roc_auc"][score] for name, cell in cells.items() if name != "clean"]
    return number(sum(found) / len(found))
