"""The finished cells of a study as one long table, in an order independent of how they ran."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

from qipf._common.optional import require
from qipf.data.tables import csv_text
from qipf.study.plan.plan import Pair, Plan
from qipf.study.run.store import Store

TABLES = ("table.csv", "table.parquet", "times.csv")
"""Documents written at the end of a run."""

TIMES = ("dataset", "net", "method", "passes", "forward_ms", "method_ms", "extra_ms", "ratio", "samples", "device")


class Row(NamedTuple):
    """One number of the long table.

    Attributes:
        seed: That of the base network.
        shift: "clean", a shift, or "ood:" and a dataset.
        intensity: In the unit of the shift.
        severity: Position in the grid of the shift, from 1; 0 without a shift.
        method: Its name in the plan.
        score: "score" for one pass; "std" (the paper's), "entropy", ... for several.
        errors: What the score should find: errors of the "base" network or of the method's "own" mean, "ood" inputs, or
            "size" for a regression.
        metric: A name in `qipf.metrics.METRICS`, "ece_confidence" or "brier_confidence" (of the predicted probability);
            for a regression, a measure of `qipf.decisions.comparison.compare_intervals` or "error", the mean absolute
            error.
        value: Of the metric; NaN if it is undefined.
        low: Lower end of the 95 % bootstrap interval, or NaN.
        high: Upper end.
        n: Number of predictions.
        accuracy: Share of correct predictions (of clean inputs for "ood"); NaN for a regression.
        subset: "all", or "common" for the inputs that every method scored; compare methods on these, see
            `qipf.study.tables.frame.comparable`.
    """

    dataset: str
    net: str
    seed: int
    shift: str
    intensity: float
    severity: int
    method: str
    score: str
    errors: str
    metric: str
    value: float
    low: float
    high: float
    n: int
    accuracy: float
    subset: str = "all"


def rows(store: Store, plan: Plan, index: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Yield the rows of all finished measuring cells, in the order of the plan."""
    by_name = {(pair.dataset_name, pair.net): pair for pair in plan.pairs}
    for entry in index:
        if entry["kind"] != "measure" or not store.has("measure", entry["key"]):
            continue
        pair = by_name[entry["dataset"], entry["net"]]
        for place, *rest in store.record("measure", entry["key"])["rows"]:
            score, errors, metric, value, low, high, n, accuracy, subset = rest
            intensity, severity = condition_of(pair, entry["group"], place)
            value, low, high, accuracy = (
                float("nan") if number is None else number for number in (value, low, high, accuracy)
            )
            where = (entry["dataset"], entry["net"], entry["seed"], entry["group"], intensity, severity)
            yield Row(*where, entry["method"], score, errors, metric, value, low, high, n, accuracy, subset)


def times(store: Store, index: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return milliseconds per sample of every timed method (Table 3)."""
    found = []
    for entry in index:
        if entry["kind"] == "time" and store.has("time", entry["key"]):
            record = store.record("time", entry["key"])
            about = {"dataset": entry["dataset"], "net": entry["net"], "method": entry["method"]}
            found.append(
                {**about, **{k: record[k] for k in TIMES if k in record}, "device": record["params"]["device"]}
            )
    return found


def write(store: Store, plan: Plan, index: Sequence[Mapping[str, Any]]) -> None:
    """Write the documents `TABLES`."""
    table = list(rows(store, plan, index))
    store.documents.write("table.csv", csv_text(Row._fields, table))
    found = times(store, index)
    store.documents.write("times.csv", csv_text(TIMES, [[row.get(name, "") for name in TIMES] for row in found]))
    pyarrow, parquet = require("pyarrow", extra="bench"), require("pyarrow.parquet", extra="bench")
    columns: dict[str, list[Any]] = {name: [row[i] for row in table] for i, name in enumerate(Row._fields)}
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in get_type_hints(Row).items()])
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=schema), buffer)
    store.documents.write("table.parquet", buffer.getvalue())


def condition_of(pair: Pair, group: str, place: int) -> tuple[float, int]:
    """Return the intensity and severity of a group at a position in the grid of its shift."""
    if group not in pair.shifts:
        return 0.0, 0
    return pair.shifts[group][place], pair.severity[group][place]
