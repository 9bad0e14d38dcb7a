"""Oracles: closed forms for Gaussians, quadrature of Parzen densities, pairwise sums written out; array libraries."""

import math

import array_api_strict
import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal, norm

from qipf.fields import information as info


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    return rng.normal(size=7), rng.normal(loc=0.8, scale=1.7, size=11)


def normal_samples(mean=0.0, std=1.0, n=2000):
    """The exact quantiles of a normal distribution: a sample without sampling error."""
    return mean + std * norm.ppf((np.arange(n) + 0.5) / n)


def parzen(samples, s):
    return lambda u: np.mean(norm.pdf(u, loc=samples, scale=s))


def integral(function):
    return quad(function, -12.0, 12.0, limit=500, epsabs=1e-13, epsrel=1e-12)[0]


def test_plug_in_is_the_double_sum_of_unnormalised_kernels(data):
    x, y = data
    s = 0.7
    kernel = np.exp(-((x[:, None] - y[None, :]) ** 2) / (2 * s * s))
    assert info.cross_information_potential(x, y, s) == pytest.approx(kernel.mean(), rel=1e-13)
    assert info.information_potential(x, s) == pytest.approx(
        np.exp(-((x[:, None] - x[None, :]) ** 2) / (2 * s * s)).mean(), rel=1e-13
    )


@pytest.mark.parametrize("s", [0.3, 1.1])
def test_integral_is_the_quadrature_of_two_parzen_densities(data, s):
    x, y = data
    assert info.integrated_product(x.astype(np.float32), y, s).dtype == np.float64
    p, q = parzen(x, s), parzen(y, s)
    assert info.integrated_product(x, y, s) == pytest.approx(integral(lambda u: p(u) * q(u)), rel=1e-9)
    assert info.integrated_square(x, s) == pytest.approx(integral(lambda u: p(u) ** 2), rel=1e-9)


ADDED: list[tuple[info.Estimator, float]] = [("integral", 2.0), ("plug-in", 1.0)]


@pytest.mark.parametrize(("estimator", "added"), ADDED)
def test_gaussian_closed_forms(estimator, added):
    # p = N(0, 1), q = N(1, 4), each smoothed by the kernel: variances 1 + s^2 and 4 + s^2 for the integral,
    # and one s^2 altogether, instead of two, for the plug-in.
    x, y, s = normal_samples(), normal_samples(1.0, 2.0), 0.5
    added *= s * s
    pp, qq = norm.pdf(0, scale=math.sqrt(2 + added)), norm.pdf(0, scale=math.sqrt(8 + added))
    pq = norm.pdf(1, scale=math.sqrt(5 + added))
    assert info.renyi_entropy(x, s, estimator=estimator) == pytest.approx(-math.log(pp), abs=5e-4)
    euclidean = info.euclidean_divergence(x, y, s, estimator=estimator)
    assert euclidean == pytest.approx(pp + qq - 2 * pq, abs=2e-4)
    cauchy_schwarz = info.cauchy_schwarz_divergence(x, y, s, estimator=estimator)
    assert cauchy_schwarz == pytest.approx(-math.log(pq**2 / (pp * qq)), abs=1e-3)


def test_gaussian_closed_forms_in_the_plane():
    grid = normal_samples(n=60)
    x = np.stack(np.meshgrid(grid, 2 * grid), axis=-1).reshape(-1, 2)
    s = 0.8
    expected = multivariate_normal.pdf([0, 0], cov=np.diag([2 + 2 * s * s, 8 + 2 * s * s]))  # pyright: ignore[reportArgumentType]
    assert info.integrated_square(x, s) == pytest.approx(expected, rel=0.01)
    assert info.renyi_entropy(x, s) == pytest.approx(-math.log(expected), abs=0.01)
    one_point = np.zeros((1, 2))
    assert info.integrated_square(one_point, s) == pytest.approx(1 / (4 * math.pi * s * s), rel=1e-13)


def test_divergences_are_those_of_the_parzen_densities(data):
    x, y = data
    s = 0.6
    p, q = parzen(x, s), parzen(y, s)
    pp, qq, pq = (integral(f) for f in (lambda u: p(u) ** 2, lambda u: q(u) ** 2, lambda u: p(u) * q(u)))
    assert info.euclidean_divergence(x, y, s) == pytest.approx(integral(lambda u: (p(u) - q(u)) ** 2), rel=1e-8)
    assert info.cauchy_schwarz_divergence(x, y, s) == pytest.approx(-math.log(pq**2 / (pp * qq)), rel=1e-8)


def test_divergences_of_equal_and_of_very_distant_samples(data):
    x, _ = data
    for function in (info.euclidean_divergence, info.cauchy_schwarz_divergence):
        assert 0 <= function(x, x[::-1].copy(), 0.4) < 1e-7
    far = info.cauchy_schwarz_divergence(np.zeros(2), np.full(2, 1e4), 1.0)
    assert far == pytest.approx(2 * 1e8 / 4, rel=1e-9)  # -2 log exp(-D^2 / (4 s^2))
    apart = info.euclidean_divergence(x, x + 1e4, 0.4)
    assert apart == pytest.approx(2 * info.integrated_square(x, 0.4), rel=1e-12)


def test_discrepancy(data):
    x, y = data
    s = 0.9
    kernel = {(a, b): np.exp(-cdist(u[:, None], v[:, None], "sqeuclidean") / (2 * s * s))
              for a, u in (("x", x), ("y", y)) for b, v in (("x", x), ("y", y))}  # fmt: skip
    biased = kernel["x", "x"].mean() + kernel["y", "y"].mean() - 2 * kernel["x", "y"].mean()
    assert info.squared_discrepancy(x, y, s, unbiased=False) == pytest.approx(biased, rel=1e-12)
    n, m = len(x), len(y)
    off_x, off_y = kernel["x", "x"][~np.eye(n, dtype=bool)], kernel["y", "y"][~np.eye(m, dtype=bool)]
    unbiased = off_x.mean() + off_y.mean() - 2 * kernel["x", "y"].mean()
    assert info.squared_discrepancy(x, y, s) == pytest.approx(unbiased, rel=1e-12)


def test_unbiased_discrepancy_has_mean_zero_for_one_distribution():
    rng = np.random.default_rng(1)
    values = [info.squared_discrepancy(rng.normal(size=10), rng.normal(size=10), 1.0) for _ in range(400)]
    error = np.std(values) / math.sqrt(len(values))
    assert abs(np.mean(values)) < 4 * error < 0.02


@pytest.mark.parametrize("estimator", ["integral", "plug-in"])
def test_lower_bound_holds_and_is_tight_in_the_span(estimator):
    rng = np.random.default_rng(2)
    s = 0.5
    pieces = [rng.normal(loc=centre, size=6) for centre in (-2.0, 0.0, 3.0)]
    inside = np.concatenate([pieces[0], pieces[0], pieces[1], pieces[2]])  # f = g_1 / 2 + g_2 / 4 + g_3 / 4
    outside = np.concatenate([inside, [7.0]])
    for f, tight in ((inside, True), (outside, False)):
        exact = math.exp(-float(info.renyi_entropy(f, s, estimator=estimator)))
        bound = info.lower_bound(f, pieces, s, estimator=estimator)
        assert 0 < bound <= exact * (1 + 1e-12)
        assert math.isclose(bound, exact, rel_tol=1e-12) is tight
    if estimator == "plug-in":
        normalised = info.information_potential(inside, s) / math.sqrt(2 * math.pi * s * s)
        assert info.lower_bound(inside, pieces, s, estimator=estimator) == pytest.approx(normalised, rel=1e-12)


def test_lower_bound_is_the_solution_of_the_gram_system_and_grows_with_the_span(data):
    x, y = data
    s, others = 0.4, [y[:3], y[3:5], y[5:]]
    b = np.asarray([info.integrated_product(x, g, s) for g in others])
    gram = np.asarray([[info.integrated_product(g, h, s) for h in others] for g in others])
    bounds = [float(info.lower_bound(x, others[:k], s)) for k in (1, 2, 3)]
    assert bounds[2] == pytest.approx(b @ np.linalg.solve(gram, b), rel=1e-10)
    assert bounds == sorted(bounds)


def test_lower_bound_survives_dependent_densities(data):
    x, y = data
    independent = info.lower_bound(x, [y[:5], y[5:]], 0.7)
    assert info.lower_bound(x, [y[:5], y[5:], y, y[:5]], 0.7) == pytest.approx(independent, rel=1e-7)
    points = [np.asarray([point]) for point in np.linspace(-4, 5, 60)]  # a Gram matrix singular to rounding
    bound, exact = info.lower_bound(x, points, 0.7), info.integrated_square(x, 0.7)
    assert exact * (1 - 1e-4) < bound <= exact * (1 + 1e-7)


@settings(max_examples=50, deadline=None)
@given(
    x=st.lists(st.floats(-5, 5), min_size=1, max_size=6),
    y=st.lists(st.floats(-5, 5), min_size=1, max_size=6),
    s=st.floats(0.05, 20),
    scale=st.floats(0.01, 100),
    shift=st.floats(-10, 10),
)
def test_invariances(x, y, s, scale, shift):
    x, y = np.asarray(x), np.asarray(y)
    cs = info.cauchy_schwarz_divergence(x, y, s)
    assert cs == pytest.approx(float(info.cauchy_schwarz_divergence(y, x, s)), rel=1e-9, abs=1e-9)
    moved = info.cauchy_schwarz_divergence(scale * x + shift, scale * y + shift, scale * s)
    assert moved == pytest.approx(float(cs), rel=1e-6, abs=1e-6)
    doubled = info.renyi_entropy(np.concatenate([x, x]), s)
    assert doubled == pytest.approx(float(info.renyi_entropy(x, s)), abs=1e-12)
    stretched = info.renyi_entropy(scale * x + shift, scale * s)
    assert stretched == pytest.approx(float(info.renyi_entropy(x, s)) + math.log(scale), abs=1e-6)
    assert info.lower_bound(x, [y], s) <= info.integrated_square(x, s) * (1 + 1e-9)
    # Cauchy-Schwarz in the RKHS
    cross = info.cross_information_potential(x, y, s)
    assert cross**2 <= info.information_potential(x, s) * info.information_potential(y, s) * (1 + 1e-12)


PAIRWISE = [
    info.cross_information_potential,
    info.integrated_product,
    info.euclidean_divergence,
    info.cauchy_schwarz_divergence,
    info.squared_discrepancy,
    lambda x, y, s: info.lower_bound(x, [y[:2, ...], y[2:, ...]], s),
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
    traced = jax.jit(lambda a, b: function(a, b, 0.8))(x.astype(np.float32), y.astype(np.float32))
    assert isinstance(traced, jax.Array)
    assert traced.dtype == np.float32
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


def test_refusals(data):
    x, y = data
    for name, pair in {"x": (x[:0], y), "y": (x, y[:0]), "bandwidth": (x, y, 0.0)}.items():
        with pytest.raises(ValueError, match=f"^{name}"):
            info.cauchy_schwarz_divergence(*(*pair, 1.0)[:3])
    with pytest.raises(ValueError, match=r"R\^2 and R\^4"):
        info.integrated_product(np.zeros((3, 2)), np.zeros((3, 4)), 1.0)
    with pytest.raises(ValueError, match="integral"):
        info.renyi_entropy(x, 1.0, estimator="sum")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="samples"):
        info.squared_discrepancy(x, y[:1], 1.0)
    for others in ([], y, None):
        with pytest.raises(TypeError, match="others"):
            info.lower_bound(x, others, 1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"others\[1\]"):
        info.lower_bound(x, [y, y[:0]], 1.0)
