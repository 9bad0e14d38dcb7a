"""Which labels of pixels mean that a pixel has none."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from qipf.arrays import Array, namespace

IGNORED = (-100, 255)
"""Labels that by custom mean "not labelled": those of torch and of Pascal VOC."""

MASKS = (
    'all labels are 0 or 255, and 255 means "not labelled"; if these are the two classes of a mask, give '
    "labels // 255; if the pixels with 255 are unlabelled, give them the label -100"
)
"""About labels that are probably the classes of a network that says yes or no."""


def look_like_masks(labels: Array, classes: int) -> bool:
    """Return whether labels of a network with at most two classes are 0 and 255 and nothing else, as in images."""
    return classes <= 2 and parts_of_masks(labels) == (True, True, False)


def parts_of_masks(labels: Array) -> tuple[bool, bool, bool]:
    """Return whether there are labels of 0, of 255, and others."""
    xp = namespace(labels)
    none, full = labels == 0, labels == 255
    return bool(xp.any(none)), bool(xp.any(full)), not bool(xp.all(none | full))


def left_out(ignore: int | Sequence[int], classes: int) -> tuple[int, ...]:
    """Return the labels to leave out; one of `IGNORED` that is a class of the model counts.

    Raises:
        TypeError: They are not whole numbers.
    """
    given: Any = ignore
    chosen: tuple[Any, ...] = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    if not all(isinstance(one, Integral) and not isinstance(one, bool) for one in chosen):
        raise TypeError(f"ignore: expected a whole number or several, such as (-100, 255), got {ignore!r}")
    return tuple(int(one) for one in chosen if ignore is not IGNORED or not 0 <= one < classes)
