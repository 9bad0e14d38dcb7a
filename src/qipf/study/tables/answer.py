"""The answer in words: the best score on a model, its gain over the entropy of the softmax, what flagging brings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from qipf.study.plan.registry import REGISTRY, column, column_title
from qipf.study.run.read import Bench
from qipf.study.tables import images, paper
from qipf.study.tables.claims import in_words
from qipf.study.tables.frame import Frame, long_frame
from qipf.study.tables.images import Kept
from qipf.study.tables.paired import SHOWN, Paired
from qipf.study.tables.ranking import Ranking, rankings

BASELINE = "entropy"
FLAGGED = 0.1
"""The share of the predictions that the sentence flags."""

METRIC = "roc_auc"
Over = Literal["images", "networks", "intensities"]
OVER: dict[Over, str] = {
    "images": "over the test images",
    "networks": "over networks and intensities",
    "intensities": "over intensities",
}


@dataclass(frozen=True)
class Gain:
    """By how much the ROC-AUC of a score exceeds that of the baseline.

    Attributes:
        value: the difference.
        low: lower end of its 95 % interval; NaN where there is no interval.
        high: upper end of its 95 % interval; NaN where there is no interval.
        over: what was resampled for the interval.
    """

    value: float
    low: float
    high: float
    over: Over

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > SHOWN or self.high < -SHOWN

    def __str__(self) -> str:
        size = f"{abs(self.value):.3f} {'more' if self.value >= 0 else 'less'} than the {in_words(BASELINE)}"
        if not np.isfinite(self.low):
            return size
        noise = "" if self.clear else ", so the difference may be chance"
        return f"{size} (95\u00a0% interval {OVER[self.over]}: {self.low:+.3f} to {self.high:+.3f}{noise})"


@dataclass(frozen=True)
class Answer:
    """What a study says about one pair of dataset and network.

    Attributes:
        model: the pair in words.
        ranking: every score, the best first.
        gain: of the best score; None where the baseline was not measured or is the best.
        recommended: the rank of the recommended score, from 1; None where it was not measured.
        recommended_gain: its gain.
        clean: what flagging by the best score brings on clean inputs; None where predictions are not at hand.
        shifted: the same under the shifts.
    """

    model: str
    ranking: Ranking
    gain: Gain | None = None
    recommended: int | None = None
    recommended_gain: Gain | None = None
    clean: Kept | None = None
    shifted: Kept | None = None

    @property
    def sentence(self) -> str:
        """The best score, its gain, and what flagging brings."""
        if not self.ranking.standings:
            return f"On {self.model}, no score can be judged: there are no errors to find, or nothing but errors."
        best = self.ranking.standings[0]
        where = "over all shifts" if self.ranking.shifted else "on clean inputs"
        if best.column == BASELINE:
            first = f"On {self.model}, no score finds errors better than the {in_words(BASELINE)}"
            first += f" (ROC-AUC {best.mean:.3f} {where})"
        else:
            first = f"On {self.model}, errors are found best by {_quoted(best.column)}: ROC-AUC {best.mean:.3f} {where}"
            first += f", {self.gain}" if self.gain else ""
        kept = [f"{_percent(k.kept)} right {name} ({_percent(k.everything)} without flagging)"
                for name, k in (("on clean inputs", self.clean), ("under the shifts", self.shifted)) if k]  # fmt: skip
        if not kept:
            return f"{first}."
        share = f"{100 * FLAGGED:.0f}\u00a0%"
        return (
            f"{first}; flag the {share} of the predictions that it is least sure of, and the rest is {', '.join(kept)}."
        )

    @property
    def about_recommended(self) -> str:
        """Where the recommended score stands if it is not the best; empty where it is, or was not measured."""
        if self.recommended is None or self.recommended == 1:
            return ""
        own = self.ranking.standings[self.recommended - 1]
        gain = f", {self.recommended_gain}" if self.recommended_gain else ""
        place = f"number {self.recommended} of {len(self.ranking.standings)} scores"
        return f"The {in_words(own.column)} is {place}: ROC-AUC {own.mean:.3f}{gain}."


def recommended_columns() -> list[str]:
    """The columns of the family "recommended"."""
    entries = [entry for entry in REGISTRY.values() if entry.family == "recommended"]
    return [column(entry.name, statistic) for entry in entries for statistic in entry.statistics]


def answers(table: Any, bench: Bench | None = None) -> list[Answer]:
    """One answer per pair of dataset and network, in the order of the table.

    The interval of a gain is a paired bootstrap: over networks and intensities where there are several networks, over
    the test images where there is one. Without the predictions of that one network it is over intensities.

    Args:
        table: the long table.
        bench: the store, for what needs predictions; None where there are only tables.
    """
    frame = long_frame(table)
    return [_answer(frame, ranking, bench) for ranking in rankings(frame, METRIC)]


def _answer(frame: Frame, ranking: Ranking, bench: Bench | None) -> Answer:
    model = paper.pair_title(ranking.dataset, ranking.net)
    names = [standing.column for standing in ranking.standings]
    place = next((names.index(name) + 1 for name in recommended_columns() if name in names), None)
    if not names:
        return Answer(model, ranking)
    own = frame[(frame["dataset"] == ranking.dataset) & (frame["net"] == ranking.net)]
    clean, shifted = None, None
    if bench is not None:
        pair = (ranking.dataset, ranking.net)
        clean = images.kept_right(bench, images.conditions(bench, *pair, shifted=False), names[0], FLAGGED)
        shifted = images.kept_right(bench, images.conditions(bench, *pair, shifted=True), names[0], FLAGGED)
    gain = _gain(own, ranking, names[0], bench)
    other = None if place is None else _gain(own, ranking, names[place - 1], bench)
    return Answer(model, ranking, gain, place, other, clean, shifted)


def _gain(frame: Frame, ranking: Ranking, name: str, bench: Bench | None) -> Gain | None:
    ours, theirs = ranking.find(name), ranking.find(BASELINE)
    if ours is None or theirs is None or name == BASELINE:
        return None
    value = ours.mean - theirs.mean
    if bench is not None and frame["seed"].nunique() == 1:
        places = images.conditions(bench, ranking.dataset, ranking.net, ranking.shifted)
        drawn = images.image_gains(bench, places, name, BASELINE)
        if len(drawn):
            low, high = np.quantile(drawn, [0.025, 0.975])
            return Gain(value, float(low), float(high), "images")
    if not ranking.shifted:
        clean = frame[(frame["shift"] == "clean") & (frame["errors"] == "base")]
        frame = clean.assign(shift="unshifted", intensity=0.0)
    found = Paired(frame, METRIC).difference(name, BASELINE)
    if found is None or found.pairs < 2:
        return Gain(value, np.nan, np.nan, "intensities")
    return Gain(found.value, found.low, found.high, "networks" if found.seeds > 1 else "intensities")


def _quoted(name: str) -> str:
    return f"“{column_title(name)}”"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"
