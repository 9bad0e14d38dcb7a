"""Whether the labels of tokens are the ids that the model reads, so that each belongs to the place before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import array_api_compat as compat

from qipf.arrays import Array, namespace

FEW_IDS = 0.5
"""Below this share of labels that equal the ids of their places, the labels are something else. Texts with typing
errors stay well above it."""

MOST_IDS = 0.9
"""Above this share of labels that equal the ids of the places after theirs, the labels are shifted already."""


def shifted_already(inputs: Iterable[Any], labels: Array, known: Array) -> bool:
    """Return whether the labels (N, T) are the ids of the next places, as where a text was cut into two that overlap.

    Args:
        inputs: As for `share_of_ids`.
        labels: Whole numbers.
        known: Which labels count.
    """
    cut = [values[:, 1:] for values in inputs if getattr(values, "ndim", 0) == 2]
    here = known[:, :-1]
    return bool(namespace(here).any(here)) and share_of_ids(cut, labels[:, :-1], here) >= MOST_IDS


def share_of_ids(inputs: Iterable[Any], labels: Array, known: Array) -> float:
    """Return the share of the labels (N, T) that equal the ids of their places, where `known`; 0 without any ids.

    Args:
        inputs: What the model reads; whole numbers of the shape of the labels may be ids.
        labels: Whole numbers.
        known: Which labels count, at least one.
    """
    xp, best = namespace(labels), 0.0
    count = int(xp.sum(xp.astype(known, xp.int64)))
    for values in inputs:
        whole = hasattr(values, "dtype") and namespace(values).isdtype(values.dtype, "integral")
        if whole and tuple(values.shape) == tuple(labels.shape):
            same = (xp.astype(compat.to_device(values, compat.device(labels)), labels.dtype) == labels) & known
            best = max(best, int(xp.sum(xp.astype(same, xp.int64))) / count)
    return best
