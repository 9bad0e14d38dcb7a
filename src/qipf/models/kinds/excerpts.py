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
        copies: How many batches in a row hold the same examples, as they are and perturbed.
    """

    def __init__(self, batches: Iterable[Any], numbers: Sequence[int] | np.ndarray | None, copies: int = 1) -> None:
        self._batches, self.numbers, self.copies = batches, numbers, copies

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def number_of(data: Any, place: int) -> int:
    """Return the number of an example for an error: its place in the data, or its number in the larger set."""
    numbers = data.numbers if isinstance(data, Excerpt) else None
    return place if numbers is None else int(numbers[place])


def is_part(data: Any) -> bool:
    """Return whether the examples are some of a larger set, so that what all of them have in common may be chance."""
    return isinstance(data, Excerpt) and data.numbers is not None


def copies_of(data: Any) -> int:
    """Return how many batches in a row hold the same examples."""
    return data.copies if isinstance(data, Excerpt) else 1
