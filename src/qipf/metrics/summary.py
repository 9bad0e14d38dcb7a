"""Compute every metric for a set of scores, with bootstrap intervals.

A resample of N predictions is a row of N integer weights. The predictions are sorted only once: each metric is computed
from cumulative sums over the weights, so resamples need no sorting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from qipf._common.errors import check_whole
from qipf._common.progress import track
from qipf.arrays import Array, to_numpy
from qipf.metrics.inputs import check, probabilities, unit_range, why_undefined
from qipf.metrics.probabilistic import Calibration
from qipf.metrics.ranking import FORMULAS, Counts


class Metric(NamedTuple):
    """The title of a metric, and whether higher or lower values are better (None if neither is)."""

    title: str
    better: Literal["higher", "lower"] | None


_BLOCK = 2**18  # weights in memory at once; a few MB per intermediate array
_LONG = 2**24  # a progress bar is shown if at least this many predictions are drawn, which takes about a second
MOST_RESAMPLES, LEAST_RESAMPLES, MOST_DRAWN = 1000, 100, 2**25
NO_PROBABILITY = "no error probabilities were passed"

METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", "higher"),
    "roc_auc": Metric("ROC-AUC", "higher"),
    "pr_auc": Metric("PR-AUC (average precision)", "higher"),
    "pr_auc_trapezoid": Metric("PR-AUC (paper's trapezoid)", "higher"),
    "fpr_at_95_tpr": Metric("FPR at 95% TPR", "lower"),
    "aurc": Metric("AURC", "lower"),
    "excess_aurc": Metric("excess AURC", "lower"),
    "augrc": Metric("AUGRC", "lower"),
    "point_biserial": Metric("point-biserial correlation", "higher"),
    "spearman": Metric("Spearman correlation", "higher"),
}
for _version in ("paper", "proper"):
    METRICS |= {
        f"ece_{_version}": Metric(f"ECE, {_version}", "lower"),
        f"ece_adaptive_{_version}": Metric(f"adaptive ECE, {_version}", "lower"),
        f"brier_{_version}": Metric(f"Brier, {_version}", "lower"),
        f"brier_{_version}_reliability": Metric(f"Brier reliability, {_version}", "lower"),
        f"brier_{_version}_resolution": Metric(f"Brier resolution, {_version}", "higher"),
        f"brier_{_version}_uncertainty": Metric(f"Brier uncertainty, {_version}", None),
    }
METRICS["nll_proper"] = Metric("NLL, proper", "lower")


def evaluate(
    uncertainty: Array,
    correct: Array,
    *,
    probability: Array | None = None,
    groups: Array | None = None,
    bootstrap: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, Any]:
    """Measure how well `uncertainty` detects wrong predictions, with 95% bootstrap intervals for every metric.

    Calibration metrics come in two versions. `proper` uses `probability`, which should come from a calibrator such as
    `qipf.ErrorProbability`, fitted to clean held-out data. `paper` uses the min-max scaled score, which is not a
    probability.

    Args:
        uncertainty: One score per prediction; higher is less certain.
        correct: Whether each prediction is correct, as booleans or zeros and ones.
        probability: The probability that each prediction is wrong.
        groups: The group of each prediction, for dependent predictions such as the pixels of an image. Entire groups
            are resampled; a single group yields no intervals.
        bootstrap: The number of resamples; 0 disables intervals. The default is 1,000 for up to about 33,000
            predictions, fewer for up to about 335,000, and 0 for more.
        seed: The seed of the resamples.
        progress: Show a progress bar.

    Returns:
        A dictionary with the numbers of predictions ("n") and errors ("errors"), and the value of every metric, keyed
        as in `METRICS`. The keys of interval bounds end in "_low" and "_high". Undefined metrics are NaN; "reasons"
        maps their names to the reasons.
    """
    if bootstrap is not None:
        check_whole("bootstrap", bootstrap, 0)
    check_whole("seed", seed, 0)
    scores, wrong = check(uncertainty, correct)
    bootstrap = resamples_for(scores.size) if bootstrap is None else bootstrap
    numbers = None if groups is None else group_numbers(groups, scores.size)
    if numbers is not None and numbers.size and numbers.max() == 0:
        bootstrap = 0
    p = None if probability is None else probabilities(probability, scores.size)
    order = np.argsort(scores, kind="stable")  # no metric depends on the order, and sorting a sorted array is cheap
    scores, wrong, p, numbers = scores[order], wrong[order], *(x if x is None else x[order] for x in (p, numbers))
    values = measure(scores, wrong, p, [np.ones((1, scores.size))]) if scores.size else {}
    reasons = {name: reason for name in METRICS if (reason := why_undefined(name, scores, wrong))}
    if p is None:
        reasons |= {name: NO_PROBABILITY for name in METRICS if "_proper" in name}
    result: dict[str, Any] = {"n": scores.size, "errors": int(wrong.sum())}
    drawn = {}
    if bootstrap and scores.size:
        drawn = resample(scores, wrong, p, bootstrap, seed, groups=numbers, progress=progress)
    for name in METRICS:
        result[name] = float("nan") if name in reasons else float(values[name][0])
        if bootstrap:
            low, high = (float("nan"),) * 2 if name in reasons else _interval(drawn[name])
            result |= {f"{name}_low": low, f"{name}_high": high}
    return result | {"reasons": reasons}


def resamples_for(predictions: int) -> int:
    """Return the default number of resamples of `evaluate`: from 100 to 1,000, or 0 if 100 would take too long."""
    count = min(MOST_RESAMPLES, MOST_DRAWN // max(1, predictions))
    return count if count >= LEAST_RESAMPLES else 0


def _interval(values: np.ndarray) -> tuple[float, float]:
    """Return the 2.5% and 97.5% quantiles over the resamples in which the metric is defined."""
    defined = values[~np.isnan(values)]
    if defined.size == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(low), float(high)


def measure(
    scores: np.ndarray, wrong: np.ndarray, probability: np.ndarray | None, resamples: Iterable[np.ndarray]
) -> dict[str, np.ndarray]:
    """Return every metric for every resample; undefined metrics are NaN.

    Args:
        scores: (N,), in ascending order; N is at least 1.
        wrong: (N,) booleans.
        probability: (N,) error probabilities, or None.
        resamples: Blocks of weights (R, N), which count how often each prediction occurs in each resample.
    """
    errors = wrong.astype(np.float64)
    # The scores of every resample are scaled by the extremes of the full set: the bootstrap is invalid for extremes.
    versions = {"paper": unit_range(scores), "proper": probability}
    calibrations = {name: Calibration(p, errors) for name, p in versions.items() if p is not None}
    parts: dict[str, list[np.ndarray]] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for weights in resamples:
            counts = Counts(scores, errors, weights)
            found = {name: formula(counts) for name, formula in FORMULAS.items()}
            for version, calibration in calibrations.items():
                found |= {name.format(version): values for name, values in calibration(weights).items()}
            for name, values in found.items():
                parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def resample(
    scores: np.ndarray, wrong: np.ndarray, probability: np.ndarray | None, count: int, seed: int, *,
    groups: np.ndarray | None = None, progress: bool = False,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return every metric for each of `count` resamples.

    If `groups` is given, as (N,) integers from 0 to G - 1, every resample consists of G randomly drawn groups with all
    their predictions.
    """
    n, order = len(scores), np.argsort(scores, kind="stable")
    p, groups = (x if x is None else x[order] for x in (probability, groups))
    blocks = resample_weights(n, count, seed, groups)
    if progress and n * count >= _LONG:
        blocks = track(blocks, "resampling", total=-(-count // _rows(n)))
    return measure(scores[order], wrong[order], p, blocks)


def _rows(n: int) -> int:
    return max(1, _BLOCK // n)


def resample_weights(n: int, count: int, seed: int, groups: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield the weights of `count` resamples of n predictions, in blocks (R, n)."""
    rng = np.random.default_rng(seed)
    rows, units = _rows(n), n if groups is None else int(groups.max()) + 1
    for start in range(0, count, rows):
        size = min(rows, count - start)
        drawn = rng.integers(0, units, size=(size, units)) + units * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units).astype(np.float64)
        yield times if groups is None else times[:, groups]


def group_numbers(groups: Array, size: int) -> np.ndarray:
    """Return the group index, from 0 to G - 1, of each of `size` predictions."""
    names = to_numpy(groups).ravel()
    if names.size != size:
        raise ValueError(f"groups: expected {size} values, one per prediction, got {names.size}")
    return np.unique(names, return_inverse=True)[1]
