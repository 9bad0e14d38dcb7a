"""Summaries by group, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from qipf.tasks import summarise


def test_groups_are_summarised_as_by_a_loop(rng: np.random.Generator) -> None:
    values, groups = rng.normal(size=(7, 6)), rng.integers(-1, 5, size=(7, 6))
    for how, function in {"mean": np.mean, "max": np.max, "sum": np.sum}.items():
        expected = [function(values[groups == group]) for group in range(5)]
        np.testing.assert_allclose(summarise(values, groups, how=how), expected)  # pyright: ignore[reportArgumentType]


def test_empty_groups_have_no_mean() -> None:
    found = summarise(np.array([1.0]), np.array([1]), 3)
    np.testing.assert_array_equal(found, [np.nan, 1, np.nan])
    np.testing.assert_array_equal(summarise(np.array([1.0]), np.array([1]), 3, "sum"), [0, 1, 0])


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="value"):
        summarise(np.ones(3), np.zeros(2, int))
    with pytest.raises(TypeError, match="integers"):
        summarise(np.ones(2), np.zeros(2))
    with pytest.raises(ValueError, match="below"):
        summarise(np.ones(2), np.array([0, 5]), 2)
    with pytest.raises(ValueError, match="how"):
        summarise(np.ones(2), np.array([0, 1]), how="median")  # pyright: ignore[reportArgumentType]
