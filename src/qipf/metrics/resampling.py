"""The bootstrap: every metric for many resamples at once.

A resample of N predictions is a row of integer weights over the predictions. The predictions are sorted once; each
metric is then a few cumulative sums over such rows, and no resample has to be sorted. The tests compare these formulas
with the plain functions, applied to the repeated rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qipf.arrays import Array, to_numpy
from qipf.metrics.inputs import unit_range
from qipf.metrics.probabilistic import BINS, equal_width, log_losses
from qipf.metrics.ranking import harmonic_numbers

_BLOCK = 2**18  # weights held at once: a few MB for each intermediate array
_LONG = 2**24  # predictions drawn in about a second or more


def resample(
    scores: np.ndarray,
    wrong: np.ndarray,
    probability: np.ndarray | None,
    count: int,
    seed: int,
    *,
    groups: np.ndarray | None = None,
    progress: bool = False,
) -> dict[str, np.ndarray]:
    """Return every metric of `count` resamples of one prediction or more, NaN if a resample leaves it undefined.

    The scaling behind the `paper` metrics is that of the full set in every resample: like the calibrator
    behind the `proper` metrics it is part of the score, and the bootstrap is known to fail for extremes. With `groups`,
    (N,) from 0 to G - 1, every resample has G of the groups with all their predictions.
    """
    order = np.argsort(scores, kind="stable")
    scores, wrong = scores[order], wrong[order].astype(np.float64)
    groups = None if groups is None else groups[order]
    kernels: list[_Ranking | _Probability] = [_Ranking(scores, wrong)]
    scaled = unit_range(scores)
    if scaled is not None:
        kernels.append(_Probability(scaled, wrong, "paper"))
    if probability is not None:
        kernels.append(_Probability(probability[order], wrong, "proper"))
    parts: dict[str, list[np.ndarray]] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for weights in _shown(_weights(len(scores), count, seed, groups), len(scores), count, progress):
            for kernel in kernels:
                for name, values in kernel(weights).items():
                    parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def _shown(blocks: Iterator[np.ndarray], n: int, count: int, progress: bool) -> Iterator[np.ndarray]:
    """Return the blocks, behind a progress bar if they take long."""
    if not progress or n * count < _LONG:
        return blocks
    from qipf._common.progress import track

    return track(blocks, "resampling", total=-(-count // _rows(n)))


def _rows(n: int) -> int:
    return max(1, _BLOCK // n)


def _weights(n: int, count: int, seed: int, groups: np.ndarray | None) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    rows, units = _rows(n), n if groups is None else int(groups.max()) + 1
    for start in range(0, count, rows):
        size = min(rows, count - start)
        drawn = rng.integers(0, units, size=(size, units)) + units * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units).astype(np.float64)
        yield times if groups is None else times[:, groups]


def group_numbers(groups: Array, size: int) -> np.ndarray:
    """Return the number of the group of each of `size` predictions, from 0 to G - 1, in the order of their names."""
    names = to_numpy(groups).ravel()
    if names.size != size:
        raise ValueError(f"groups: expected {size} numbers, one per prediction, got {names.size}")
    return np.unique(names, return_inverse=True)[1]


def resampled_rows(size: int, count: int, *, seed: int = 0, groups: Array | None = None) -> Iterator[np.ndarray]:
    """Yield the rows of `count` resamples of `size` predictions.

    Args:
        size: The number of predictions.
        count: The number of resamples.
        seed: Seed of the draws.
        groups: The group of each prediction, (N,), if predictions depend on each other, as the pixels of an image do:
            all predictions of a group are drawn together.
    """
    rng = np.random.default_rng(seed)
    if groups is None:
        for _ in range(count):
            yield rng.integers(0, size, size)
        return
    numbers = group_numbers(groups, size)
    order = np.argsort(numbers, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    for _ in range(count):
        yield np.concatenate([members[group] for group in rng.integers(0, len(members), len(members))])


class _Ranking:
    """The metrics of `ranking`, and the accuracy, for rows of weights over predictions sorted by score."""

    def __init__(self, scores: np.ndarray, wrong: np.ndarray) -> None:
        self.wrong = wrong
        self.starts = _starts(scores)
        scaled = unit_range(scores)
        x = np.zeros_like(scores) if scaled is None else scaled - scaled.mean()
        self.centred = x
        self.harmonic = harmonic_numbers(len(scores))

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        n = weights.sum(axis=1)
        if n.max() >= len(self.harmonic):
            self.harmonic = harmonic_numbers(int(n.max()))
        size, errors = _grouped(weights, self.starts), _grouped(weights * self.wrong, self.starts)
        through, errors_through = np.cumsum(size, axis=1), np.cumsum(errors, axis=1)
        before, errors_before = through - size, errors_through - errors
        total = errors_through[:, -1]  # errors of the resample
        right = n - total
        some = np.where(total > 0, 1.0, np.nan)
        both = np.where((total > 0) & (right > 0), 1.0, np.nan)
        spread = np.where(size.max(axis=1) < n, 1.0, np.nan)

        middle = before + size / 2
        rank_sum = np.einsum("ij,ij->i", errors, middle)
        pairs = rank_sum - np.einsum("ij,ij->i", errors, errors_before + errors / 2)
        found = total[:, None] - errors_before  # errors at or above each score
        flagged = n[:, None] - before
        precision = found / np.maximum(flagged, 1)
        average_precision = np.einsum("ij,ij->i", errors, precision) / total
        # a score above all that were drawn is not a point of the curve
        drawn_above = through[:, :-1] < n[:, None]
        trapezoids = errors[:, :-1] * (precision[:, :-1] + precision[:, 1:]) / 2 * drawn_above
        needed = np.ceil(0.95 * total - 1e-9)
        threshold = (errors_before <= (total - needed)[:, None]).sum(axis=1) - 1
        at = np.arange(len(weights)), threshold

        steps = np.diff(self.harmonic[through.astype(np.int64)], axis=1, prepend=0.0)
        risk = errors + (errors_before - before * errors / np.maximum(size, 1)) * steps
        aurc = risk.sum(axis=1) / n
        best = (total - right * (self.harmonic[n.astype(np.int64)] - self.harmonic[right.astype(np.int64)])) / n
        augrc = np.einsum("ij,ij->i", size, errors_before + errors / 2) / n**2

        rate = total / n
        deviation = np.sqrt(rate * (1 - rate))
        # The deviations of every resample are taken from its own mean: a difference of squares would cancel.
        away = self.centred - (weights @ self.centred / n)[:, None]
        product = np.einsum("ij,ij,j->i", weights, away, self.wrong) / n
        score_deviation = np.sqrt(np.einsum("ij,ij,ij->i", weights, away, away) / n)
        rank_variance = np.einsum("ij,ij,ij->i", size, middle, middle) / n - (n / 2) ** 2
        return {
            "accuracy": 1 - rate,
            "roc_auc": pairs / (total * right) * both,
            "pr_auc": average_precision * some,
            "pr_auc_trapezoid": trapezoids.sum(axis=1) / total * some * spread,
            "fpr_at_95_tpr": (flagged[at] - found[at]) / right * both,
            "aurc": aurc,
            "excess_aurc": aurc - best,
            "augrc": augrc,
            "point_biserial": product / (score_deviation * deviation) * both * spread,
            "spearman": (rank_sum / n - rate * n / 2) / (np.sqrt(rank_variance) * deviation) * both * spread,
        }


class _Probability:
    """The metrics of `probabilistic` for rows of weights, with names that end in `version`."""

    def __init__(self, p: np.ndarray, wrong: np.ndarray, version: str) -> None:
        self.version = version
        in_order = bool(np.all(p[1:] >= p[:-1]))
        self.order = None if in_order else np.argsort(p, kind="stable")
        if self.order is not None:
            p, wrong = p[self.order], wrong[self.order]
        self.starts = _starts(p)
        self.gap = p - wrong
        bins = np.eye(BINS)[equal_width(p, BINS)]
        single = np.stack([self.gap**2, log_losses(p, wrong), wrong], axis=1)
        self.sums = np.concatenate([bins, bins * self.gap[:, None], single], axis=1)

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        n = weights.sum(axis=1)
        if self.order is not None:
            weights = weights[:, self.order]
        sums = weights @ self.sums
        size, gaps = sums[:, :BINS], sums[:, BINS : 2 * BINS]
        score, loss, rate = sums[:, 2 * BINS :].T / n
        reliability = (gaps**2 / np.maximum(size, 1)).sum(axis=1) / n
        uncertainty = rate * (1 - rate)
        values = {
            f"ece_{self.version}": np.abs(gaps).sum(axis=1) / n,
            f"ece_adaptive_{self.version}": self._adaptive(weights),
            f"brier_{self.version}": score,
            f"brier_{self.version}_reliability": reliability,
            f"brier_{self.version}_resolution": reliability + uncertainty - score,
            f"brier_{self.version}_uncertainty": uncertainty,
        }
        return values | ({"nll_proper": loss} if self.version == "proper" else {})

    def _adaptive(self, weights: np.ndarray) -> np.ndarray:
        n = weights.sum(axis=1)
        size = _grouped(weights, self.starts)
        bin_of = np.floor((np.cumsum(size, axis=1) - size / 2) * BINS / n[:, None])
        gaps = np.cumsum(_grouped(weights * self.gap, self.starts), axis=1)
        below = np.pad(gaps, ((0, 0), (1, 0)))
        edges = np.stack([np.searchsorted(row, np.arange(BINS + 1)) for row in bin_of])
        return np.abs(np.diff(np.take_along_axis(below, edges, axis=1), axis=1)).sum(axis=1) / n


def _starts(values: np.ndarray) -> np.ndarray:
    """Return the index at which each run of equal values begins in a sorted array."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))


def _grouped(weights: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return weights if len(starts) == weights.shape[1] else np.add.reduceat(weights, starts, axis=1)
