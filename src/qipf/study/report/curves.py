"""A set of scores reduced to what its charts need: some hundred numbers, however many predictions there were.

ROC, precision-recall and risk-coverage curves are three views of one function: the number of errors among the fraction
f of the predictions that are least certain (`qipf.study.tables.images.errors_found`). It is kept on a fixed grid that
is finer where f is small.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

FRACTIONS = np.array(
    [0, 0.002, 0.005]
    + [step / 100 for step in range(1, 10)]
    + [step / 40 for step in range(4, 21)]
    + [step / 20 for step in range(11, 21)]
)
"""The fractions of flagged predictions at which the curves are kept."""

BINS = 30
RELIABILITY_BINS = 10


class Axis(NamedTuple):
    """The range of a histogram; scores outside it are counted in the first or last bin."""

    low: float
    high: float
    log: bool


def axis_of(scores: np.ndarray) -> Axis:
    """A range that shows nearly all scores, logarithmic where they are positive and span several magnitudes."""
    low, middle, high = (float(value) for value in np.quantile(scores, [0.005, 0.5, 0.995]))
    if low >= 0 and high > 20 * middle > 0:
        least = float(np.quantile(scores[scores > 0], 0.02))
        return Axis(min(max(least, high * 1e-8), high / 10), high, True)
    if low == high:
        pad = abs(low) * 0.01 or 0.5
        return Axis(low - pad, high + pad, False)
    return Axis(low, high, False)


def histogram(scores: np.ndarray, wrong: np.ndarray, axis: Axis, bins: int = BINS) -> list[list[int]]:
    """Counts of right and of wrong predictions in bins of equal width on the axis."""
    low, high = (np.log10(axis.low), np.log10(axis.high)) if axis.log else (axis.low, axis.high)
    values = np.log10(np.maximum(scores, axis.low)) if axis.log else scores
    place = np.clip(((values - low) / (high - low) * bins).astype(np.int64), 0, bins - 1)
    return [np.bincount(place[group], minlength=bins).tolist() for group in (~wrong, wrong)]


def reliability(probability: np.ndarray, wrong: np.ndarray, bins: int = RELIABILITY_BINS) -> list[list[float]]:
    """[predictions, mean probability of error, share of errors] for every bin of probability that is not empty."""
    place = np.minimum((probability * bins).astype(np.int64), bins - 1)
    result = []
    for number in np.unique(place):
        inside = place == number
        chance, share = float(probability[inside].mean()), float(wrong[inside].mean())
        result.append([int(inside.sum()), round(chance, 3), round(share, 3)])
    return result


def compact(values: np.ndarray) -> list[Any]:
    """Numbers with one decimal, whole ones without."""
    return [int(value) if value == int(value) else float(value) for value in np.round(values, 1)]
