"""Field against 60-digit values, in every array library."""

from __future__ import annotations

import tracemalloc

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from libraries import LIBRARIES
from qipf.fields.field import Field

CASES = "abc"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_log_matches_sixty_digits(golden, case, library):
    values, array = np.load(golden / "exact-potentials.npz"), LIBRARIES[library]
    field = Field(array(values[f"{case}_samples"]), float(values[f"{case}_sigma"]))
    y = array(values[f"{case}_y"])
    log = field.log(y)
    assert type(log) is type(y)
    assert log.dtype == y.dtype
    np.testing.assert_allclose(np.asarray(log), values[f"{case}_logpsi"], rtol=1e-12)
    np.testing.assert_allclose(np.asarray(field(y)), np.exp(values[f"{case}_logpsi"]), rtol=1e-10)


@pytest.mark.parametrize("dimension", [1, 12])
def test_derivatives_match_automatic_differentiation(rng, dimension):
    samples, y, s = rng.normal(size=(50, dimension)), rng.normal(size=(dimension,)), 0.8

    def psi(point):
        return jax.numpy.mean(jax.numpy.exp(-jax.numpy.sum((point - samples) ** 2, axis=1) / (2 * s * s)))

    exact = Field(samples, s).derivatives(y if dimension > 1 else y[0])
    value, gradient, hessian = jax.jit(lambda point: (psi(point), jax.grad(psi)(point), jax.hessian(psi)(point)))(y)
    np.testing.assert_allclose(exact.log, np.log(value), rtol=1e-12)
    np.testing.assert_allclose(exact.gradient, s * gradient / value, rtol=1e-10)
    np.testing.assert_allclose(exact.laplacian, s * s * np.trace(hessian) / value, rtol=1e-9)


@pytest.mark.parametrize("dimension", [1, 12])
@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_block_size_changes_nothing_but_rounding(rng, dimension, library):
    array = LIBRARIES[library]
    samples, y = array(rng.normal(size=(5000, dimension))), array(rng.normal(size=(300, dimension)))
    whole, blocked = Field(samples, 0.5, memory=2**28), Field(samples, 0.5, memory=2**19)  # 117 blocks
    for one, other in zip(whole.derivatives(y), blocked.derivatives(y), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("queries", "n", "dimension"), [(20_000, 3_000, 1), (3, 2_000_000, 1), (1_000, 10_000, 20)])
@pytest.mark.parametrize("budget", [2**20, 2**23])
def test_scratch_memory_stays_in_its_budget(rng, queries, n, dimension, budget):
    field = Field(rng.normal(size=(n, dimension)), 0.5, memory=budget)
    y = rng.normal(size=(queries, dimension))
    field.derivatives(y[:1])
    tracemalloc.start()
    field.derivatives(y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    linear = 4 * 8 * dimension * (queries + n)  # centred samples, scaled queries and the results themselves
    assert peak < budget + linear + 2**19


def test_dtype_device_and_shape_come_back():
    field = Field(np.linspace(-1, 1, 7), 0.3)
    for y in (np.zeros(4, np.float32), torch.zeros(4), torch.zeros(4, dtype=torch.bfloat16), np.zeros(4, np.float16)):
        result = field(y)
        assert type(result) is type(y)
        assert result.dtype == y.dtype
        assert tuple(result.shape) == (4,)
        assert abs(float(result[0]) - float(field(0.0))) < 1e-2
    assert field(np.float64(0.3)).shape == ()
    assert field(np.zeros((4, 1))).shape == (4,)
    assert field(np.zeros(0)).shape == (0,)
    assert field.derivatives(np.zeros((0, 1))).gradient.shape == (0, 1)
    assert Field(np.zeros((5, 3)), 1.0)(np.zeros(3)).shape == ()


def test_differentiable_in_torch_whole_and_in_blocks(rng):
    samples = torch.asarray(rng.normal(size=1_000))
    for memory in (2**26, 2**16):  # one block, or eight
        field = Field(samples, 0.4, memory=memory)
        y = torch.asarray(rng.normal(size=12), dtype=torch.float64).requires_grad_()
        torch.autograd.gradcheck(field.log, y)
        (slope,) = torch.autograd.grad(field.log(y).sum(), y)
        np.testing.assert_allclose(slope, field.derivatives(y).gradient[:, 0].detach() / 0.4, rtol=1e-9)


def test_works_under_vmap_and_jit(rng):
    samples, y = rng.normal(size=(3_000, 2)), rng.normal(size=(40, 2))
    expected = Field(samples, 0.6).log(y)
    np.testing.assert_allclose(torch.func.vmap(Field(samples, 0.6).log)(torch.asarray(y)), expected, rtol=1e-12)
    for memory in (2**26, 2**16):
        np.testing.assert_allclose(jax.jit(Field(samples, 0.6, memory=memory).log)(y), expected, rtol=1e-12)
    inside = jax.jit(lambda y: Field(jax.numpy.asarray(samples), 0.6).log(y))
    np.testing.assert_allclose(inside(y), expected, rtol=1e-12)
    known = jax.numpy.asarray(samples)
    np.testing.assert_allclose(jax.jit(lambda y: Field(known, 0.6).log(y))(y), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite_for_every_finite_query(dtype):
    largest = float(np.finfo(dtype).max)
    y = np.asarray([0.0, 1e6, -1e6, 1e18, largest, -largest, 0.25], dtype)
    for samples in (np.zeros(5, dtype), np.asarray([0.25, 0.5, -1.0], dtype), np.asarray([0.25], dtype)):
        for result in Field(samples, 1.0).derivatives(y):
            assert np.isfinite(result).all()


@given(
    hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(-5, 5)),
    hnp.arrays(np.float64, 5, elements=st.floats(-20, 20)),
    st.floats(0.05, 5),
    st.floats(-100, 100),
    st.floats(0.01, 100),
)
@settings(deadline=None, max_examples=60)
def test_symmetries(samples, y, s, offset, scale):
    expected = Field(samples, s).derivatives(y)
    variants = {
        "translation": Field(samples + offset, s).derivatives(y + offset),
        "scaling": Field(samples * scale, s * scale).derivatives(y * scale),
        "permutation": Field(samples[::-1].copy(), s).derivatives(y),
        "duplication": Field(np.concatenate([samples, samples]), s).derivatives(y),
    }
    for name, variant in variants.items():
        for one, other in zip(expected, variant, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-7, atol=1e-7, err_msg=name)
    assert (expected.log <= 0).all()


@pytest.mark.parametrize(
    ("samples", "bandwidth", "error", "words"),
    [
        *((np.zeros(shape), 1.0, ValueError, "^samples") for shape in (0, (0, 3), (2, 2, 2))),
        *((np.asarray([0.0, bad]), 1.0, ValueError, "1 of 2") for bad in (np.nan, np.inf)),
        *(
            (bad, 1.0, TypeError, "^samples")
            for bad in (np.arange(3), np.zeros(3, complex), "abc", [[1.0], [1.0, 2.0]])
        ),
        *((np.zeros(3), bad, ValueError, "^bandwidth") for bad in (0.0, -1, np.nan)),
        *((np.zeros(3), bad, TypeError, "^bandwidth") for bad in ("wide", True)),
    ],
)
def test_bad_samples_and_bandwidths(samples, bandwidth, error, words):
    with pytest.raises(error, match=words):
        Field(samples, bandwidth)


@pytest.mark.parametrize(
    "y",
    [
        np.zeros((4, 2)),
        np.zeros(4),
        np.full((2, 3), np.nan),
        torch.full((2, 3), torch.inf),
        np.zeros((2, 3), int),
        None,
    ],
)
def test_bad_queries(y):
    with pytest.raises((ValueError, TypeError), match=r"^y: "):
        Field(np.zeros((5, 3)), 1.0)(y)


def test_memory_budget_must_be_usable():
    with pytest.raises(ValueError, match="least"):
        Field(np.zeros(3), 1.0, memory=10)
