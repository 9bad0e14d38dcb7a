"""Tabulate the prediction intervals of a regression model by scale, and recommend a scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qipf.decisions.comparison import ONE_WIDTH, Estimate, recommend_scale
from qipf.study.plan.methods import SCALES
from qipf.study.plan.registry import info
from qipf.study.run.measure import ERROR, ERRORS, MEASURES, compare_scales
from qipf.study.run.read import Bench, Condition, Row
from qipf.study.tables.paper import pair_title

LEAST = 20
"""Minimum number of clean inputs for a recommendation."""
RESAMPLES = 200
"""Number of resamples for a recommendation, independent of the plan."""
HEADS = ("Scale", "inside", "width", "interval score ↓", "error of the most certain half ↓")
MEANING = (
    "Inside: the fraction of targets inside their interval. Width: the mean width of the intervals, in the unit of the "
    "targets. Interval score: the width plus a penalty for targets outside, relative to that of intervals of equal "
    "width for all inputs. Error of the most certain half: the mean absolute error on the half of the inputs with the "
    "smallest scales, relative to that on all inputs; a value below 1 means that smaller scales go with smaller errors."
)
PROMISE = "The fraction inside is promised only for inputs like the held-out ones. Nothing is promised under a shift."


@dataclass(frozen=True)
class ScaleRow:
    """The value and 95% interval of each measure for one scale."""

    method: str
    measures: Mapping[str, Estimate]

    def texts(self, *, ends: bool = True) -> list[str]:
        """Return the cells of the row, in the order of `HEADS`; `ends` adds intervals."""
        forms = ("{:.1%}", "{:#.3g}", "{:#.3g}", "{:#.3g}")
        found = [_show(self.measures[name], ends, form) for form, name in zip(forms, MEASURES, strict=True)]
        return [scale_title(self.method), *found]


@dataclass(frozen=True)
class IntervalTable:
    """The scales on one set of `n` inputs, sorted by interval score; `error` is the mean absolute error."""

    dataset: str
    net: str
    seed: int
    shift: str
    intensity: float
    severity: int
    n: int
    error: float
    rows: tuple[ScaleRow, ...]

    @property
    def title(self) -> str:
        """Description of the inputs."""
        return "Clean inputs" if self.shift == "clean" else f"{self.shift}, severity {self.severity}"

    @property
    def about(self) -> str:
        """The number of inputs and their mean absolute error."""
        count = f"{self.n} input{'' if self.n == 1 else 's'}"
        return count if math.isnan(self.error) else f"{count}, with a mean absolute error of {self.error:.3g}"


def scale_title(method: str) -> str:
    """Return the title of a scale, or the name itself if it is not built in."""
    return info(method).title if method in SCALES else method


def of_numbers(rows: Iterable[Row]) -> bool:
    """Return True if the rows are from regression models; raise ValueError if only some are."""
    kinds = {row.errors == ERRORS for row in rows}
    if len(kinds) > 1:
        raise ValueError(
            "table: contains both regression and other tasks (`errors` is 'size' in only some rows); split the table"
        )
    return kinds == {True}


def interval_tables(rows: Iterable[Row]) -> list[IntervalTable]:
    """Return one table per set of inputs, in table order."""
    places: dict[tuple[object, ...], dict[str, dict[str, Row]]] = {}
    for row in rows:
        if row.errors == ERRORS:
            places.setdefault(row[:6], {}).setdefault(row.method, {})[row.metric] = row
    return [_table(by_method) for by_method in places.values()]


def _table(by_method: Mapping[str, Mapping[str, Row]]) -> IntervalTable:
    nothing = (math.nan, math.nan, math.nan)
    found = []
    for method, metrics in by_method.items():
        known = {name: (row.value, row.low, row.high) for name, row in metrics.items()}
        found.append(ScaleRow(method, {name: known.get(name, nothing) for name in MEASURES}))
    found.sort(key=lambda row: (math.isnan(row.measures["loss"][0]), row.measures["loss"][0]))
    first = next(row for metrics in by_method.values() for row in metrics.values())
    errors = [metrics[ERROR].value for metrics in by_method.values() if ERROR in metrics]
    return IntervalTable(*first[:6], n=first.n, error=errors[0] if errors else math.nan, rows=tuple(found))


def advice(bench: Bench, dataset: str, net: str, seed: int) -> str:
    """Recommend a scale based on clean inputs.

    A scale is recommended only if its interval score is significantly lower than that of constant-width intervals.

    Raises:
        StoreError: The predictions are not in the store.
    """
    held_out, live = bench.numbers(Condition(dataset, net, seed, "clean", 0.0, 0))
    if len(live.targets) < LEAST:
        count = f"{len(live.targets)} input{' is' if len(live.targets) == 1 else 's are'}"
        name = pair_title(dataset, net)
        return f"On clean inputs of {name}: {count} too few to recommend a scale; provide at least {LEAST}."
    pair = bench.pair(dataset, net)
    there = {name for name in live.scales if name in held_out.scales}
    methods = [method.name for method in pair.methods if method.name in there and method.kind != ONE_WIDTH]
    found = recommend_scale(compare_scales(held_out, live, pair.coverage, methods=methods, bootstrap=RESAMPLES))
    return f"On clean inputs of {pair_title(dataset, net)}: {found}"


def _show(value: Estimate, ends: bool, form: str) -> str:
    if math.isnan(value[0]):
        return "–"
    shown, low, high = (form.format(end).removesuffix(".") for end in value)
    known = ends and not math.isnan(value[1]) and low != high  # the width of "one width" is constant
    return shown + (f" [{low}, {high}]" if known else "")
