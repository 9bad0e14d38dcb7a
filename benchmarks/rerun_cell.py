"""Measure one cell of a published table again from its plan.

python benchmarks/rerun_cell.py results/paper/mnist --shift rotation --severity 3 [--data FOLDER]     # minutes on a CPU

Trains one base network as the plan says and scores it under one shift at one intensity with the methods that need no
fit. With one of the plan's seeds, this trains a published network again, perhaps on another device. With another seed,
it trains one more network, whose number should lie in the interval that Student's t gives for it from the published
ones. Every run is added to rerun.csv in the folder, whatever it found, and docs/reproduction.md quotes them all.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import stats

from qipf.study.plan.plan import Plan
from qipf.study.report.source import open_source
from qipf.study.run.read import open_store
from qipf.study.run.run import run_plan

COLUMNS = ["shift", "severity", "metric", "seed", "device", "method", "published", "new", "low", "high"]
METHODS = ("softmax-response", "entropy", "max-logit", "energy")


def main() -> int:
    """Print the published and the new numbers; returns 1 where a new one is outside its interval."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shift", default="rotation")
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--metric", default="roc_auc")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--data")
    given = parser.parse_args()
    source = open_source(given.folder)
    if source.plan is None:
        parser.error(f"{given.folder} has no plan.json that can be read")
    plan = _smaller(source.plan, given.shift, given.severity, given.seed)
    with tempfile.TemporaryDirectory() as store:
        run_plan(plan, Path(store), data=given.data)
        bench = open_store(store)
        new = {row.method: row.value for row in bench.rows() if _is(row, given, "all")}
        device = bench.environment["device"]
    outside, lines = False, []
    for method in [method for method in METHODS if method in new]:
        published = {row.seed: row.value for row in source.rows if row.method == method and _is(row, given, "all")}
        low, high = interval(list(published.values()))
        inside = low <= new[method] <= high
        outside |= not inside
        numbers = ", ".join(f"{value:.3f}" for value in published.values())
        word = "inside" if inside else "OUTSIDE"
        about = (given.shift, given.severity, given.metric, given.seed, device, method)
        own = published.get(given.seed, float("nan"))
        lines.append([*about, *(round(value, 4) for value in (own, new[method], low, high))])
        print(f"{method}: published {numbers}; new {new[method]:.3f}, {word} [{low:.3f}, {high:.3f}]")
    kept = given.folder / "rerun.csv"
    with kept.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(([] if file.tell() else [COLUMNS]) + lines)
    return int(outside)


def _smaller(plan: Plan, shift: str, severity: int, seed: int) -> Plan:
    (pair,) = plan.pairs
    place = pair.severity[shift].index(severity)
    pair = dataclasses.replace(
        pair,
        seeds=(seed,),
        pool=0,
        bootstrap=0,
        shifts={shift: (pair.shifts[shift][place],)},
        severity={shift: (severity,)},
        out_of_distribution=(),
        methods=tuple(method for method in pair.methods if method.name in METHODS),
    )
    return dataclasses.replace(plan, pairs=(pair,))


def _is(row: object, given: argparse.Namespace, subset: str) -> bool:
    wanted = (given.shift, given.severity, given.metric, "base", subset)
    return tuple(getattr(row, name) for name in ("shift", "severity", "metric", "errors", "subset")) == wanted


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval for one further network (Student's t)."""
    count, spread = len(values), float(np.std(values, ddof=1))
    half = float(stats.t.ppf(0.975, count - 1)) * spread * (1 + 1 / count) ** 0.5
    return float(np.mean(values)) - half, float(np.mean(values)) + half


if __name__ == "__main__":
    sys.exit(main())
