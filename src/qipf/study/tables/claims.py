"""Judge the paper's claims by its numbers and by ours, with an interval for each of our verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from qipf.study.plan.registry import STATISTICS, info, split_column
from qipf.study.tables import paper
from qipf.study.tables.frame import Frame, column_order, long_frame, times_frame
from qipf.study.tables.paired import LEAST_PAIRS, RESAMPLES, Paired, Verdict, sign, verdict
from qipf.study.tables.paper import Case

TIME_METRIC = "ms_per_sample"
"""Name of the metric in Table 3 of the paper."""

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
RIVALS = tuple(method for method in paper.METHODS if method != "qipf")
"""Methods with which the paper compares QIPF."""


@dataclass(frozen=True)
class Claim:
    """A claim and its verdicts.

    Attributes:
        scope: "most" (best in most cases), "headline" (on average), "case" (one shift on one dataset and network), or
            "speed" (Table 3).
        other: Column (for "speed", method) compared with QIPF; "" for all methods in the paper.
        paper: Verdict based on the paper's numbers.
        here: Verdict based on our numbers.
        advantage: Difference in our numbers, positive if it supports the claim. For "most", the fraction of cases in
            which QIPF is best, minus one half; for "speed", the logarithm of the time ratio.
        low: Lower end of the 95% interval.
        high: Upper end.
        detail: Amount of data behind the interval.
        net: Network, for "speed".
        chance: Two-sided bootstrap p-value.
    """

    text: str
    scope: Literal["most", "headline", "case", "speed"]
    metric: str
    other: str
    paper: PaperSays
    here: Verdict
    advantage: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    detail: str = ""
    net: str = ""
    chance: float = 1.0

    @property
    def evidence(self) -> str:
        """The difference behind the verdict, with its interval and the amount of data."""
        if self.here == "not measured":
            return ""
        if self.scope == "most":
            share, low, high = (0.5 + value for value in (self.advantage, self.low, self.high))
            return f"best in {share:.0%} [{low:.0%}, {high:.0%}] ({self.detail})"
        if self.scope == "speed":
            ratio, low, high = np.exp([self.advantage, self.low, self.high])
            return f"{ratio:.1f} times as fast [{low:.1f}, {high:.1f}] ({self.detail})"
        return f"difference {self.advantage:+.3f} [{self.low:+.3f}, {self.high:+.3f}] ({self.detail})"

    def __str__(self) -> str:
        parts = (f"{self.text}: paper {self.paper}, here {self.here}", self.evidence)
        return ", ".join(part for part in parts if part)


def claims(
    table: Any, times: Iterable[Mapping[str, Any]] = (), *, metrics: Iterable[str] = tuple(TOPICS), ours: str = "qipf"
) -> list[Claim]:
    """Judge every claim that the paper's tables support or contradict, headlines first.

    Methods that the paper omits are also compared, with "not compared" as the paper's verdict. `ours` is the method
    that represents QIPF, such as "qipf-published".
    """
    frame = long_frame(table)
    headlines: list[Claim] = []
    cases: list[Claim] = []
    for metric in metrics:
        compared = _Compared(frame, metric, ours)
        headlines += compared.headlines()
        cases += compared.cases()
    return headlines + _speed(times_frame(times), ours) + cases


class _Compared:
    """Differences between QIPF and every other method in one metric."""

    def __init__(self, frame: Frame, metric: str, ours: str) -> None:
        self.metric, self.ours = metric, ours
        self.theirs = paper.values(metric)
        self.paired = Paired(frame, metric)
        self.values = {case: columns for case, columns in self.paired.values.items() if ours in columns}
        found = {column for columns in self.values.values() for column in columns} - {ours}
        self.others = [*RIVALS, *sorted(found - set(RIVALS), key=column_order)]

    def cases(self) -> list[Claim]:
        """Compare QIPF with every method in every case (one shift on one dataset and network)."""
        result = []
        for case in self.values:
            for other in self.others:
                if other in self.values[case]:
                    where = f"under {case.shift} on {paper.pair_title(case.dataset, case.net)}"
                    text = f"QIPF beats {in_words(other)} in {TOPICS[self.metric]} {where}"
                    result.append(self._claim(text, "case", [case], other, self._paper([case], other)))
        return result

    def headlines(self) -> list[Claim]:
        """Compare QIPF with every method on average over all cases, and count the cases in which it is best."""
        result = [self._most_cases()] if self.theirs else []
        for other in self.others:
            cases = [case for case in self.values if other in self.values[case]]
            compared = [case for case, method in self.theirs if method == other]
            if cases or compared:
                text = f"QIPF beats {in_words(other)} in {TOPICS[self.metric]} on average"
                result.append(self._claim(text, "headline", cases, other, self._paper(compared, other)))
        return result

    def _claim(
        self, text: str, scope: Literal["headline", "case"], cases: list[Case], other: str, says: PaperSays
    ) -> Claim:
        found = self.paired.difference(self.ours, other, cases)
        if found is None:
            return Claim(text, scope, self.metric, other, says, "not measured")
        detail = f"{found.pairs} pairs, {_count(found.seeds, 'seed')}" + (
            f", {_count(found.cases, 'case')}" if len(cases) > 1 else ""
        )
        return Claim(text, scope, self.metric, other, says, found.verdict, found.value, found.low, found.high, detail,
                     chance=found.chance)  # fmt: skip

    def _most_cases(self) -> Claim:
        """Return the claim that QIPF is the best of the paper's methods in most cases."""
        text = f"QIPF is the best of the paper's methods in {TOPICS[self.metric]} in most cases"
        best = paper_best(self.metric)
        says: PaperSays = "yes" if np.mean(best) > 0.5 else "no"
        cases, shares, draws, pairs = [], [], [], 0
        for case in self.values:
            rivals = [other for other in RIVALS if other in self.values[case]]
            grids = [self.paired.grid(case, self.ours, other) for other in rivals]
            if rivals and all(np.isfinite(grid).any() for grid in grids):
                pairs += max(int(np.isfinite(grid).sum()) for grid in grids)
                cases.append(case)
                shares.append(all(np.nanmean(grid) > 0 for grid in grids))
                draws.append(np.all([self.paired.resampled(case, grid) > 0 for grid in grids], axis=0))
        if not shares:
            return Claim(text, "most", self.metric, "", says, "not measured")
        low, high = (float(v) for v in np.quantile(self.paired.averaged(cases, draws) - 0.5, [0.025, 0.975]))
        detail = f"{sum(shares)} of {len(shares)} cases; paper {sum(best)} of {len(best)}"
        value = float(np.mean(shares)) - 0.5
        here = verdict(low, high) if pairs >= LEAST_PAIRS else "undecided"
        return Claim(text, "most", self.metric, "", says, here, value, low, high, detail)

    def _paper(self, cases: list[Case], other: str) -> PaperSays:
        gap = paper_gap(self.metric, other, cases)
        if gap is None:
            return "not compared"
        if abs(gap) < 1e-9:
            return "tie"
        return "yes" if gap > 0 else "no"


def paper_best(metric: str) -> list[bool]:
    """Return, for each of the paper's cases, whether QIPF is best or tied."""
    theirs = paper.values(metric)
    return [
        all(sign(metric) * (theirs[case, "qipf"].mean - theirs[case, other].mean) >= 0 for other in RIVALS)
        for case in sorted({case for case, _ in theirs}, key=paper.case_order)
    ]


def paper_gap(metric: str, other: str, cases: Iterable[Case] | None = None) -> float | None:
    """Return the mean advantage of QIPF over another method in the paper, or None if the paper has no comparison."""
    theirs = paper.values(metric)
    # a fixed order, because floating-point sums depend on it
    asked = dict.fromkeys(case for case, _ in theirs) if cases is None else cases
    known = [case for case in asked if (case, other) in theirs]
    if not known or other == "qipf":
        return None
    return float(np.mean([sign(metric) * (theirs[case, "qipf"].mean - theirs[case, other].mean) for case in known]))


def _speed(times: Frame, ours: str) -> list[Claim]:
    """Compare the speed of QIPF with that of every other method on every network (Table 3).

    The interval is bootstrapped over the measurements and extends on either side of the estimate by at least the spread
    of the forward-pass times. If the forward pass was not timed, a single measurement allows no verdict.
    """
    rng = np.random.default_rng(0)
    result = []
    times = times[times["method_ms"] > 0]
    clocks = {str(net): _clock(rows) for net, rows in times.groupby("net")}
    for net in [*paper.NETS, *sorted(clocks.keys() - set(paper.NETS))]:
        taken, noise = clocks.get(net, ({}, 0.0))
        for method in [*RIVALS, *sorted(taken.keys() - {ours, *RIVALS}, key=column_order)]:
            own, rival = taken.get(ours), taken.get(method)
            in_paper = (net, method) in paper.TIMES
            if not in_paper and (own is None or rival is None):
                continue
            text = f"QIPF is faster than {info(method).title} on {paper.NETS.get(net, net)}"
            says: PaperSays = "not compared"
            if in_paper:
                says = "yes" if paper.TIMES[net, "qipf"] < paper.TIMES[net, method] else "no"
            if own is None or rival is None:
                result.append(Claim(text, "speed", TIME_METRIC, method, says, "not measured", net=net))
                continue
            drawn = _means(rng, rival) - _means(rng, own)
            value = float(np.mean(rival) - np.mean(own))
            low, high = (float(v) for v in np.quantile(drawn, [0.025, 0.975]))
            low, high = min(low, value - noise), max(high, value + noise)
            detail = f"{len(own)} and {len(rival)} measurements"
            if np.isfinite(noise) and noise > 0:
                detail += f"; forward passes differed by {np.expm1(noise):.0%}"
            result.append(
                Claim(text, "speed", TIME_METRIC, method, says, verdict(low, high), value, low, high, detail, net)
            )
    return result


def in_words(name: str) -> str:
    """Return a column name for use in a sentence, such as "entropy of the softmax"."""
    method, statistic = split_column(name)
    words, title = STATISTICS.get(statistic, statistic), info(method).title
    if title[1:2].islower() and title[:1].isupper():
        title = title[0].lower() + title[1:]
    return f"{title} ({words})" if words else title


def _clock(times: Frame) -> tuple[dict[str, np.ndarray], float]:
    """Return the logarithms of the times of one network, keyed by method, and the noise of these logarithms.

    If the forward pass was always timed, times are relative to the forward pass, and the noise is the spread of its
    times. Otherwise, the noise is infinite if any method was timed only once, and zero if not.
    """
    forward = np.log(times["forward_ms"])
    known = bool(np.isfinite(forward).all())
    taken = np.log(times["method_ms"]) - (forward if known else 0.0)
    by_method = {
        "qipf" if method == "weight-qipf" else str(method): values.to_numpy()
        for method, values in taken.groupby(times["method"])
    }
    if known:
        return by_method, float(forward.max() - forward.min())
    return by_method, np.inf if any(len(values) == 1 for values in by_method.values()) else 0.0


def _means(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    return values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
