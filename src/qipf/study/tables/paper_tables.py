"""The paper's tables from a long table: our numbers beside the paper's, the best two of each marked.

Methods are compared on the inputs that all of them saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from qipf.metrics import METRICS
from qipf.study.plan.registry import split_column
from qipf.study.tables import paper
from qipf.study.tables.frame import CASE, PAIR, Errors, column_order, comparable, long_frame, shifted, times_frame
from qipf.study.tables.paper import Case, Value

Better = Literal["higher", "lower"]
Mark = Literal["best", "second"] | None
Numbers = Mapping[tuple[Any, str], Value]
"""Values by row (a case, or a network in Table 3) and column."""


@dataclass(frozen=True)
class Entry:
    """Our number and the paper's, with the mark that each has among its own."""

    ours: Value | None = None
    paper: Value | None = None
    ours_mark: Mark = None
    paper_mark: Mark = None


@dataclass(frozen=True)
class Block:
    """One metric of one pair of dataset and network.

    Attributes:
        pair: Heading of the pair; empty in Table 3.
        heads: The shifts, or the networks.
        body: One entry per head, by column.
    """

    metric: str
    title: str
    pair: str
    better: Better
    heads: tuple[str, ...]
    body: Mapping[str, tuple[Entry, ...]]

    @property
    def measured(self) -> bool:
        """True if it has a number of ours."""
        return any(entry.ours for entries in self.body.values() for entry in entries)


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper: its blocks by pair and metric, and what the numbers are averaged over."""

    name: str
    title: str
    source: str
    blocks: tuple[Block, ...]
    spread: str = "intensities"


TABLES: dict[str, tuple[str, str, dict[str, str], Errors]] = {
    "table-1": ("Table 1", "Error detection", {"roc_auc": "ROC-AUC", "pr_auc": "PR-AUC"}, "base"),
    "table-1-own": (
        "Table 1", "Error detection, methods with several passes find their own errors",
        {"roc_auc": "ROC-AUC", "pr_auc": "PR-AUC"}, "own",
    ),
    "table-2-paper": (
        "Table 2", "Calibration (paper version)",
        {"ece_paper": "Expected calibration error", "brier_paper": "Brier score"}, "base",
    ),
    "table-2-proper": (
        "Table 2", "Calibration (proper version)",
        {"ece_proper": "Expected calibration error", "brier_proper": "Brier score"}, "base",
    ),
    "appendix-h": (
        "Appendix H", "Correlation of uncertainty and error",
        {"point_biserial": "Point-biserial correlation", "spearman": "Spearman correlation"}, "base",
    ),
}  # fmt: skip
"""Position of a table in the paper, its title, the titles of its metrics, and whose errors are found.

Table 2 is scaled over the evaluated set ("paper") or calibrated on clean data ("proper").
"""


def table_3(times: Iterable[Mapping[str, Any]]) -> PaperTable:
    """Table 3: milliseconds per test sample by network, mean and standard deviation over measurements."""
    known = times_frame(times).dropna(subset="method_ms")
    ours = {
        (net, method): Value(float(taken.mean()), float(taken.std(ddof=0)), len(taken))
        for (net, method), taken in known.groupby(["net", "method"])["method_ms"]
    }
    theirs = {key: Value(ms, 0.0) for key, ms in paper.TIMES.items()}
    timed = {str(net) for net, _ in ours} or set(paper.NETS)
    nets = sorted(timed, key=lambda net: (net not in paper.NETS, [*paper.NETS, net].index(net), net))
    heads = [paper.NETS.get(net, net) for net in nets]
    block = _block("ms_per_sample", "Milliseconds per test sample", "", "lower", heads, nets, (ours, theirs))
    return PaperTable("table-3", "Computational time", "Table 3", (block,), "measurements")


def all_tables(table: Any, times: Iterable[Mapping[str, Any]] = ()) -> list[PaperTable]:
    """Return every table of the paper; Table 1 also for own errors if measured, Table 2 in both versions."""
    frame = long_frame(table)
    own = (frame["errors"] == "own").any()
    return [*(paper_table(frame, name) for name in TABLES if own or name != "table-1-own"), table_3(times)]


def averages(table: Any, metric: str, errors: Errors = "base") -> dict[tuple[Case, str], Value]:
    """Return mean and standard deviation over intensities of the mean over seeds, by case and column.

    A method measured on fewer seeds has the mean over these. Intensities without a value are left out; `size` counts
    the others.
    """
    frame = long_frame(table)
    rows = shifted(comparable(frame[frame["metric"] == metric]), errors)
    means = rows.groupby([*CASE, "column", "intensity"], sort=False)["value"].mean().dropna()
    return {
        (Case(*key[:3]), key[3]): Value(float(values.mean()), float(np.std(values)), len(values))
        for key, values in means.groupby([*CASE, "column"], sort=False)
    }


def notes_on_fewer_networks(table: Any) -> list[str]:
    """Return a sentence about the methods of each pair that were measured on fewer networks."""
    frame = long_frame(table)
    sentences = []
    for pair, rows in frame.groupby(PAIR, sort=False):
        every, groups = set(rows["seed"]), defaultdict(list)
        for method, seeds in rows.groupby("method", sort=False)["seed"]:
            if set(seeds) != every:
                groups[tuple(sorted(set(seeds)))].append(str(method))
        for seeds, methods in groups.items():
            some = f"{len(seeds)} of {len(every)} networks (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
            verb = "are" if len(methods) > 1 else "is"
            sentences.append(f"On {paper.pair_title(*pair)}, {', '.join(methods)} {verb} measured on {some} only.")
    return sentences


def mark(values: Mapping[str, float], better: Better) -> dict[str, Mark]:
    """Mark the best and second-best values; equal values share a mark."""
    ranked = sorted(set(values.values()), reverse=better == "higher")[:2]
    marks: dict[float, Mark] = dict(zip(ranked, ("best", "second"), strict=False))
    return {name: marks.get(value) for name, value in values.items()}


def paper_table(table: Any, name: str) -> PaperTable:
    """Return one of `TABLES`: means over seeds and intensities."""
    frame = long_frame(table)
    source, title, titles, errors = TABLES[name]
    numbers = {
        metric: (averages(frame, metric, errors), paper.values(metric) if errors == "base" else {}) for metric in titles
    }
    by_pair: dict[str, list[Case]] = defaultdict(list)
    for case in _cases(*({case for found in numbers.values() for case, _ in found[who]} for who in (0, 1))):
        by_pair[paper.pair_title(case.dataset, case.net)].append(case)
    blocks = [
        _block(metric, heading, pair, METRICS[metric].better or "higher", [c.shift for c in cases], cases, found)
        for pair, cases in by_pair.items()
        for (metric, heading), found in zip(titles.items(), numbers.values(), strict=True)
    ]
    return PaperTable(name, title, source, tuple(blocks))


def _cases(ours: set[Case], theirs: set[Case]) -> list[Case]:
    """Return what we measured and what the paper has for the same networks; without measurements, all of the paper."""
    pairs = {(case.dataset, case.net) for case in ours}
    also = {case for case in theirs if not ours or (case.dataset, case.net) in pairs}
    return sorted(ours | also, key=paper.case_order)


def _block(
    metric: str,
    title: str,
    pair: str,
    better: Better,
    heads: Sequence[str],
    places: Sequence[Any],
    numbers: tuple[Numbers, Numbers],
) -> Block:
    found = {column for values in numbers for place, column in values if place in set(places)}
    columns = sorted(found, key=column_order)
    body: dict[str, list[Entry]] = {column: [] for column in columns}
    for place in places:
        ours, theirs = ({c: values[place, c] for c in columns if (place, c) in values} for values in numbers)
        our_marks, their_marks = (mark({c: v.mean for c, v in some.items()}, better) for some in (ours, theirs))
        for column, entries in body.items():
            entries.append(Entry(ours.get(column), theirs.get(column), our_marks.get(column), their_marks.get(column)))
    return Block(metric, title, pair, better, tuple(heads), {column: tuple(e) for column, e in body.items()})


UNSHIFTED = "clean"
"""The only column of a ranking without shifts."""


@dataclass(frozen=True)
class Standing:
    """One score in a ranking; one without a value under some shift is not `complete` and ranked last.

    `values` are means over severities and networks by shift, or NaN; `mean` is that of the known ones.
    """

    column: str
    values: Mapping[str, float]
    mean: float
    complete: bool


@dataclass(frozen=True)
class Ranking:
    """The scores of one pair, the best first; `places` are the shifts, or only "clean"."""

    dataset: str
    net: str
    places: tuple[str, ...]
    standings: tuple[Standing, ...]

    def find(self, column: str) -> Standing | None:
        """Return the standing of a score, or None."""
        return next((standing for standing in self.standings if standing.column == column), None)

    @property
    def best_of_methods(self) -> tuple[Standing, ...]:
        """The best score of each method, the best first."""
        found: dict[str, Standing] = {}
        for standing in self.standings:
            found.setdefault(split_column(standing.column)[0], standing)
        return tuple(found.values())

    @property
    def shifted(self) -> bool:
        """True for shifted inputs."""
        return self.places != (UNSHIFTED,)


def rankings(table: Any, metric: str = "roc_auc") -> list[Ranking]:
    """Return one ranking per pair in the order of the table; clean inputs count only without shifts."""
    frame = long_frame(table)
    found = averages(frame, metric)
    result = []
    for dataset, net in frame[PAIR].drop_duplicates().itertuples(index=False):
        own = {(c.shift, name): v.mean for (c, name), v in found.items() if (c.dataset, c.net) == (dataset, net)}
        result.append(_ranking(dataset, net, own or _clean(frame, dataset, net, metric)))
    return result


def _ranking(dataset: str, net: str, values: Mapping[tuple[str, str], float]) -> Ranking:
    places = tuple(dict.fromkeys(place for place, _ in values))
    standings = []
    for name in dict.fromkeys(name for _, name in values):
        own = {place: values.get((place, name), np.nan) for place in places}
        known = [value for value in own.values() if np.isfinite(value)]
        standings.append(Standing(name, own, float(np.mean(known)), len(known) == len(places)))
    standings.sort(key=lambda standing: (not standing.complete, -standing.mean))
    return Ranking(dataset, net, places, tuple(standings))


def _clean(frame: Any, dataset: str, net: str, metric: str) -> dict[tuple[str, str], float]:
    rows = comparable(frame[frame["metric"] == metric])
    asked = {"dataset": dataset, "net": net, "errors": "base", "shift": UNSHIFTED}
    for name, value in asked.items():
        rows = rows[rows[name] == value]
    means = rows.groupby("column", sort=False)["value"].mean().dropna()
    return {(UNSHIFTED, str(name)): float(value) for name, value in means.items()}
