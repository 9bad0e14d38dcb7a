"""Intervals keep their promise in simulations, whatever the scale, and survive a file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import qipf
from qipf import Intervals, Outputs, ResidualScale
from qipf.decisions.threshold import Unsupported


def world(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions, a scale that is not quite right, and targets with heavy tails; two targets each."""
    x = rng.uniform(0.2, 2, (count, 2))
    predictions = np.zeros((count, 2))
    targets = x * rng.standard_t(3, size=(count, 2)) + 0.3
    return predictions, x**1.5, targets


@pytest.mark.parametrize(("coverage", "held_out"), [(0.9, 49), (0.8, 19), (0.95, 20)])
@pytest.mark.parametrize("joint", [False, True])
def test_the_promised_coverage_is_kept_and_hardly_exceeded(coverage: float, held_out: int, joint: bool) -> None:
    """Over the draw of the held-out data, coverage lies between c and c + 1 / (n + 1)."""
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(1500):
        intervals = Intervals(coverage, joint=joint).fit(*world(rng, held_out))
        f, s, y = world(rng, 50)
        lower, upper = intervals.of(f, s)
        inside = (lower <= y) & (y <= upper)
        shares.append(inside.all(axis=1).mean() if joint else inside.mean())
    error = 4 * np.std(shares) / np.sqrt(len(shares))
    assert coverage - error <= np.mean(shares) <= coverage + 1 / (held_out + 1) + error


def test_the_factor_is_a_rank_of_the_ratios() -> None:
    targets = np.arange(1.0, 20)  # ratios 1 to 19; (19 + 1) * 0.9 = 18
    found = Intervals(0.9).fit(np.zeros(19), np.full(19, 1.0), targets).of(np.array([5.0]), np.array([2.0]))
    np.testing.assert_array_equal(found.lower, [5.0 - 36])
    np.testing.assert_array_equal(found.upper, [5.0 + 36])


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(Unsupported, match="least") as refused:
        Intervals(0.95).fit(np.zeros(18), np.ones(18), np.ones(18))
    assert refused.value.needed == 19


@pytest.mark.parametrize("method", ["neighbours", "head"])
def test_a_scale_and_its_intervals_travel_in_one_file(method: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (900, 2))
    y = np.abs(x[:, 0]) * rng.normal(size=900)
    everything = Outputs(torch.zeros(900, 1), torch.as_tensor(x), torch.as_tensor(y))
    scorer = ResidualScale(method=method).fit(None, everything[:400])
    intervals = Intervals(0.9).fit_scorer(scorer, everything[400:700])
    scorer.attach(intervals)
    lower, upper = intervals(everything[700:])
    assert isinstance(lower, torch.Tensor)
    assert lower.shape == (200, 1)
    inside = (lower[:, 0] <= everything.labels[700:]) & (everything.labels[700:] <= upper[:, 0])
    assert 0.82 <= float(inside.double().mean()) <= 0.98
    width = (upper - lower)[:, 0].numpy()
    wide, narrow = np.abs(x[700:, 0]) > 0.7, np.abs(x[700:, 0]) < 0.2
    assert width[wide].mean() > 2 * width[narrow].mean()

    scorer.save(tmp_path / "scale.qipf")
    again: Any = qipf.load(tmp_path / "scale.qipf").attachments["intervals"]
    assert torch.equal(again(everything[700:]).lower, lower)


def test_what_does_not_fit_is_named() -> None:
    outputs = Outputs(np.zeros((30, 3)), np.ones((30, 2)), np.zeros(30, int))
    with pytest.raises(ValueError, match="floating"):
        Intervals().fit_scorer(ResidualScale(), outputs)
    numbers = Outputs(np.zeros((30, 1)), np.ones((30, 2)), np.linspace(0, 3, 30))
    with pytest.raises(TypeError, match="Entropy"):
        Intervals().fit_scorer(qipf.Entropy(), numbers)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="shape"):
        Intervals().fit(np.zeros(30), np.ones((30, 2)), np.ones(30))
    with pytest.raises(ValueError, match="above 0"):
        Intervals().fit(np.zeros(30), np.zeros(30), np.ones(30))


@pytest.mark.parametrize(
    ("name", "value"), [("predictions", math.nan), ("targets", math.inf), ("scales", math.nan), ("scales", -1.0)]
)
def test_numbers_that_make_no_interval_are_named(name, value) -> None:
    rng = np.random.default_rng(0)
    given = {"predictions": rng.normal(size=(30, 2)), "scales": np.ones((30, 2)), "targets": rng.normal(size=(30, 2))}
    fitted = qipf.Intervals(0.9).fit(**given)
    given[name][4, 1] = value
    with pytest.raises(ValueError, match=f"{name}: expected finite numbers.* in row 4;"):
        qipf.Intervals(0.9).fit(**given)
    if name != "targets":
        with pytest.raises(ValueError, match=f"{name}: .* in row 4;"):
            fitted.of(given["predictions"], given["scales"])


def test_lists_and_scales_of_zero() -> None:
    rng = np.random.default_rng(1)
    predictions, targets = rng.normal(size=30), rng.normal(size=30)
    fitted = qipf.Intervals(0.9).fit(predictions.tolist(), [1.0] * 30, targets.tolist())
    factor = np.sort(np.abs(targets - predictions))[math.ceil(31 * 0.9) - 1]
    lower, upper = fitted.of([0.0, 2.0], [1.0, 0.0])
    assert lower.shape == upper.shape == (2,)
    np.testing.assert_allclose(lower, [-factor, 2.0])
    np.testing.assert_allclose(upper, [factor, 2.0])
