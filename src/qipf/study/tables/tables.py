"""The paper's tables from a benchmark's long table: our numbers beside the paper's, the best two marked.

What a long table is, `qipf.study.tables.rows` says. Where some methods saw only a subset of the inputs, all are
compared on that subset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from qipf.metrics import METRICS
from qipf.study.tables import paper
from qipf.study.tables.paper import Case, Value
from qipf.study.tables.rows import TIME_METRIC, Errors, Rows, column_of, comparable, is_shift, long_rows, time_rows

Better = Literal["higher", "lower"]
Mark = Literal["best", "second"] | None


@dataclass(frozen=True)
class Cell:
    """Our number and the paper's, either of which may be missing, and their marks among their own kind."""

    ours: Value | None = None
    paper: Value | None = None
    ours_mark: Mark = None
    paper_mark: Mark = None


@dataclass(frozen=True)
class Panel:
    """One block of columns: a metric."""

    metric: str
    title: str
    better: Better
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """The heads of a row, what it stands for, and its cells by metric and column."""

    heads: tuple[str, ...]
    key: Mapping[str, str]
    cells: Mapping[tuple[str, str], Cell]


@dataclass(frozen=True)
class Table:
    """A table as the paper arranges it; `qipf.study.tables.render` writes it as text, Markdown, LaTeX or CSV."""

    name: str
    title: str
    heads: tuple[str, ...]
    panels: tuple[Panel, ...]
    rows: tuple[Row, ...]
    spread: str = "intensities"
    notes: tuple[str, ...] = ()

    @property
    def has_paper(self) -> bool:
        """Whether any of its cells has a number of the paper."""
        return any(cell.paper for row in self.rows for cell in row.cells.values())


def table_1(table: Any, errors: Errors = "base") -> Table:
    """Table 1: average ROC-AUC (left) and PR-AUC (right).

    Args:
        table: the long table.
        errors: "base": the errors of the one base network are to be found, by every method, as in the paper;
            "own": those of a many-pass method's own mean prediction.
    """
    titles = {"roc_auc": "ROC-AUC", "pr_auc": "PR-AUC"}
    title = "Table 1. Error detection" + (", many-pass methods find their own errors" if errors == "own" else "")
    return _table(table, "table-1" if errors == "base" else "table-1-own", title, titles, errors)


def table_2(table: Any, version: Literal["paper", "proper"] = "paper") -> Table:
    """Table 2: average expected calibration error (left) and Brier score (right).

    Args:
        table: the long table.
        version: "paper" scales scores over the evaluated set, "proper" calibrates them on clean data.
    """
    titles = {f"ece_{version}": "EXPECTED CALIBRATION ERROR", f"brier_{version}": "BRIER SCORE"}
    return _table(table, f"table-2-{version}", f"Table 2. Calibration ({version} version)", titles)


def appendix_h(table: Any) -> Table:
    """Appendix H: average point-biserial (left) and Spearman correlation with errors (right)."""
    titles = {"point_biserial": "POINT BISERIAL CORRELATION", "spearman": "SPEARMAN CORRELATION"}
    return _table(table, "appendix-h", "Appendix H. Correlation of uncertainty and error", titles)


def table_3(table: Any) -> Table:
    """Table 3: milliseconds for one test sample, by network, mean and std over measurements."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in long_rows(table):
        if row["metric"] == TIME_METRIC and np.isfinite(row["value"]):
            groups[row["net"], column_of(row)].append(float(row["value"]))
    ours = {key: Value(float(np.mean(v)), float(np.std(v)), len(v)) for key, v in groups.items()}
    theirs = {key: Value(ms, 0.0) for key, ms in paper.TIMES.items()}
    nets = sorted({net for net, _ in ours} or set(paper.NETS), key=_position(paper.NETS))
    panel = _panel(TIME_METRIC, "TIME (ms) PER TEST SAMPLE", "lower", nets, ours, theirs)
    rows = [
        _row((paper.NETS.get(net, net),), {"net": net}, net, [panel], {TIME_METRIC: (ours, theirs)}) for net in nets
    ]
    return Table("table-3", "Table 3. Computational time", ("MODEL",), (panel,), tuple(rows), "measurements")


def all_tables(table: Any, times: Iterable[Mapping[str, Any]] = ()) -> list[Table]:
    """Every table of the paper; Table 1 also for own errors where they were measured, Table 2 in both versions."""
    rows = [*long_rows(table), *time_rows(times)]
    own = [table_1(rows, "own")] if any(row.get("errors") == "own" for row in rows) else []
    return [table_1(rows), *own, table_2(rows), table_2(rows, "proper"), appendix_h(rows), table_3(rows)]


def averages(rows: Rows, metric: str, errors: Errors = "base") -> dict[tuple[Case, str], Value]:
    """Mean and standard deviation over intensities, of the mean over seeds at each, by case and column.

    A method that was measured on fewer seeds has the mean over these (`notes_on_fewer_networks` says so). Intensities
    at which the metric has no value (no errors, for instance) are left out, and `size` says how many are in.
    """
    groups: dict[tuple[Case, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in comparable(row for row in rows if row["metric"] == metric):
        if is_shift(row, errors):
            case = Case(row["shift"], row["dataset"], row["net"])
            groups[case, column_of(row)][row["intensity"]].append(float(row["value"]))
    result = {}
    for key, by_intensity in groups.items():
        values = [[v for v in values if np.isfinite(v)] for values in by_intensity.values()]
        means = [float(np.mean(v)) for v in values if v]
        if means:
            result[key] = Value(float(np.mean(means)), float(np.std(means)), len(means))
    return result


def notes_on_fewer_networks(rows: Rows) -> list[str]:
    """A sentence for each pair and set of seeds about the methods that were measured on fewer networks than others."""
    found: dict[tuple[str, str], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        if row["metric"] != TIME_METRIC:
            found[row["dataset"], row["net"]][str(row["method"])].add(row.get("seed", 0))
    sentences = []
    for pair, by_method in found.items():
        every = set().union(*by_method.values())
        groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for method, seeds in by_method.items():
            if seeds != every:
                groups[tuple(sorted(seeds))].append(method)
        for seeds, methods in groups.items():
            some = f"{len(seeds)} of {len(every)} networks (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
            verb = "are" if len(methods) > 1 else "is"
            sentences.append(f"On {paper.pair_title(*pair)}, {', '.join(methods)} {verb} measured on {some} only.")
    return sentences


def mark(values: Mapping[str, float], better: Better) -> dict[str, Mark]:
    """Which values are best and second best; equal values share a mark."""
    ranked = sorted(set(values.values()), reverse=better == "higher")[:2]
    marks: dict[float, Mark] = dict(zip(ranked, ("best", "second"), strict=False))
    return {name: marks.get(value) for name, value in values.items()}


def _table(table: Any, name: str, title: str, titles: Mapping[str, str], errors: Errors = "base") -> Table:
    rows = long_rows(table)
    theirs = {metric: paper.values(metric) if errors == "base" else {} for metric in titles}
    numbers = {metric: (averages(rows, metric, errors), theirs[metric]) for metric in titles}
    cases = _cases(
        [case for ours, _ in numbers.values() for case, _ in ours],
        [c for _, p in numbers.values() for c, _ in p],
    )
    panels = [
        _panel(metric, heading, METRICS[metric].better or "higher", cases, *numbers[metric])
        for metric, heading in titles.items()
    ]
    made = [
        _row(
            (case.shift.upper(), paper.pair_title(case.dataset, case.net)),
            case._asdict(),
            case,
            panels,
            numbers,
        )
        for case in cases
    ]
    notes = tuple(notes_on_fewer_networks(row for row in rows if row["metric"] in titles))
    return Table(name, title, ("CORRUPTION TYPE", "DATASET"), tuple(panels), tuple(made), notes=notes)


def _cases(ours: Iterable[Case], theirs: Iterable[Case]) -> list[Case]:
    """What we measured, and what the paper has for the same networks; if nothing, all the paper has."""
    mine = set(ours)
    pairs = {(case.dataset, case.net) for case in mine}
    also = {case for case in theirs if not mine or (case.dataset, case.net) in pairs}
    return sorted(mine | also, key=paper.case_order)


def _panel(
    metric: str,
    title: str,
    better: Better,
    keys: Iterable[Hashable],
    ours: Mapping[Any, Value],
    theirs: Mapping[Any, Value],
) -> Panel:
    shown = set(keys)
    columns = {column for key, column in [*ours, *theirs] if key in shown}
    return Panel(metric, title, better, tuple(sorted(columns, key=_position(paper.METHODS))))


def _row(
    heads: tuple[str, ...],
    key: Mapping[str, str],
    where: Hashable,
    panels: Iterable[Panel],
    numbers: Mapping[str, tuple[Mapping[Any, Value], Mapping[Any, Value]]],
) -> Row:
    cells = {}
    for panel in panels:
        ours, theirs = (
            {column: found[where, column] for column in panel.columns if (where, column) in found}
            for found in numbers[panel.metric]
        )
        our_marks = mark({column: value.mean for column, value in ours.items()}, panel.better)
        their_marks = mark({column: value.mean for column, value in theirs.items()}, panel.better)
        for column in panel.columns:
            cells[panel.metric, column] = Cell(
                ours.get(column), theirs.get(column), our_marks.get(column), their_marks.get(column)
            )
    return Row(heads, key, cells)


def _position(order: Iterable[str]) -> Callable[[str], tuple[int, str]]:
    """A sort key: the given order first, then by name."""
    places = {name: i for i, name in enumerate(order)}
    return lambda name: (places.get(name, len(places)), name)
