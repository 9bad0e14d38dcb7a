import importlib.util
import math
import tracemalloc
from pathlib import Path

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.special import eval_hermite

from qipf.fields import published

HERE = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def golden():
    return dict(np.load(HERE / "golden" / "author-mnist-lenet.npz"))


@pytest.fixture(scope="module")
def loop():
    spec = importlib.util.spec_from_file_location("authors_loop", HERE.parent / "benchmarks" / "authors_loop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.modes_by_loop


@pytest.mark.parametrize("max_order", [8, 12])
@pytest.mark.parametrize("library", [np.asarray, torch.asarray, array_api_strict.asarray])
def test_the_authors_numbers(golden, max_order, library):
    weights, y = library(golden["weights"].astype(np.float64)), library(golden["y"])
    ours = published.uncertainty_modes(weights, y, float(golden["sigma"]), max_order, radius=float(golden["es"]))
    assert type(ours) is type(y)
    assert ours.dtype == y.dtype
    np.testing.assert_allclose(np.asarray(ours), golden[f"modes_order{max_order}"], rtol=1e-9, atol=1e-12)


def test_the_authors_numbers_in_jax(golden):
    with jax.enable_x64(True):
        weights, y = jnp.asarray(golden["weights"].astype(np.float64)), jnp.asarray(golden["y"])
        function = jax.jit(lambda samples, points: published.uncertainty_modes(samples, points, float(golden["sigma"])))
        for ours in (function(weights, y), published.uncertainty_modes(weights, y, float(golden["sigma"]))):
            np.testing.assert_allclose(np.asarray(ours), golden["modes_order12"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("max_order", [8, 12])
def test_the_loop_of_the_benchmarks_computes_the_same(golden, loop, max_order):
    weights = golden["weights"].astype(np.float64)
    ours = loop(weights, golden["y"], float(golden["sigma"]), max_order)
    np.testing.assert_allclose(ours, golden[f"modes_order{max_order}"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("max_order", "stride", "radius"), [(24, 2, 0.2), (13, 3, 0.05), (7, 1, 1.0), (5, 2, 0.3)])
def test_other_settings_equal_the_loop(golden, loop, max_order, stride, radius):
    weights, y = golden["weights"][::10].astype(np.float64), np.linspace(-2.0, 2.0, 30) + 0.01
    ours = published.uncertainty_modes(weights, y, 4.0, max_order, stride, radius)
    assert ours.shape == (30, len(range(stride, max_order, stride)) - 1)
    np.testing.assert_allclose(ours, loop(weights, y, 4.0, max_order, stride, radius), rtol=1e-8, atol=1e-10)


def test_float32_is_close_to_float64(golden):
    ours = published.uncertainty_modes(golden["weights"], golden["y"].astype(np.float32), float(golden["sigma"]))
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, golden["modes_order12"], rtol=2e-3)


def test_single_half_precision_and_no_predictions(golden):
    sigma = float(golden["sigma"])
    weights, y = golden["weights"], golden["y"].astype(np.float32)
    several = published.uncertainty_modes(weights, y[:5], sigma)
    np.testing.assert_allclose(published.uncertainty_modes(weights, y[3], sigma), several[3], rtol=1e-3)
    half = published.uncertainty_modes(torch.asarray(weights), torch.asarray(y[:5]).to(torch.bfloat16), sigma)
    rounded = torch.asarray(y[:5]).to(torch.bfloat16).float()
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), published.uncertainty_modes(weights, rounded, sigma), rtol=1e-2, atol=1e-2)
    assert published.uncertainty_modes(weights, y[:0], sigma).shape == (0, 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite_on_a_pole_and_far_away(dtype):
    # one sample at 0: phi(y) = exp(-y^2 / 4), and H_2 is zero where phi = 1 / sqrt(2)
    pole = math.sqrt(2 * math.log(2))
    assert abs(eval_hermite(2, math.exp(-(pole**2) / 4))) < 1e-12
    y = np.asarray([pole, 0.0, 1e6, -1e30, *(pole + np.arange(-50, 50) * np.finfo(dtype).eps)], dtype=dtype)
    for stride in (1, 2, 3):
        ours = published.uncertainty_modes(np.zeros(3, dtype=dtype), y, 1.0, stride=stride)
        assert np.all(np.isfinite(ours))
        assert np.all(ours >= 0)
    assert np.max(published.uncertainty_modes(np.zeros(3, dtype=dtype), y, 1.0)[:, 0]) > 1e3


def test_memory_is_bounded_and_blocks_do_not_matter(golden):
    sigma, y = float(golden["sigma"]), np.linspace(-9.0, 9.0, 20_000)
    weights = golden["weights"][::20].astype(np.float64)
    budget = 2**21
    tracemalloc.start()
    ours = published.uncertainty_modes(weights, y, sigma, memory=budget)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < budget + 3 * ours.nbytes + 2**20  # the blocks and their concatenation, and the interpreter
    np.testing.assert_allclose(ours, published.uncertainty_modes(weights, y, sigma), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"samples": np.zeros((5, 2))}, ValueError, "samples in R"),
        ({"max_order": 4}, ValueError, "max_order"),
        ({"max_order": 41}, ValueError, "max_order"),
        ({"max_order": 8.5}, TypeError, "integer"),
        ({"stride": 0}, ValueError, "stride"),
        ({"radius": 0.0}, ValueError, "radius"),
    ],
)
def test_refusals(change, error, message):
    good = {"samples": np.linspace(-1.0, 1.0, 9), "y": np.zeros(2), "bandwidth": 1.0}
    published.uncertainty_modes(**good)
    with pytest.raises(error, match=message):
        published.uncertainty_modes(**(good | change))


def test_under_vmap(golden):
    weights, y = torch.asarray(golden["weights"]).double(), torch.asarray(golden["y"][:20])
    sigma = float(golden["sigma"])
    mapped = torch.func.vmap(lambda one: published.uncertainty_modes(weights, one, sigma))(y)
    torch.testing.assert_close(mapped, torch.asarray(golden["modes_order12"][:20]), rtol=1e-9, atol=1e-12)
