"""The paper's method against the golden file, automatic differentiation and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.polynomial import hermite
from random_weights import weights
from scipy.special import logsumexp, softmax

from qipf.fields.bandwidth import silverman
from qipf.scores import WeightQIPF
from qipf.tasks.outputs import Outputs

UNITS = Outputs(
    np.array([[-1.0], [1.0]]), labels=np.array([-1.0, 2.0])
)  # mean 0, standard deviation 1: a logit is its own standard score


def modes_by_differentiation(samples, bandwidth, y, orders, radius) -> np.ndarray:
    """V_k(y) - min V_k({y - r, y, y + r}) with Laplacians from torch's autograd."""
    samples = torch.asarray(samples)

    def potential(points: np.ndarray, order: int) -> np.ndarray:
        u = torch.asarray(points).requires_grad_()
        psi = torch.exp(-((u[:, None] - samples) ** 2) / (2 * bandwidth**2)).mean(dim=1)
        coefficients = hermite.herm2poly([0] * order + [1])
        value = sum(c * psi.sqrt() ** power for power, c in enumerate(coefficients))
        (first,) = torch.autograd.grad(value.sum(), u, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), u)
        return (bandwidth**2 / 2 * second / value).detach().numpy()

    columns = []
    for order in orders:
        three = np.stack([potential(y + step, order) for step in (-radius, 0.0, radius)])
        columns.append(three[1] - three.min(axis=0))
    return np.stack(columns, axis=1)


def test_published_operator_gives_the_authors_modes(golden) -> None:
    file = np.load(golden / "author-mnist-lenet.npz")
    scorer = WeightQIPF(factor=80, operator="published", pool=None).fit([file["pooled"][None]], UNITS)
    assert scorer.fitted.facts["bandwidth"] == pytest.approx(float(file["sigma"]), rel=1e-6)
    y = file["y"][:, None]
    np.testing.assert_allclose(scorer.modes(y), file["modes_order12"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(scorer(y), file["modes_order12"].mean(axis=1), rtol=1e-4, atol=1e-4)
    two = WeightQIPF(orders=(2, 4), factor=80, operator="published", pool=None).fit([file["pooled"][None]], UNITS)
    np.testing.assert_allclose(two.modes(y), file["modes_order8"], rtol=1e-4, atol=1e-4)


def test_exact_operator_agrees_with_automatic_differentiation() -> None:
    scorer = WeightQIPF(orders=(2, 4, 6), factor=30, pool=None, radius=0.3, tolerance=None).fit(weights(), UNITS)
    raw = weights()[0].ravel()
    samples = (raw - raw.mean()) / raw.std()
    y = np.linspace(-3, 3, 41)
    expected = modes_by_differentiation(samples, 30 * silverman(samples), y, (2, 4, 6), 0.3)
    np.testing.assert_allclose(scorer.modes(y[:, None]), expected, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(scorer(y[:, None]), expected.mean(axis=1), rtol=1e-7, atol=1e-10)


def test_the_fast_field_is_the_exact_one() -> None:
    exact = WeightQIPF(factor=160, pool=None, tolerance=None).fit(weights(), UNITS)
    fast = WeightQIPF(factor=160, pool=None).fit(weights(), UNITS)
    pooled = WeightQIPF(factor=160, pool=1000).fit(weights(), UNITS)  # fewer weights than that: all are kept
    y = np.linspace(-8, 8, 301)[:, None]
    np.testing.assert_allclose(fast.modes(y), exact.modes(y), rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(pooled.modes(y), exact.modes(y), rtol=1e-6, atol=1e-10)
    assert fast.fitted.facts["samples"] == pooled.fitted.facts["samples"] == 200


@pytest.mark.parametrize("lower_bound", ["neighbourhood", "reference"])
def test_predictions_enter_in_standard_units_of_the_reference(lower_bound, rng) -> None:
    logits = rng.standard_normal((50, 6))
    scorer = WeightQIPF(factor=40, lower_bound=lower_bound).fit(weights(), Outputs(logits=logits))
    shifted = WeightQIPF(factor=40, lower_bound=lower_bound).fit(weights(), Outputs(logits=5 * logits - 70))
    np.testing.assert_allclose(shifted.modes(5 * logits - 70), scorer.modes(logits), rtol=1e-6, atol=1e-9)
    scaled = WeightQIPF(factor=40, lower_bound=lower_bound).fit([7 * weights()[0] + 3], Outputs(logits=logits))
    np.testing.assert_allclose(scaled.modes(logits), scorer.modes(logits), rtol=1e-6, atol=1e-9)


def test_reference_bound_is_the_minimum_over_all_reference_outputs(rng) -> None:
    import qipf.fields.potential as potential

    logits = rng.standard_normal((60, 3))
    scorer = WeightQIPF(factor=40, lower_bound="reference", tolerance=None).fit(weights(), Outputs(logits=logits))
    top = logits.max(axis=1)
    y = (top - top.mean()) / top.std()
    raw = potential.potentials(scorer.field, y, (2, 4, 6, 8))
    np.testing.assert_allclose(scorer.modes(logits), raw - raw.min(axis=0), rtol=1e-9, atol=1e-12)


def test_coordinates_against_closed_forms(rng) -> None:
    logits = 4 * rng.standard_normal((40, 5))
    p = softmax(logits, axis=1).max(axis=1)
    by_hand = {
        "max_logit": logits.max(axis=1),
        "log_odds": np.log(p) - np.log1p(-p),
        "callable": logsumexp(logits, axis=1),
    }
    for kind, values in by_hand.items():
        chosen = (lambda z: logsumexp(z, axis=1)) if kind == "callable" else kind
        scorer = WeightQIPF(factor=50, coordinate=chosen).fit(weights(), Outputs(logits=logits))
        same = WeightQIPF(factor=50).fit(weights(), Outputs(values[:, None], labels=values))  # regression: the output
        np.testing.assert_allclose(scorer.modes(logits), same.modes(values[:, None]), rtol=1e-6, atol=1e-9)


def test_binary_one_logit_is_the_two_class_model(rng) -> None:
    z = 3 * rng.standard_normal((80, 1))
    labels = rng.integers(0, 2, 80)
    for kind in ("max_logit", "log_odds"):
        one = WeightQIPF(factor=60, coordinate=kind).fit(weights(), Outputs(logits=z, labels=labels))
        two_logits = np.concatenate([-z / 2, z / 2], axis=1)
        two = WeightQIPF(factor=60, coordinate=kind).fit(weights(), Outputs(logits=two_logits, labels=labels))
        np.testing.assert_allclose(one(z), two(two_logits), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(one(-z), one(z), rtol=1e-12)
    assert one.fitted.facts["output"] == "binary"


def test_band_is_three_standard_deviations_of_the_modes(rng) -> None:
    outputs = Outputs(logits=10 + 2 * rng.standard_normal((100, 1)), labels=rng.standard_normal(100))
    scorer = WeightQIPF(factor=20).fit(weights(), outputs)
    lower, upper = scorer.band(outputs)
    np.testing.assert_allclose((lower + upper) / 2, outputs.logits[:, 0], rtol=1e-12)
    expected = 3 * scorer.modes(outputs).std(axis=1) * outputs.logits.std()
    np.testing.assert_allclose((upper - lower) / 2, expected, rtol=1e-6, atol=1e-10)
    narrow = scorer.band(outputs, width=1)
    np.testing.assert_allclose(narrow[1] - narrow[0], (upper - lower) / 3, rtol=1e-6, atol=1e-10)
    classes = WeightQIPF(factor=20).fit(weights(), Outputs(logits=rng.standard_normal((9, 3))))
    with pytest.raises(ValueError, match="regression"):
        classes.band(rng.standard_normal((9, 3)))


def test_explicit_blocks_pool_the_kernels(rng) -> None:
    kernel = rng.standard_normal((6, 8))
    blocks = kernel.reshape(3, 2, 2, 4).mean(axis=(1, 3))
    pooled = WeightQIPF(factor=50, pool=[(2, 4)]).fit([kernel], UNITS)
    every = WeightQIPF(factor=50, pool=None).fit([blocks], UNITS)
    y = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_allclose(pooled(y), every(y), rtol=1e-6, atol=1e-10)
    assert pooled.fitted.facts["samples"] == 6


def test_single_precision_logits_are_scored_accurately_in_single_precision(rng) -> None:
    logits = rng.standard_normal((100, 5)).astype(np.float32)
    scorer = WeightQIPF(factor=160).fit(weights(), Outputs(logits=logits))
    single, double = scorer(logits), scorer(logits.astype(np.float64))
    near_zero = 1e-3 * np.median(double)  # where the modes nearly vanish, the last digit of a logit matters
    np.testing.assert_allclose(single, double, rtol=2e-6, atol=2e-4 * near_zero)
    np.testing.assert_array_equal(scorer(torch.asarray(logits)).numpy(), single)


def test_jax_arrays_come_back_as_jax_arrays(rng) -> None:
    import jax

    from libraries import LIBRARIES

    logits = rng.standard_normal((30, 5))
    scorer = WeightQIPF(factor=80).fit(weights(), Outputs(logits=logits))
    result = scorer(LIBRARIES["jax"](logits))
    assert isinstance(result, jax.Array)
    np.testing.assert_allclose(result, scorer(logits), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"factor": 0}, "factor"),
        ({"factor": "best"}, "factor"),
        ({"tolerance": 1e-20}, "tolerance"),
        ({"orders": ()}, "one or more"),
        ({"coordinate": "min_logit"}, "coordinate"),
        ({"operator": "other"}, "operator"),
        ({"operator": "published", "orders": (2, 6)}, "orders"),
        ({"operator": "published", "root": False}, "root only"),
    ],
)
def test_bad_settings_are_refused(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        WeightQIPF(**settings)


def test_bad_fits_are_refused(rng) -> None:
    with pytest.raises(ValueError, match="model"):
        WeightQIPF().fit(data=UNITS)
    with pytest.raises(ValueError, match="outputs"):
        WeightQIPF().fit(weights())
    with pytest.raises(ValueError, match="same"):
        WeightQIPF().fit(weights(), Outputs(logits=np.ones((5, 2))))
    with pytest.raises(ValueError, match="standardised"):
        WeightQIPF().fit([np.ones((4, 4))], UNITS)
    with pytest.raises(ValueError, match="number"):
        WeightQIPF(coordinate=lambda z: z).fit(weights(), Outputs(logits=rng.standard_normal((5, 2))))
