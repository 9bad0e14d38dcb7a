"""Which labels of pixels mean that a pixel has none."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

IGNORED = (-100, 255)
"""Labels that by custom mean "not labelled": those of torch and of Pascal VOC."""


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
