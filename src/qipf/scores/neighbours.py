"""Scores that compare a prediction's features with those of reference inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace, to_numpy
from qipf.scores.base import Fitted, Scorer, plain, wide
from qipf.scores.feature_rows import check_width, reference_features, unit

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs

SCRATCH = 64 * 2**20  # bytes for one block of distances


@dataclass(eq=False)
class KNN(Scorer):
    r"""Distance to the k-th nearest reference input, in features scaled to unit length (Sun et al., 2022).

    .. math::  u = \left\| \frac{f}{|f|} - \frac{f_{(k)}}{|f_{(k)}|} \right\|

    Args:
        k: which neighbour; smaller than the number of reference inputs.
    """

    name: ClassVar[str] = "knn"
    reads_features: ClassVar[bool] = True
    k: int = 50

    def __post_init__(self) -> None:
        self.k = plain(self.k)
        if not isinstance(self.k, int) or self.k < 1:
            raise ValueError(f"k: expected a whole number of at least 1, got {self.k!r}")

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        features, facts = reference_features(self, outputs)
        if len(features) < self.k:
            raise ValueError(f"knn: k = {self.k} needs at least as many reference inputs, got {len(features)}")
        return Fitted({"features": unit(features)}, facts)

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        queries = unit(wide(outputs.features))
        xp = namespace(queries)
        reference = xp.astype(tensors["features"], queries.dtype, copy=False)
        check_width(queries, reference.shape[1])

        def farthest(block: Array) -> Array:
            cosine = _kth_largest(block @ reference.T, self.k)
            return xp.sqrt(xp.clip(2 - 2 * cosine, 0.0, None))

        if is_traced(queries) or queries.shape[0] == 0:  # a traced batch has no size to cut by
            return farthest(queries)
        rows = max(1, SCRATCH // (8 * reference.shape[0]))
        count = queries.shape[0]
        blocks = [queries[start : min(start + rows, count), :] for start in range(0, count, rows)]
        return xp.concat([farthest(block) for block in blocks], axis=0)


@dataclass(eq=False)
class Mahalanobis(Scorer):
    r"""Squared distance to the nearest class mean under the covariance that all classes share (Lee et al., 2018).

    .. math::  u = \min_c (f - \mu_c)^T \Sigma^{+} (f - \mu_c), \qquad
               \Sigma = \frac1n \sum_i (f_i - \mu_{y_i})(f_i - \mu_{y_i})^T

    Directions in which the reference features do not vary (dead units) are left out, as the pseudo-inverse does.
    """

    name: ClassVar[str] = "mahalanobis"
    reads_features: ClassVar[bool] = True
    reads_labels: ClassVar[bool] = True

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        features, facts = reference_features(self, outputs)
        features = features.astype(np.float64)
        if outputs is None or outputs.labels is None:
            raise ValueError("mahalanobis: needs labels for its class means; collect outputs from labelled data")
        labels = to_numpy(outputs.labels)
        classes = np.unique(labels)
        means = np.stack([features[labels == label].mean(axis=0) for label in classes])
        residuals = features - means[np.searchsorted(classes, labels)]
        values, vectors = np.linalg.eigh(residuals.T @ residuals / len(features))
        kept = values > values[-1] * len(values) * np.finfo(np.float64).eps
        if not kept.any() or values[-1] <= 0:
            raise ValueError("mahalanobis: the features do not vary within any class; there is no covariance")
        centre = features.mean(axis=0)
        whitening = vectors[:, kept] / np.sqrt(values[kept])
        tensors = {"centre": centre, "whitening": whitening, "means": (means - centre) @ whitening}
        return Fitted(tensors, {**facts, "classes": len(classes), "rank": int(kept.sum())})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        features = wide(outputs.features)
        xp = namespace(features)
        centre, whitening, means = (
            xp.astype(tensors[key], features.dtype, copy=False) for key in ("centre", "whitening", "means")
        )
        check_width(features, whitening.shape[0])
        white = (features - centre) @ whitening
        squares = xp.sum(white * white, axis=1)[:, None] + xp.sum(means * means, axis=1)[None, :]
        return xp.clip(xp.min(squares - 2 * (white @ means.T), axis=1), 0.0, None)


def _kth_largest(values: Array, k: int) -> Array:
    """Row by row, without a full sort where the library offers less."""
    if compat.is_torch_array(values):
        return values.topk(k, dim=1, sorted=True).values[:, -1]
    if compat.is_numpy_array(values):
        return np.partition(values, values.shape[1] - k, axis=1)[:, values.shape[1] - k]
    return namespace(values).sort(values, axis=1, descending=True)[:, k - 1]
