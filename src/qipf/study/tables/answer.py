"""Summarise a study in words: the best score, its gain over the softmax entropy, and the effect of flagging."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from qipf.decisions.comparison import AT_CHANCE, at_chance
from qipf.metrics.ranking import FORMULAS, Counts, accuracy_at
from qipf.metrics.summary import group_numbers
from qipf.study.plan.registry import REGISTRY, column, column_title
from qipf.study.run.read import Bench, Condition, Predictions
from qipf.study.tables import paper
from qipf.study.tables.claims import in_words
from qipf.study.tables.frame import Frame, column_of, long_frame
from qipf.study.tables.paired import SHOWN, Paired
from qipf.study.tables.paper_tables import Ranking, rankings

RESAMPLES = 300


class Kept(NamedTuple):
    """Accuracy on all predictions, and on those kept when the least certain are flagged."""

    everything: float
    kept: float


def conditions(bench: Bench, dataset: str, net: str, shifted: bool) -> list[Condition]:
    """Return the shifted or the clean conditions of a dataset and network, without out-of-distribution datasets."""
    return [
        condition
        for condition in bench.conditions()
        if (condition.dataset, condition.net) == (dataset, net)
        and not condition.shift.startswith("ood:")
        and (condition.shift != "clean") == shifted
    ]


def columns_of(predictions: Predictions) -> dict[str, np.ndarray]:
    """Return the scores of predictions, keyed by column (see `column_of`)."""
    return {column_of(method, score): values for (method, score), values in predictions.scores.items()}


def kept_right(bench: Bench, places: list[Condition], column: str, flagged: float) -> Kept | None:
    """Return the mean accuracy before and after flagging, over the conditions whose scores are all finite, if any."""
    found = []
    for condition in places:
        predictions = bench.predictions(condition).common()
        scores, correct = columns_of(predictions).get(column), predictions.correct
        if scores is not None and len(correct) and np.isfinite(scores).all():
            found.append((correct.mean(), accuracy_at(scores, correct, 1 - flagged)))
    return Kept(*(float(value) for value in np.mean(found, axis=0))) if found else None


def image_gains(bench: Bench, places: list[Condition], column: str, baseline: str) -> np.ndarray:
    """Resample images, and return the differences in ROC-AUC between two scores, averaged over conditions.

    The array is empty unless a condition has both scores, several images, and both correct and wrong
    predictions.
    """
    by_shift: dict[str, list[np.ndarray]] = defaultdict(list)
    for condition in places:
        predictions = bench.predictions(condition).common()
        found, wrong = columns_of(predictions), ~predictions.correct
        if column not in found or baseline not in found or not 0 < wrong.sum() < len(wrong):
            continue
        units = np.arange(len(wrong)) if predictions.groups is None else group_numbers(predictions.groups, len(wrong))
        if not units.any():
            continue
        size, generator, areas = int(units.max()) + 1, np.random.default_rng(0), []
        draws = [np.bincount(generator.integers(size, size=size), minlength=size) for _ in range(RESAMPLES)]
        drawn = np.stack(draws)[:, units]
        for name in (column, baseline):
            order = np.argsort(found[name], kind="stable")
            areas.append(FORMULAS["roc_auc"](Counts(found[name][order], wrong[order], drawn[:, order])))
        by_shift[condition.shift].append(areas[0] - areas[1])
    if not by_shift:
        return np.array([])
    means = [np.nanmean(np.ma.masked_invalid(differences), axis=0) for differences in by_shift.values()]
    return np.ma.mean(np.ma.stack(means), axis=0).compressed()


BASELINE = "entropy"
FLAGGED = 0.1
"""Fraction of predictions that the summary flags."""

METRIC = "roc_auc"
Over = Literal["images", "networks", "intensities"]
OVER: dict[Over, str] = {
    "images": "over test images",
    "networks": "over networks and intensities",
    "intensities": "over intensities",
}


@dataclass(frozen=True)
class Gain:
    """Gain in ROC-AUC over the baseline, with its 95% interval (or NaN) and the resampled units."""

    value: float
    low: float
    high: float
    over: Over

    @property
    def clear(self) -> bool:
        """True if the interval excludes zero."""
        return self.low > SHOWN or self.high < -SHOWN

    def __str__(self) -> str:
        size = f"{abs(self.value):.3f} {'higher' if self.value >= 0 else 'lower'} than for the {in_words(BASELINE)}"
        if not np.isfinite(self.low):
            return size
        noise = "" if self.clear else ", so the difference may be due to chance"
        return f"{size} (95% interval {OVER[self.over]}: {self.low:+.3f} to {self.high:+.3f}{noise})"


@dataclass(frozen=True)
class Answer:
    """The result for one dataset and network.

    Attributes:
        gain: Gain of the best score; None if the baseline is best or was not measured.
        recommended: 1-based rank of the recommended score among the methods; None if not measured.
        clean: Effect, on clean inputs, of flagging with the best score.
        shifted: The same under the shifts.
        at_chance: True if the model is no better than chance on clean inputs.
    """

    model: str
    ranking: Ranking
    gain: Gain | None = None
    recommended: int | None = None
    recommended_gain: Gain | None = None
    clean: Kept | None = None
    shifted: Kept | None = None
    at_chance: bool = False

    @property
    def sentence(self) -> str:
        """The best score, its gain, and the effect of flagging."""
        if not self.ranking.standings:
            return f"On {self.model}, no score can be judged, because all predictions are correct or all are wrong."
        if self.at_chance:
            return f"On {self.model}, no score is recommended: {AT_CHANCE}."
        best = self.ranking.standings[0]
        where = "over all shifts" if self.ranking.shifted else "on clean inputs"
        if best.column == BASELINE:
            first = f"On {self.model}, no score finds errors better than the {in_words(BASELINE)}"
            first += f" (ROC-AUC {best.mean:.3f} {where})"
        else:
            first = f"On {self.model}, the best score for finding errors is “{column_title(best.column)}”"
            first += f": ROC-AUC {best.mean:.3f} {where}"
            first += f", {self.gain}" if self.gain else ""
        kept = [f"{_percent(k.kept)} {name} ({_percent(k.everything)} without flagging)"
                for name, k in (("on clean inputs", self.clean), ("under the shifts", self.shifted)) if k]  # fmt: skip
        if not kept:
            return f"{first}."
        share = f"{100 * FLAGGED:.0f}%"
        return (
            f"{first}. If the least certain {share} of the predictions are flagged, "
            f"the accuracy of the rest is {' and '.join(kept)}."
        )

    @property
    def about_recommended(self) -> str:
        """The rank of the recommended score in words; "" if there is nothing to add."""
        if self.recommended is None or self.recommended == 1 or self.at_chance:
            return ""
        own = self.ranking.best_of_methods[self.recommended - 1]
        gain = f", {self.recommended_gain}" if self.recommended_gain else ""
        place = f"rank {self.recommended} among {len(self.ranking.best_of_methods)} methods"
        return f"The {in_words(own.column)} has {place}: ROC-AUC {own.mean:.3f}{gain}."


def recommended_columns() -> list[str]:
    """Return the columns of the family "recommended"."""
    entries = [entry for entry in REGISTRY.values() if entry.family == "recommended"]
    return [column(entry.name, statistic) for entry in entries for statistic in entry.statistics]


def answers(table: Any, bench: Bench | None = None) -> list[Answer]:
    """Return one answer per dataset and network.

    Intervals are bootstrapped over networks and intensities or, for a single network, over test images
    (over intensities if no predictions are stored).
    """
    frame = long_frame(table)
    return [_answer(frame, ranking, bench) for ranking in rankings(frame, METRIC)]


def _answer(frame: Frame, ranking: Ranking, bench: Bench | None) -> Answer:
    model = paper.pair_title(ranking.dataset, ranking.net)
    names = [standing.column for standing in ranking.best_of_methods]
    place = next((names.index(name) + 1 for name in recommended_columns() if name in names), None)
    if not names:
        return Answer(model, ranking)
    own = frame[(frame["dataset"] == ranking.dataset) & (frame["net"] == ranking.net)]
    clean, shifted, chance = None, None, False
    if bench is not None:
        pair = (ranking.dataset, ranking.net)
        found = [bench.predictions(one) for one in conditions(bench, *pair, shifted=False)]
        chance = bool(found) and all(at_chance(one.labels, one.predicted) for one in found)
        clean = kept_right(bench, conditions(bench, *pair, shifted=False), names[0], FLAGGED)
        shifted = kept_right(bench, conditions(bench, *pair, shifted=True), names[0], FLAGGED)
    gain = _gain(own, ranking, names[0], bench)
    other = None if place is None else _gain(own, ranking, names[place - 1], bench)
    return Answer(model, ranking, gain, place, other, clean, shifted, chance)


def _gain(frame: Frame, ranking: Ranking, name: str, bench: Bench | None) -> Gain | None:
    ours, theirs = ranking.find(name), ranking.find(BASELINE)
    if ours is None or theirs is None or name == BASELINE:
        return None
    value = ours.mean - theirs.mean
    if bench is not None and frame["seed"].nunique() == 1:
        places = conditions(bench, ranking.dataset, ranking.net, ranking.shifted)
        drawn = image_gains(bench, places, name, BASELINE)
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


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
