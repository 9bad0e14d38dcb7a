"""Batches of some examples of a larger set, whose errors name the examples by their numbers in that set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np


class Excerpt:
    """Batches that know where their examples are from.

    Args:
        batches: As for `qipf.collect`.
        numbers: The number of every example in the larger set; None where they are counted from 0.
    """

    def __init__(self, batches: Iterable[Any], numbers: Sequence[int] | np.ndarray | None) -> None:
        self._batches, self.numbers = batches, numbers

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def number_of(data: Any, place: int) -> int:
    """Return the number of an example for an error: its place in the data, or its number in the larger set."""
    numbers = getattr(data, "numbers", None)
    return place if numbers is None else int(numbers[place])
