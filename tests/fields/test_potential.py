"""Potentials and modes against 60-digit values and closed forms."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import eval_hermite, roots_hermite

from libraries import LIBRARIES
from qipf.fields.field import Field
from qipf.fields.potential import potentials, uncertainty_modes

NEAR = 0.05  # |H_k(phi)| under this share of sum |coefficient| phi^j counts as near a pole in float32


@pytest.mark.parametrize("case", "abc")
@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("library", LIBRARIES)
def test_potentials_match_sixty_digits(golden, case, root, library):
    values, array = np.load(golden / "exact-potentials.npz"), LIBRARIES[library]
    field = Field(array(values[f"{case}_samples"]), float(values[f"{case}_sigma"]))
    orders = [int(k) for k in values[f"{case}_orders"]]
    y = array(values[f"{case}_y"])
    result = potentials(field, y, orders, root=root)
    assert type(result) is type(y)
    np.testing.assert_allclose(np.asarray(result), values[f"{case}_V_root{int(root)}"], rtol=1e-10)


@pytest.mark.parametrize("case", "abc")
@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("array", [np.asarray, torch.asarray])
def test_float32_away_from_poles(golden, case, root, array):
    values = np.load(golden / "exact-potentials.npz")
    orders = [int(k) for k in values[f"{case}_orders"]]
    samples, y = (values[f"{case}_{name}"].astype(np.float32) for name in ("samples", "y"))
    # The oracle belongs to the float64 inputs: rounding those to float32 is not the function's error.
    exact = potentials(Field(samples.astype(float), float(values[f"{case}_sigma"])), y.astype(float), orders, root)
    result = np.asarray(potentials(Field(array(samples), float(values[f"{case}_sigma"])), array(y), orders, root))
    assert result.dtype == np.float32
    phi = np.exp(values[f"{case}_logpsi"] * (0.5 if root else 1.0))
    away = np.stack([_distance_to_pole(k, phi) > NEAR for k in orders], axis=1)
    tiny = np.finfo(np.float32).tiny / np.finfo(np.float32).eps
    assert away.mean() > 0.75
    np.testing.assert_allclose(result[away], exact[away], rtol=1e-3, atol=tiny)


def _distance_to_pole(order: int, phi: np.ndarray) -> np.ndarray:
    if order < 2:
        return np.ones_like(phi)
    phi = np.maximum(phi, 1e-30)
    coefficients = np.polynomial.hermite.herm2poly([0] * order + [1])
    return np.abs(eval_hermite(order, phi)) / np.polynomial.polynomial.polyval(phi, np.abs(coefficients))


def test_gaussian_well_is_a_harmonic_oscillator():
    """One sample: phi = exp(-u^2/4), so V_0 = (u^2/4 - 1/2) / 2: the oscillator, less its ground energy."""
    y, s = np.linspace(-5, 5, 41), 1.7
    u = y / s
    expected = 0.5 * (u * u / 4 - 0.5)
    np.testing.assert_allclose(potentials(Field([0.0], s), y, [0])[:, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(potentials(Field([0.0], s), y, [0], root=False)[:, 0], 0.5 * (u * u - 1), rtol=1e-12)


@pytest.mark.parametrize("order", [2, 3, 5, 8, 40, 151])
def test_any_order_matches_automatic_differentiation(order):
    samples, s, y = np.asarray([0.0, 0.4, 1.1]), 0.9, 0.37

    def wave(point):
        phi = jax.numpy.sqrt(jax.numpy.mean(jax.numpy.exp(-((point - samples) ** 2) / (2 * s * s))))
        previous, current = 1.0, phi * np.sqrt(2.0)
        for k in range(1, order):
            recurrence = np.sqrt(2 / (k + 1)) * phi * current - np.sqrt(k / (k + 1)) * previous
            previous, current = current, recurrence
        return current

    expected = s * s / 2 * jax.grad(jax.grad(wave))(y) / wave(y)
    np.testing.assert_allclose(potentials(Field(samples, s), y, [order])[0], expected, rtol=1e-9)


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_poles_are_where_the_hermite_polynomial_vanishes(order):
    """A pole is met exactly, and from both sides: large, finite, and of opposite signs."""
    zero = next(x for x in roots_hermite(order)[0] if 0 < x < 1)
    field = Field([0.0], 1.0)
    at = np.sqrt(-4 * np.log(zero))
    below, hit, above = potentials(field, np.asarray([at - 1e-7, at, at + 1e-7]), [order])[:, 0]
    assert np.isfinite(hit)
    assert abs(below) > 1e4
    assert abs(above) > 1e4
    assert below * above < 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("root", [True, False])
def test_finite_everywhere(dtype, root):
    largest = float(np.finfo(dtype).max)
    y = np.asarray([0.0, 0.25, 1e6, -1e6, 1e18, largest, -largest], dtype)
    orders = range(13)
    for samples in (np.zeros(4, dtype), np.asarray([0.25, -1.0, 3.0], dtype)):
        for s in (1e-3, 1.0, 1e3):
            assert np.isfinite(potentials(Field(samples, s), y, orders, root)).all()
            for bound in ("neighbourhood", "batch"):
                result = uncertainty_modes(Field(samples, s), y, orders, root, lower_bound=bound)
                assert np.isfinite(result).all()
                assert (result >= 0).all()
    exact_zero = -4 * np.log(np.sqrt(0.5))  # H_2 vanishes at phi^2 = 1/2 exactly
    assert np.isfinite(potentials(Field([0.0], 1.0), np.sqrt(exact_zero), [2])).all()


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 20), st.integers(1, 3)), elements=st.floats(-3, 3)),
    st.floats(0.1, 3),
    st.sampled_from(["neighbourhood", "batch", "reference"]),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_modes_are_never_negative(samples, s, bound, root):
    reference = samples if bound == "reference" else None
    y = np.linspace(-4, 4, 12).reshape(-1, 1) * np.ones(samples.shape[1])
    result = uncertainty_modes(Field(samples, s), y, (0, 1, 2, 3, 8), root, bound, reference=reference)
    assert (result >= 0).all()
    assert np.isfinite(result).all()


def test_lower_bounds_are_the_minima_they_name(rng):
    field, y, reference = Field(rng.normal(size=100), 0.9), rng.normal(size=30), rng.normal(size=50)
    orders = (0, 2, 4)
    raw = potentials(field, y, orders)
    near = np.minimum(raw, np.minimum(potentials(field, y - 0.3, orders), potentials(field, y + 0.3, orders)))
    np.testing.assert_allclose(uncertainty_modes(field, y, orders, radius=0.3), raw - near)
    np.testing.assert_allclose(uncertainty_modes(field, y, orders, lower_bound="batch"), raw - raw.min(axis=0))
    low = np.minimum(raw, potentials(field, reference, orders).min(axis=0))
    np.testing.assert_allclose(
        uncertainty_modes(field, y, orders, lower_bound="reference", reference=reference), raw - low
    )


def test_neighbourhood_in_more_dimensions_lies_along_the_gradient(rng):
    """A field that varies along one direction only must give the modes of its one-dimensional section."""
    line, direction = rng.normal(size=80), np.asarray([0.6, 0.0, -0.8])
    y = rng.normal(size=20)
    flat = uncertainty_modes(Field(line[:, None] * direction, 0.7), y[:, None] * direction, orders=(1,))
    one = uncertainty_modes(Field(line, 0.7), y, orders=(1,))
    np.testing.assert_allclose(flat, one, rtol=1e-7, atol=1e-9)
    at_rest = uncertainty_modes(Field(np.zeros((3, 2)), 1.0), np.zeros((1, 2)))  # no gradient: any fixed direction
    assert np.isfinite(at_rest).all()


def test_single_query_vmap_jit_and_gradient(rng):
    samples, y = rng.normal(size=60), rng.normal(size=9)
    field = Field(samples, 0.8)
    expected = uncertainty_modes(field, y)
    np.testing.assert_allclose(uncertainty_modes(field, y[0]), expected[0])
    np.testing.assert_allclose(torch.func.vmap(lambda q: uncertainty_modes(field, q))(torch.asarray(y)), expected)
    np.testing.assert_allclose(jax.jit(lambda q: uncertainty_modes(field, q))(y), expected, rtol=1e-6)
    tensor = torch.asarray(y).requires_grad_()
    assert torch.autograd.gradcheck(lambda q: potentials(field, q, (0, 1, 2, 4)), tensor)
    assert uncertainty_modes(field, np.zeros(0)).shape == (0, 4)
    assert uncertainty_modes(field, np.zeros(0), lower_bound="batch").shape == (0, 4)


def test_scaling_everything_together_changes_nothing(rng):
    samples, y = rng.normal(size=40), rng.normal(size=15)
    expected = uncertainty_modes(Field(samples, 0.5), y, radius=0.2)
    for scale in (1e-30, 1e30):
        result = uncertainty_modes(Field(samples * scale, 0.5 * scale), y * scale, radius=0.2 * scale)
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        *(({"orders": orders}, ValueError, "^orders") for orders in ((2, -4), (2, 2), (2, 1001), ())),
        *(({"orders": orders}, TypeError, "^orders") for orders in ((2.5,), 4)),
        ({"lower_bound": "global"}, ValueError, "neighbourhood"),
        ({"lower_bound": "reference"}, ValueError, "^reference"),
        ({"reference": np.zeros(3)}, ValueError, "^reference"),
        ({"radius": 0.0}, ValueError, "positive"),
        ({"radius": "far"}, ValueError, "positive"),
    ],
)
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        uncertainty_modes(Field([0.0, 1.0], 1.0), np.zeros(3), **options)
