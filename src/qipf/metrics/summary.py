"""Every metric of a set of scores, in one dictionary."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from qipf._common.errors import check_whole
from qipf.arrays import Array
from qipf.metrics import probabilistic, ranking
from qipf.metrics.inputs import check, probabilities, unit_range, why_undefined
from qipf.metrics.resampling import group_numbers, resample


class Metric(NamedTuple):
    """The title of a metric, and which direction is better; None if neither is."""

    title: str
    better: Literal["higher", "lower"] | None


MOST_RESAMPLES, LEAST_RESAMPLES, MOST_DRAWN = 1000, 100, 2**25
NO_PROBABILITY = "no probability of error was given"

METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", "higher"),
    "roc_auc": Metric("ROC-AUC", "higher"),
    "pr_auc": Metric("PR-AUC (average precision)", "higher"),
    "pr_auc_trapezoid": Metric("PR-AUC (paper's trapezoid)", "higher"),
    "fpr_at_95_tpr": Metric("FPR at 95 % TPR", "lower"),
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
    """Measure how well `uncertainty` finds the wrong predictions: every metric, with bootstrap 95 % intervals.

    Calibration comes in two versions. For `paper`, the score is scaled to [0, 1] by its minimum and maximum over these
    predictions, and confidence is one minus it, as the paper seems to do; strictly, this is not a probability. For
    `proper`, the probability of error is `probability`, from a calibrator fitted to clean held-out data
    (`qipf.ErrorProbability`).

    Args:
        uncertainty: One score per prediction; higher is less certain.
        correct: Whether each prediction is correct (booleans, or zeros and ones).
        probability: The probability that each prediction is wrong, for the `proper` metrics.
        groups: The group of each prediction, (N,), if predictions depend on each other, as the pixels of an image do:
            entire groups are resampled, and one group alone has no intervals.
        bootstrap: The number of resamples; 0 for no intervals. None takes what a few seconds allow (`resamples_for`):
            1,000 up to about 33,000 predictions, none above 335,000.
        seed: Seed of the resamples.
        progress: Show a progress bar if resampling takes long.

    Returns:
        "n", "errors", and for each name in `METRICS` its value and, with intervals, name + "_low" and name + "_high".
        A metric without a value is NaN, and "reasons" gives the reason by name.
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
    values = _values(scores, wrong, p)
    reasons = {name: reason for name in METRICS if (reason := why_undefined(name, scores, wrong))}
    if p is None:
        reasons |= {name: NO_PROBABILITY for name in METRICS if "_proper" in name}
    result: dict[str, Any] = {"n": scores.size, "errors": int(wrong.sum())}
    drawn = {}
    if bootstrap and scores.size:
        drawn = resample(scores, wrong, p, bootstrap, seed, groups=numbers, progress=progress)
    for name in METRICS:
        result[name] = float("nan") if name in reasons else values[name]
        if bootstrap:
            low, high = (float("nan"),) * 2 if name in reasons else _interval(drawn[name])
            result |= {f"{name}_low": low, f"{name}_high": high}
    return result | {"reasons": reasons}


def resamples_for(predictions: int) -> int:
    """Return the default number of resamples of `evaluate`, so that the work does not grow with the predictions.

    At most 2^25 predictions are drawn in at most 1,000 resamples; if that leaves fewer than 100, the result is 0.
    """
    count = min(MOST_RESAMPLES, MOST_DRAWN // max(1, predictions))
    return count if count >= LEAST_RESAMPLES else 0


def _values(scores: np.ndarray, wrong: np.ndarray, p: np.ndarray | None) -> dict[str, float]:
    correct = ~wrong
    values = {name: getattr(ranking, name)(scores, correct) for name in METRICS if hasattr(ranking, name)}
    values["accuracy"] = float(correct.mean()) if correct.size else float("nan")
    values["fpr_at_95_tpr"] = ranking.fpr_at_tpr(scores, correct, 0.95)
    for version, chances in (("paper", unit_range(scores)), ("proper", p)):
        if chances is not None:
            brier = probabilistic.brier(chances, correct)
            values |= {
                f"ece_{version}": probabilistic.ece(chances, correct),
                f"ece_adaptive_{version}": probabilistic.adaptive_ece(chances, correct),
                f"brier_{version}": brier.score,
                f"brier_{version}_reliability": brier.reliability,
                f"brier_{version}_resolution": brier.resolution,
                f"brier_{version}_uncertainty": brier.uncertainty,
            }
    if p is not None:
        values["nll_proper"] = probabilistic.nll(p, correct)
    return values


def _interval(values: np.ndarray) -> tuple[float, float]:
    """Return the middle 95 % of the resamples in which the metric has a value."""
    defined = values[~np.isnan(values)]
    if defined.size == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(low), float(high)
