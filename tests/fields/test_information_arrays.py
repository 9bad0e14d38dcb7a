"""Information measures: array libraries, gradients, memory, precision and what is refused."""

import math
import tracemalloc

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.stats import norm

from qipf.fields import information as info

PAIRWISE = [
    info.cross_information_potential,
    info.integrated_product,
    info.euclidean_divergence,
    info.cauchy_schwarz_divergence,
    info.maximum_mean_discrepancy,
    info.squared_discrepancy,
    lambda x, y, s, **options: info.lower_bound(x, [y[:2, ...], y[2:, ...]], s, **options),
]


@pytest.mark.parametrize(
    ("function", "dimension"), [*((function, 3) for function in PAIRWISE), (info.cross_information_potential, None)]
)
def test_every_library_gives_the_same_and_keeps_its_type(function, dimension):
    rng = np.random.default_rng(0)
    shape = () if dimension is None else (dimension,)
    x, y = rng.normal(size=(9, *shape)), rng.normal(size=(7, *shape)) + 0.5
    expected = float(function(x, y, 0.8))
    for convert in (torch.asarray, array_api_strict.asarray):
        result = function(convert(x), convert(y), 0.8)
        assert type(result) is type(convert(x))
        assert result.dtype == convert(x).dtype
        assert result.shape == ()
        assert float(result) == pytest.approx(expected, rel=1e-10)
    single = function(jnp.asarray(x, dtype=jnp.float32), jnp.asarray(y, dtype=jnp.float32), 0.8)
    assert isinstance(single, jax.Array)
    assert single.dtype == jnp.float32
    assert float(single) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    traced = jax.jit(lambda a, b: function(a, b, 0.8))(x.astype(np.float32), y.astype(np.float32))
    assert float(traced) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_torch_gradient_is_the_finite_difference(data):
    x, y = data
    samples = torch.asarray(x, requires_grad=True)
    info.cauchy_schwarz_divergence(samples, torch.asarray(y), 0.8).backward()
    assert samples.grad is not None
    step = np.zeros_like(x)
    step[2] = 1e-5
    slope = (info.cauchy_schwarz_divergence(x + step, y, 0.8) - info.cauchy_schwarz_divergence(x - step, y, 0.8)) / 2e-5
    assert float(samples.grad[2]) == pytest.approx(float(slope), rel=1e-6)


def test_memory_is_bounded_and_blocks_do_not_matter():
    x, y = norm.ppf((np.arange(3000) + 0.5) / 3000), 0.3 + norm.ppf((np.arange(2500) + 0.5) / 2500)
    budget = 2**22
    tracemalloc.start()
    small = info.euclidean_divergence(x, y, 0.3, memory=budget)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < budget  # all pairs at once would take 60 MB
    assert small == pytest.approx(float(info.euclidean_divergence(x, y, 0.3)), rel=1e-9)


def test_mixed_precision_goes_to_the_wider(data):
    x, y = data
    assert info.integrated_product(x.astype(np.float32), y, 0.5).dtype == np.float64
    assert info.integrated_product(x, y.astype(np.float32), 0.5).dtype == np.float64


@pytest.mark.parametrize("function", [PAIRWISE[0], PAIRWISE[3]])
@pytest.mark.parametrize(
    ("x", "y", "s", "error", "message"),
    [
        (np.zeros(0), np.zeros(2), 1.0, ValueError, "x: .*one or more samples"),
        (np.zeros(2), np.zeros(0), 1.0, ValueError, "y: .*one or more samples"),
        (np.zeros(2), np.asarray([0.0, math.nan]), 1.0, ValueError, "y: .*NaN"),
        (np.asarray([0.0, math.inf]), np.zeros(2), 1.0, ValueError, "x: .*infinite"),
        (np.zeros((3, 2)), np.zeros((3, 4)), 1.0, ValueError, r"R\^2 and R\^4"),
        (np.zeros((2, 2, 2)), np.zeros(2), 1.0, ValueError, r"\(2, 2, 2\)"),
        (np.arange(3), np.zeros(2), 1.0, TypeError, "x: .*int64"),
        (np.zeros(2), np.zeros(2), 0.0, ValueError, "bandwidth.*0.0"),
    ],
)
def test_refusals(function, x, y, s, error, message):
    with pytest.raises(error, match=message):
        function(x, y, s)


def test_other_refusals(data):
    x, y = data
    with pytest.raises(ValueError, match="integral"):
        info.renyi_entropy(x, 1.0, estimator="sum")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="samples"):
        info.squared_discrepancy(x, y[:1], 1.0)
    for others in ([], y, None):
        with pytest.raises(TypeError, match="others"):
            info.lower_bound(x, others, 1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"others\[1\]"):
        info.lower_bound(x, [y, y[:0]], 1.0)
