"""Scores that compare the features of a prediction with those of reference inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import array_api_compat as compat
import numpy as np

from qipf._common.errors import check_whole
from qipf.arrays import Array, is_traced, namespace, to_numpy
from qipf.scores.base import Fitted, Scorer, wide
from qipf.scores.reference import bounded, labelled_logits, reference_features, stored, unit

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs

SCRATCH = 64 * 2**20  # bytes for one block of distances


@dataclass(eq=False)
class KNN(Scorer):
    r"""Distance to the k-th nearest reference input, measured between features of unit length (Sun et al., 2022).

    .. math::  u = \left\| \frac{f}{|f|} - \frac{f_{(k)}}{|f_{(k)}|} \right\|

    Args:
        k: The rank of the neighbour; at most the number of reference inputs.
    """

    name: ClassVar[str] = "knn"
    reads_features: ClassVar[bool] = True
    k: int = 50

    def __post_init__(self) -> None:
        check_whole("k", self.k, 1)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        features, facts = reference_features(self, outputs)
        if len(features) < self.k:
            raise ValueError(f"knn: k = {self.k} needs at least {self.k} reference inputs, got {len(features)}")
        return Fitted({"features": unit(features)}, facts)

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        queries = unit(wide(outputs.features))
        xp = namespace(queries)

        def farthest(cosines: Array) -> Array:
            return xp.sqrt(xp.clip(2 - 2 * xp.min(_k_largest(cosines, self.k), axis=1), 0.0, None))

        return by_blocks(queries, tensors["features"], farthest)


@dataclass(eq=False)
class DeltaKNN(Scorer):
    r"""Log ratio of the distances to correct and to wrong held-out predictions (Heng and Soh, 2025, "Delta-KNN").

    .. math::  u = \frac1k \sum_{i=1}^k \log\left( d_i^2(\text{correct}) + \epsilon \right)
                 - \frac1k \sum_{i=1}^k \log\left( d_i^2(\text{wrong}) + \epsilon \right), \qquad \epsilon = 10^{-6},

    where :math:`d_i(\text{correct})` is the distance to the features of the i-th nearest correct held-out prediction,
    and likewise for wrong predictions. All features are scaled to unit length. Fit the scorer to labelled held-out
    outputs.

    Args:
        k: The maximum number of correct and of wrong neighbours.
    """

    name: ClassVar[str] = "delta-knn"
    reads_features: ClassVar[bool] = True
    held_out: ClassVar[bool] = True
    k: int = 10

    def __post_init__(self) -> None:
        check_whole("k", self.k, 1)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        features, facts = reference_features(self, outputs)
        logits, labels, _ = labelled_logits(self, outputs)
        wrong = np.argmax(logits, axis=1) != labels
        if wrong.all() or not wrong.any():
            raise ValueError(
                f"delta-knn: expected both correct and wrong held-out predictions, got {int(wrong.sum())} wrong out of "
                f"{len(wrong)}; collect more held-out outputs"
            )
        tensors = {"correct": unit(features[~wrong]), "wrong": unit(features[wrong])}
        return Fitted(tensors, {**facts, "errors": int(wrong.sum())})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        queries = unit(wide(outputs.features))
        xp = namespace(queries)

        def log_distance(cosines: Array) -> Array:
            nearest = _k_largest(cosines, min(self.k, cosines.shape[1]))
            return xp.mean(xp.log(xp.clip(2 - 2 * nearest, 0.0, None) + 1e-6), axis=1)

        correct, wrong = (by_blocks(queries, tensors[kind], log_distance) for kind in ("correct", "wrong"))
        return correct - wrong


@dataclass(eq=False)
class Mahalanobis(Scorer):
    r"""Squared Mahalanobis distance to the nearest class mean, with one covariance for all classes (Lee et al., 2018).

    .. math::  u = \min_c (f - \mu_c)^T \Sigma^{+} (f - \mu_c), \qquad
               \Sigma = \frac1n \sum_i (f_i - \mu_{y_i})(f_i - \mu_{y_i})^T

    Directions in which the reference features do not vary within classes are ignored. In single precision, features
    with magnitudes above 4e9 are clipped.
    """

    name: ClassVar[str] = "mahalanobis"
    reads_features: ClassVar[bool] = True

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        features, facts = reference_features(self, outputs, squared=True)
        if outputs is None or outputs.labels is None:
            raise ValueError("mahalanobis: expected labels for computing class means, got none; collect labelled data")
        labels = to_numpy(outputs.labels)
        classes = np.unique(labels)
        means = np.stack([features[labels == label].mean(axis=0) for label in classes])
        residuals = features - means[np.searchsorted(classes, labels)]
        values, vectors = np.linalg.eigh(residuals.T @ residuals / len(features))
        kept = values > values[-1] * len(values) * np.finfo(np.float64).eps
        if not kept.any() or values[-1] <= 0:
            raise ValueError("mahalanobis: the features do not vary within any class, so their covariance is zero")
        centre = features.mean(axis=0)
        whitening = vectors[:, kept] / np.sqrt(values[kept])
        tensors = {"centre": centre, "whitening": whitening, "means": (means - centre) @ whitening}
        return Fitted(stored(tensors, outputs), {**facts, "classes": len(classes), "rank": int(kept.sum())})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        features = bounded(wide(outputs.features))
        xp = namespace(features)
        centre, whitening, means = (
            xp.astype(tensors[key], features.dtype, copy=False) for key in ("centre", "whitening", "means")
        )
        white = (features - centre) @ whitening
        squares = xp.sum(white * white, axis=1)[:, None] + xp.sum(means * means, axis=1)[None, :]
        return xp.clip(xp.min(squares - 2 * (white @ means.T), axis=1), 0.0, None)


def by_blocks(queries: Array, reference: Array, reduce: Callable[[Array], Array]) -> Array:
    """Apply `reduce` to the dot products (N, n) of queries and references, a few rows at a time."""
    xp = namespace(queries)
    reference = xp.astype(reference, queries.dtype, copy=False)
    if is_traced(queries) or queries.shape[0] == 0:  # a traced batch has no fixed size, so it cannot be split
        return reduce(queries @ reference.T)
    rows, count = max(1, SCRATCH // (8 * reference.shape[0])), queries.shape[0]
    blocks = [queries[start : min(start + rows, count), :] for start in range(0, count, rows)]
    return xp.concat([reduce(block @ reference.T) for block in blocks], axis=0)


def _k_largest(values: Array, k: int) -> Array:
    """Return the k largest values of every row, in any order, avoiding a full sort if the library allows it."""
    if compat.is_torch_array(values):
        return values.topk(k, dim=1, sorted=False).values
    if compat.is_numpy_array(values):
        return np.partition(values, values.shape[1] - k, axis=1)[:, values.shape[1] - k :]
    return namespace(values).sort(values, axis=1, descending=True)[:, :k]
