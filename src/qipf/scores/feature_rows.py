"""What every scorer that reads features does with their rows: take, check, measure and scale them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qipf.arrays import Array, namespace, to_numpy
from qipf.scores.base import wide

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs
    from qipf.scores.base import Scorer


_LARGEST = 1e70  # sums of squares of these are finite in double precision


def reference_features(
    scorer: Scorer, outputs: Outputs | None, *, squared: bool = False
) -> tuple[np.ndarray, dict[str, int]]:
    """The features (n, d) of the reference outputs, in 32 bits or more, and the facts that say how many there are.

    Args:
        scorer: whose references they are.
        outputs: what it is fitted to.
        squared: whether sums of squared features are needed; the features are then float64.

    Raises:
        ValueError: there are no outputs, or the squares would overflow.
    """
    if outputs is None:
        raise ValueError(f"{scorer.name}: needs the outputs of reference inputs, fit(outputs=qipf.collect(...))")
    features = to_numpy(wide(outputs.features))
    if squared:
        check_size(features, scorer.name, min(_LARGEST, _bound(features)))  # scoring would count larger ones as this
    facts = {"references": len(features), "width": features.shape[1], "columns": outputs.logits.shape[1]}
    return features.astype(np.float64) if squared else features, facts


def check_size(features: Array, name: str, most: float) -> None:
    """Raise ValueError if a feature is larger than `most`, beyond which sums of squares overflow."""
    xp = namespace(features)
    largest = float(xp.max(xp.abs(features)))
    if largest > most:
        raise ValueError(
            f"{name}: features as large as {largest:.3g} cannot be fitted; expected at most {most:.0e}, scale them "
            "down first"
        )


def stored(tensors: dict[str, np.ndarray], outputs: Outputs | None) -> dict[str, np.ndarray]:
    """Fitted tensors in the type of the reference features, so that scoring more of them converts nothing."""
    dtype = np.float64 if outputs is None else to_numpy(wide(outputs.features[:1])).dtype  # pyright: ignore[reportOptionalSubscript]
    return {key: value.astype(dtype) for key, value in tensors.items()}


def check_width(features: Array, expected: int) -> None:
    """Raise ValueError unless the features have as many columns as those of the reference outputs."""
    if features.shape[1] != expected:
        raise ValueError(f"features: expected {expected} columns, as in fitting, got {features.shape[1]}")


def length(values: Array) -> Array:
    """The Euclidean length of every row, (N, 1), without squares that overflow or vanish."""
    xp = namespace(values)
    largest = xp.max(xp.abs(values), axis=1, keepdims=True)
    largest = xp.clip(largest, float(xp.finfo(values.dtype).smallest_normal), None)
    scaled = values / largest
    return largest * xp.sqrt(xp.sum(scaled * scaled, axis=1, keepdims=True))


def unit(values: Array) -> Array:
    """Every row scaled to unit length; rows of zeros stay zero."""
    xp = namespace(values)
    largest = xp.max(xp.abs(values), axis=1, keepdims=True)
    smallest = float(xp.finfo(values.dtype).smallest_normal)
    scaled = values / xp.clip(largest, smallest, None)  # squares of what is left neither overflow nor vanish
    return scaled / xp.clip(xp.sqrt(xp.sum(scaled * scaled, axis=1, keepdims=True)), smallest, None)


def bounded(values: Array) -> Array:
    """Values no larger than the fourth root of what their type holds, so that squares and products stay finite.

    Only values above 4e9 in single precision, and above 1e77 in double precision, are changed.
    """
    largest = _bound(values)
    return namespace(values).clip(values, -largest, largest)


def _bound(values: Array) -> float:
    return float(namespace(values).finfo(values.dtype).max) ** 0.25
