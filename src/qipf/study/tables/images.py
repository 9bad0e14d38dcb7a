"""What single predictions say: a gain with an interval over images, and how many of the kept predictions are right."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from qipf.study.run.read import Bench, Condition, Predictions
from qipf.study.tables.frame import column_of

RESAMPLES = 300


class Kept(NamedTuple):
    """The share of right predictions among all, and among those that are kept after flagging the least certain."""

    everything: float
    kept: float


def conditions(bench: Bench, dataset: str, net: str, shifted: bool) -> list[Condition]:
    """The conditions of a pair under shift, or its clean ones; inputs of other datasets are left out."""
    return [
        condition
        for condition in bench.conditions()
        if (condition.dataset, condition.net) == (dataset, net)
        and not condition.shift.startswith("ood:")
        and (condition.shift != "clean") == shifted
    ]


def columns_of(predictions: Predictions) -> dict[str, np.ndarray]:
    """The scores of predictions by column."""
    return {column_of(method, score): values for (method, score), values in predictions.scores.items()}


def errors_found(scores: np.ndarray, wrong: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """The number of errors among the least certain fractions of the predictions; among tied scores, its expectation."""
    order = np.argsort(-scores, kind="stable")
    ranked, errors = scores[order], np.cumsum(wrong[order])
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # the last of every group of equal scores
    x = np.concatenate([[0], ends + 1]) / len(scores)
    return np.interp(fractions, x, np.concatenate([[0.0], errors[ends]]))


def kept_right(bench: Bench, places: list[Condition], column: str, flagged: float) -> Kept | None:
    """How many predictions are right before and after flagging the least certain ones; mean over conditions."""
    found = []
    for condition in places:
        predictions = bench.predictions(condition).common()
        scores, wrong = columns_of(predictions).get(column), ~predictions.correct
        if scores is None or not len(wrong) or not np.isfinite(scores).all():
            continue
        left = wrong.sum() - errors_found(scores, wrong, np.array([flagged]))[0]
        found.append((1 - wrong.mean(), 1 - left / ((1 - flagged) * len(wrong))))
    return Kept(*(float(value) for value in np.mean(found, axis=0))) if found else None


def resampled_areas(scores: np.ndarray, wrong: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """ROC-AUC of finding the errors, once per row of `draws`; NaN where a resample has no errors or nothing else.

    Args:
        scores: uncertainties, `(N,)`.
        wrong: whether each prediction is wrong, `(N,)`.
        draws: how often each prediction was drawn, `(resamples, N)`.
    """
    order = np.argsort(scores, kind="stable")
    ranked, drawn, missed = scores[order], draws[:, order], wrong[order]
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    errors = np.add.reduceat(drawn * missed, starts, axis=1)
    others = np.add.reduceat(drawn * ~missed, starts, axis=1)
    below = np.cumsum(others, axis=1) - others / 2
    pairs = errors.sum(axis=1) * others.sum(axis=1)
    return np.where(pairs > 0, (below * errors).sum(axis=1) / np.maximum(pairs, 1), np.nan)


def image_gains(bench: Bench, places: list[Condition], column: str, baseline: str, seed: int = 0) -> np.ndarray:
    """Resampled differences in ROC-AUC between two scores of one network, mean over severities, then over shifts.

    A resample draws images with replacement, with all predictions of each. The two scores and all conditions share the
    draws, because they are about the same images. The array is empty where no condition has both scores and several
    images.
    """
    by_shift: dict[str, list[np.ndarray]] = defaultdict(list)
    draws: dict[int, np.ndarray] = {}
    for condition in places:
        predictions = bench.predictions(condition).common()
        found, wrong = columns_of(predictions), ~predictions.correct
        if column not in found or baseline not in found or not 0 < wrong.sum() < len(wrong):
            continue
        groups = predictions.groups
        if groups is None:
            drawn = draws.setdefault(len(wrong), _draws(len(wrong), seed))
        else:  # all predictions of an input are drawn together; inputs without labels have none
            known, places_of = np.unique(groups, return_inverse=True)
            if len(known) == 1:
                continue
            drawn = _draws(len(known), seed)[:, places_of]
        ours, theirs = (resampled_areas(found[name], wrong, drawn) for name in (column, baseline))
        by_shift[condition.shift].append(ours - theirs)
    if not by_shift:
        return np.array([])
    means = [np.nanmean(np.ma.masked_invalid(differences), axis=0) for differences in by_shift.values()]
    return np.ma.mean(np.ma.stack(means), axis=0).compressed()


def _draws(size: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.stack([np.bincount(generator.integers(size, size=size), minlength=size) for _ in range(RESAMPLES)])
