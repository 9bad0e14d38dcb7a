"""The paper's tables, computed from a long table: our numbers beside the paper's, with the best two of each marked.

Methods are compared on the inputs that all of them scored.
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
"""Values keyed by row (a case, or a network in Table 3) and column."""


@dataclass(frozen=True)
class Entry:
    """Our number and the paper's, with their marks."""

    ours: Value | None = None
    paper: Value | None = None
    ours_mark: Mark = None
    paper_mark: Mark = None


@dataclass(frozen=True)
class Block:
    """One metric for one pair of dataset and network.

    Attributes:
        pair: Title of the pair; "" in Table 3.
        heads: Shifts or, in Table 3, networks.
        body: One entry per heading, keyed by score.
    """

    metric: str
    title: str
    pair: str
    better: Better
    heads: tuple[str, ...]
    body: Mapping[str, tuple[Entry, ...]]

    @property
    def measured(self) -> bool:
        """True if the block contains our own numbers."""
        return any(entry.ours for entries in self.body.values() for entry in entries)


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper, with numbers averaged over `spread`."""

    name: str
    title: str
    source: str
    blocks: tuple[Block, ...]
    spread: str = "intensities"


TABLES: dict[str, tuple[str, str, dict[str, str], Errors]] = {
    "table-1": ("Table 1", "Error detection", {"roc_auc": "ROC-AUC", "pr_auc": "PR-AUC"}, "base"),
    "table-1-own": (
        "Table 1", "Error detection, own errors of multi-pass methods",
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
"""Name in the paper, title, titles of the metrics, and kind of error for each table.

In Table 2, scores are scaled over the evaluated set ("paper") or calibrated on clean data ("proper").
"""


def table_3(times: Iterable[Mapping[str, Any]]) -> PaperTable:
    """Return Table 3: mean and standard deviation, over measurements, of the milliseconds per test sample."""
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
    """Return every table of the paper; Table 1 for the methods' own errors is included only if these were measured."""
    frame = long_frame(table)
    own = (frame["errors"] == "own").any()
    return [*(paper_table(frame, name) for name in TABLES if own or name != "table-1-own"), table_3(times)]


def averages(table: Any, metric: str, errors: Errors = "base") -> dict[tuple[Case, str], Value]:
    """Average values over seeds, and return their mean and standard deviation over intensities.

    Keys are cases and columns. Missing values are left out.
    """
    frame = long_frame(table)
    rows = shifted(comparable(frame[frame["metric"] == metric]), errors)
    means = rows.groupby([*CASE, "column", "intensity"], sort=False)["value"].mean().dropna()
    return {
        (Case(*key[:3]), key[3]): Value(float(values.mean()), float(np.std(values)), len(values))
        for key, values in means.groupby([*CASE, "column"], sort=False)
    }


def notes_on_fewer_networks(table: Any) -> list[str]:
    """Return sentences about methods that were measured for only some of the seeds of a pair."""
    frame = long_frame(table)
    sentences = []
    for pair, rows in frame.groupby(PAIR, sort=False):
        every, groups = set(rows["seed"]), defaultdict(list)
        for method, seeds in rows.groupby("method", sort=False)["seed"]:
            if set(seeds) != every:
                groups[tuple(sorted(set(seeds)))].append(str(method))
        for seeds, methods in groups.items():
            some = f"{len(seeds)} of {len(every)} networks (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"
            verb = "were" if len(methods) > 1 else "was"
            sentences.append(f"On {paper.pair_title(*pair)}, {', '.join(methods)} {verb} measured on only {some}.")
    return sentences


def mark(values: Mapping[str, float], better: Better) -> dict[str, Mark]:
    """Mark the best and second-best values; equal values share a mark."""
    ranked = sorted(set(values.values()), reverse=better == "higher")[:2]
    marks: dict[float, Mark] = dict(zip(ranked, ("best", "second"), strict=False))
    return {name: marks.get(value) for name, value in values.items()}


def paper_table(table: Any, name: str) -> PaperTable:
    """Return one of `TABLES`, with values averaged over seeds and intensities."""
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
    """Return our cases and the paper's cases for the same networks; if nothing was measured, all cases of the paper."""
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
"""The only entry of `Ranking.places` if there are no shifts."""


@dataclass(frozen=True)
class Standing:
    """One score in a ranking.

    Attributes:
        values: Means over intensities and seeds, keyed by shift; NaN if missing.
        mean: Mean of the values present.
        complete: True if no value is missing; incomplete scores are ranked last.
    """

    column: str
    values: Mapping[str, float]
    mean: float
    complete: bool


@dataclass(frozen=True)
class Ranking:
    """The scores of one pair from best to worst; `places` contains the shifts, or only "clean"."""

    dataset: str
    net: str
    places: tuple[str, ...]
    standings: tuple[Standing, ...]

    def find(self, column: str) -> Standing | None:
        """Return the standing of a score, or None."""
        return next((standing for standing in self.standings if standing.column == column), None)

    @property
    def best_of_methods(self) -> tuple[Standing, ...]:
        """The best score of each method, from best to worst."""
        found: dict[str, Standing] = {}
        for standing in self.standings:
            found.setdefault(split_column(standing.column)[0], standing)
        return tuple(found.values())

    @property
    def shifted(self) -> bool:
        """True if the ranking is for shifted inputs."""
        return self.places != (UNSHIFTED,)


def rankings(table: Any, metric: str = "roc_auc") -> list[Ranking]:
    """Return one ranking per pair; clean inputs are used only if there are no shifts."""
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
