"""`qipf demo`: from nothing to a report, on bundled data."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from qipf._common.text import printable


def demo(
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("out/demo"),
    quiet: bool = False,
) -> int:
    """Train a small network on bundled digits, shift its test images, and see which uncertainty finds its errors.

    Runs the plan `demo` with every method, prints a table and leaves report.html in the output folder. If it is
    stopped, the same command continues where it was.

    Args:
        output: folder for the results and the report.
        quiet: no progress bar.
    """
    from rich.console import Console

    from qipf.study.plan import plan as plans
    from qipf.study.report import write_report
    from qipf.study.run.read import open_store
    from qipf.study.run.run import run_plan

    output.mkdir(parents=True, exist_ok=True)
    outcome, _ = run_plan(plans.load("demo"), output, quiet=quiet)
    bench = open_store(output)
    Console().print(summary(bench.rows()))
    page = output / "report.html"
    write_report(output, page)
    print(f"the whole story: {page}")
    for failure in outcome.failed:
        print(f"failed: {failure['label']}: {failure['error']}", file=sys.stderr)
    return 0 if outcome.complete else 1


def summary(rows: list[Any]) -> Any:
    """Mean ROC-AUC of error detection over the severities, one line per score and one column per shift, best first."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.metric == "roc_auc" and row.errors == "base" and row.severity > 0 and np.isfinite(row.value):
            name = (
                row.method
                if row.score == "score"
                else f"{row.method} ({row.score.replace('mutual_information', 'MI')})"
            )
            values[name][row.shift].append(row.value)
    shifts = list(dict.fromkeys(row.shift for row in rows if row.severity > 0))
    means = {
        name: [float(np.mean(found[shift])) if found[shift] else math.nan for shift in shifts]
        for name, found in values.items()
    }
    title = "ROC-AUC of finding the network's errors under shift (mean over severities)"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("score", no_wrap=True)
    for shift in [*shifts, "mean"]:
        table.add_column(Text(printable(shift)), justify="right")
    for name, row in sorted(means.items(), key=lambda item: -float(np.nanmean(item[1]))):
        shown = ("–" if math.isnan(value) else f"{value:.3f}" for value in [*row, float(np.nanmean(row))])
        table.add_row(Text(printable(name)), *shown)
    return table
