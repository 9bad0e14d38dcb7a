"""The paper's claims, one line each: what its numbers say, what ours say, and the interval that decides it.

Differences and their intervals are those of `qipf.study.tables.paired`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from qipf.study.tables import paper
from qipf.study.tables.paired import LEAST_PAIRS, Paired, Verdict, sign, verdict
from qipf.study.tables.paper import Case
from qipf.study.tables.rows import TIME_METRIC, column_of, long_rows, time_rows

PaperSays = Literal["yes", "no", "tie", "not compared"]

TOPICS = {
    "roc_auc": "error detection (ROC-AUC)",
    "pr_auc": "error detection (PR-AUC)",
    "ece_paper": "calibration (ECE, paper version)",
    "ece_proper": "calibration (ECE, proper version)",
    "brier_paper": "calibration (Brier, paper version)",
    "brier_proper": "calibration (Brier, proper version)",
    "point_biserial": "error correlation (point-biserial)",
    "spearman": "error correlation (Spearman)",
}
OTHERS = {
    "mc-dropout": "MC dropout",
    "mc-dropout-ll": "MC dropout LL",
    "svi": "SVI",
    "svi-ll": "SVI LL",
    "ensemble": "the ensemble",
}


@dataclass(frozen=True)
class Claim:
    """A claim and its verdicts; `advantage` is positive where it favours the claim, whatever the metric.

    Attributes:
        text: the claim in words.
        scope: "most" (the best in most cases) and "headline" for the paper as a whole, "case" for one shift,
            dataset and network, "speed" for Table 3.
        metric: what it is about.
        paper: what the paper's own numbers say.
        here: what ours say: "yes" or "no" only where the whole interval is on that side.
        advantage: our difference ("most": the share of cases minus one half; "speed": the log ratio).
        low: lower end of its 95 % interval.
        high: upper end.
        detail: what the interval rests on.
    """

    text: str
    scope: Literal["most", "headline", "case", "speed"]
    metric: str
    paper: PaperSays
    here: Verdict
    advantage: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    detail: str = ""

    def __str__(self) -> str:
        line = f"{self.text}: paper {self.paper}, here {self.here}"
        if self.here == "not measured":
            return line
        if self.scope == "most":
            share, low, high = (0.5 + value for value in (self.advantage, self.low, self.high))
            return f"{line}, best in {share:.0%} [{low:.0%}, {high:.0%}] ({self.detail})"
        if self.scope == "speed":
            ratio, low, high = np.exp([self.advantage, self.low, self.high])
            return f"{line}, {ratio:.1f} times as fast [{low:.1f}, {high:.1f}] ({self.detail})"
        return f"{line}, difference {self.advantage:+.3f} [{self.low:+.3f}, {self.high:+.3f}] ({self.detail})"


def claims(
    table: Any,
    times: Iterable[Mapping[str, Any]] = (),
    *,
    metrics: Iterable[str] = tuple(TOPICS),
    ours: str = "qipf",
    resamples: int = 10_000,
    seed: int = 0,
) -> list[Claim]:
    """Every claim that the paper's tables make and our numbers can speak to, headlines first.

    Methods that the paper leaves out (softmax response, an ensemble's entropy, ...) are compared as well: for
    them the paper says "not compared".

    Args:
        table: the long table, see `qipf.study.tables.tables`.
        times: a store's times, where the table has none.
        metrics: which to compare in.
        ours: the method that stands for the paper's QIPF, such as "qipf-published".
        resamples: for the intervals.
        seed: of the resamples.
    """
    rows = [*long_rows(table), *time_rows(times)]
    headlines: list[Claim] = []
    cases: list[Claim] = []
    for metric in metrics:
        study = _Study(rows, metric, ours, resamples, seed)
        headlines += study.headlines()
        cases += study.cases()
    return headlines + _speed(rows, ours, resamples, seed) + cases


class _Study:
    """The differences between QIPF and every other method in one metric."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], metric: str, ours: str, resamples: int, seed: int) -> None:
        self.metric, self.ours = metric, ours
        self.theirs = paper.values(metric)
        self.paired = Paired(rows, metric, resamples, seed)
        self.values = {case: columns for case, columns in self.paired.values.items() if ours in columns}
        found = {column for columns in self.values.values() for column in columns} - {ours}
        self.others = [*OTHERS, *sorted(found - set(OTHERS))]

    def cases(self) -> list[Claim]:
        """QIPF beats that method under this shift on that dataset."""
        result = []
        for case in self.values:
            for other in self.others:
                if other in self.values[case]:
                    where = f"under {case.shift} on {paper.pair_title(case.dataset, case.net)}"
                    text = f"QIPF beats {OTHERS.get(other, other)} in {TOPICS[self.metric]} {where}"
                    result.append(self._claim(text, "case", [case], other, self._paper([case], other)))
        return result

    def headlines(self) -> list[Claim]:
        """QIPF beats that method on average over all its cases, and is the best in most."""
        result = [self._most_cases()] if self.theirs else []
        for other in self.others:
            cases = [case for case in self.values if other in self.values[case]]
            compared = [case for case, method in self.theirs if method == other]
            if cases or compared:
                text = f"QIPF beats {OTHERS.get(other, other)} in {TOPICS[self.metric]} on average"
                result.append(self._claim(text, "headline", cases, other, self._paper(compared, other)))
        return result

    def _claim(
        self, text: str, scope: Literal["headline", "case"], cases: list[Case], other: str, says: PaperSays
    ) -> Claim:
        found = self.paired.difference(self.ours, other, cases)
        if found is None:
            return Claim(text, scope, self.metric, says, "not measured")
        detail = f"{found.pairs} pairs, {_count(found.seeds, 'seed')}" + (
            f", {_count(found.cases, 'case')}" if len(cases) > 1 else ""
        )
        return Claim(text, scope, self.metric, says, found.verdict, found.value, found.low, found.high, detail)

    def _most_cases(self) -> Claim:
        """The share of cases in which QIPF is the best of the paper's methods, less one half."""
        text = f"QIPF is the best of the paper's methods in {TOPICS[self.metric]} in most cases"
        best = paper_best(self.metric)
        says: PaperSays = "yes" if np.mean(best) > 0.5 else "no"
        shares, draws, pairs = [], [], 0
        for case in self.values:
            rivals = [other for other in OTHERS if other in self.values[case]]
            grids = [self.paired.grid(case, self.ours, other) for other in rivals]
            if rivals and all(np.isfinite(grid).any() for grid in grids):
                pairs += max(int(np.isfinite(grid).sum()) for grid in grids)
                shares.append(all(np.nanmean(grid) > 0 for grid in grids))
                draws.append(np.all([self.paired.resampled(case, grid) > 0 for grid in grids], axis=0))
        if not shares:
            return Claim(text, "most", self.metric, says, "not measured")
        low, high = (float(v) for v in np.quantile(np.mean(draws, axis=0) - 0.5, [0.025, 0.975]))
        detail = f"in {sum(shares)} of {len(shares)} cases; paper {sum(best)} of {len(best)}"
        value = float(np.mean(shares)) - 0.5
        here = verdict(low, high) if pairs >= LEAST_PAIRS else "undecided"
        return Claim(text, "most", self.metric, says, here, value, low, high, detail)

    def _paper(self, cases: list[Case], other: str) -> PaperSays:
        gap = paper_gap(self.metric, other, cases)
        if gap is None:
            return "not compared"
        if abs(gap) < 1e-9:
            return "tie"
        return "yes" if gap > 0 else "no"


def paper_best(metric: str) -> list[bool]:
    """For each of the paper's cases, whether its own numbers have QIPF first, or level with the first."""
    theirs = paper.values(metric)
    return [
        all(sign(metric) * (theirs[case, "qipf"].mean - theirs[case, other].mean) >= 0 for other in OTHERS)
        for case in sorted({case for case, _ in theirs}, key=paper.case_order)
    ]


def paper_gap(metric: str, other: str, cases: Iterable[Case] | None = None) -> float | None:
    """By how much QIPF is better than another method in the paper's own numbers; None where it did not compare them.

    Args:
        metric: in which.
        other: the other method.
        cases: the mean is over those of them that the paper has; over all that it has if left out.
    """
    theirs = paper.values(metric)
    asked = dict.fromkeys(case for case, _ in theirs) if cases is None else cases  # in one order: sums round
    known = [case for case in asked if (case, other) in theirs]
    if not known or other == "qipf":
        return None
    return float(np.mean([sign(metric) * (theirs[case, "qipf"].mean - theirs[case, other].mean) for case in known]))


def _speed(rows: Iterable[Mapping[str, Any]], ours: str, resamples: int, seed: int) -> list[Claim]:
    """QIPF is faster than that method on this network (Table 3), each in forward passes measured beside it.

    The interval is that of the measurements, and at least what the forward passes differed by among themselves. One
    measurement without forward passes decides nothing.
    """
    rng = np.random.default_rng(seed)
    result = []
    clocks = _clocks(rows)
    for net in [*paper.NETS, *sorted(clocks.keys() - set(paper.NETS))]:
        times, noise = clocks.get(net, ({}, 0.0))
        for other in [*OTHERS, *sorted(times.keys() - {ours, *OTHERS})]:
            own, rival = times.get(ours), times.get(other)
            in_paper = (net, other) in paper.TIMES
            if not in_paper and not (own and rival):
                continue
            text = speed_text(other, net)
            says: PaperSays = "not compared"
            if in_paper:
                says = "yes" if paper.TIMES[net, "qipf"] < paper.TIMES[net, other] else "no"
            if not own or not rival:
                result.append(Claim(text, "speed", TIME_METRIC, says, "not measured"))
                continue
            drawn = _means(rng, rival, resamples) - _means(rng, own, resamples)
            value = float(np.mean(rival) - np.mean(own))
            low, high = (float(v) for v in np.quantile(drawn, [0.025, 0.975]))
            low, high = min(low, value - noise), max(high, value + noise)
            detail = f"{len(own)} and {len(rival)} measurements"
            if np.isfinite(noise) and noise > 0:
                detail += f"; forward passes differed by {np.expm1(noise):.0%}"
            result.append(Claim(text, "speed", TIME_METRIC, says, verdict(low, high), value, low, high, detail))
    return result


def speed_text(other: str, net: str) -> str:
    """The claim that QIPF is faster than another method on a network."""
    return f"QIPF is faster than {OTHERS.get(other, other)} on {paper.NETS.get(net, net)}"


def _clocks(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[dict[str, list[float]], float]]:
    """By network: logarithms of times by method, in forward passes where these are known, and of what is noise."""
    by_net: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for row in rows:
        if row["metric"] == TIME_METRIC and row["value"] > 0:
            forward = row.get("forward") or np.nan
            by_net[row["net"]].append((column_of(row), float(np.log(row["value"])), float(np.log(forward))))
    found = {}
    for net, lines in by_net.items():
        forwards = [forward for _, _, forward in lines]
        known = bool(np.isfinite(forwards).all())
        times: dict[str, list[float]] = defaultdict(list)
        for column, taken, forward in lines:
            times[column].append(taken - forward if known else taken)
        alone = any(len(values) == 1 for values in times.values())
        found[net] = (times, max(forwards) - min(forwards) if known else np.inf if alone else 0.0)
    return found


def _means(rng: np.random.Generator, values: list[float], resamples: int) -> np.ndarray:
    return np.array(values)[rng.integers(len(values), size=(resamples, len(values)))].mean(axis=1)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
