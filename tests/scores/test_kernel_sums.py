"""Kernel sums as attention, against plain float64 sums over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from qipf.fields import Field
from qipf.scores import class_field
from qipf.scores.class_field import ABSENT, Packed, log_fields, pack


def exponents(y: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """-|y - w|^2 / 2 by differences, in float64."""
    return -0.5 * ((y[:, None, :].astype(np.float64) - samples[None, :, :]) ** 2).sum(axis=2)


def plain_fields(y: np.ndarray, samples: np.ndarray, labels: np.ndarray, classes: int, weights=None) -> np.ndarray:
    weights = np.ones(len(samples)) if weights is None else weights
    each = exponents(y, samples)
    return np.stack([logsumexp(each[:, labels == c], b=weights[labels == c], axis=1) for c in range(classes)], axis=1)


def in_torch(packed: Packed) -> Packed:
    keys, squares, weights = (torch.from_numpy(part) for part in packed[:3])
    return packed._replace(keys=keys, squares=squares, weights=weights)


@pytest.fixture
def cloud(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    samples = rng.standard_normal((700, 40))
    labels = rng.choice(5, 700, p=[0.5, 0.3, 0.1, 0.09, 0.01])  # far from even
    return rng.standard_normal((600, 40)), samples, labels


def test_the_sum_of_a_class_is_the_field_of_its_samples(cloud) -> None:
    """`qipf.fields.Field` is the place of the formula: a mean instead of a sum, which is log n less."""
    y, samples, labels = cloud
    found = log_fields(y, pack(samples, labels, 5), bandwidth=1.7)
    for c in range(5):
        own = samples[labels == c]
        np.testing.assert_allclose(found[:, c], Field(own, 1.7).log(y) + np.log(len(own)), rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 70), min_size=1, max_size=6).filter(lambda counts: sum(counts) > 0),
    dimension=st.integers(1, 12),
    seed=st.integers(0, 999),
)
def test_log_fields_for_any_sizes_of_classes(counts: list[int], dimension: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    samples, y = rng.standard_normal((len(labels), dimension)), rng.standard_normal((9, dimension))
    weights = rng.uniform(0.1, 3, len(labels))
    found = log_fields(y, pack(samples, labels, len(counts), weights))
    present = [c for c, count in enumerate(counts) if count]
    relabelled = np.searchsorted(present, labels)
    expected = plain_fields(y, samples, relabelled, len(present), weights)
    np.testing.assert_allclose(found[:, present], expected, rtol=1e-10, atol=1e-10)
    absent = [c for c, count in enumerate(counts) if not count]
    assert (found[:, absent] < ABSENT / 2).all()


def test_more_rows_and_columns_than_a_tile_holds(rng: np.random.Generator) -> None:
    samples, y = rng.standard_normal((5000, 6)), rng.standard_normal((1100, 6))
    labels = rng.integers(0, 3, 5000)
    found = log_fields(y, pack(samples, labels, 3))
    rows = [0, 511, 512, 1099]
    np.testing.assert_allclose(found[rows], plain_fields(y[rows], samples, labels, 3), rtol=1e-10)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_float32_is_as_good_as_float64(cloud, library: str) -> None:
    y, samples, labels = cloud
    y, samples = y.astype(np.float32), samples.astype(np.float32)
    packed = pack(samples, labels, 5)
    found = log_fields(y, packed) if library == "numpy" else log_fields(torch.from_numpy(y), in_torch(packed)).numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, plain_fields(y, samples, labels, 5), atol=5e-5)


def test_far_queries_stay_finite_and_exact(cloud) -> None:
    y, samples, labels = cloud
    far = 30 * y
    np.testing.assert_allclose(
        log_fields(far, pack(samples, labels, 5)), plain_fields(far, samples, labels, 5), rtol=1e-10
    )
    single = log_fields(far.astype(np.float32), pack(samples.astype(np.float32), labels, 5))
    np.testing.assert_allclose(single, plain_fields(far, samples, labels, 5), rtol=1e-5)


def test_a_traced_batch_gives_the_same(cloud) -> None:
    y, samples, labels = cloud
    packed = in_torch(pack(samples, labels, 5))
    one_by_one = torch.func.vmap(lambda row: log_fields(row[None, :], packed)[0])(torch.from_numpy(y[:20]))
    np.testing.assert_allclose(one_by_one.numpy(), log_fields(y[:20], pack(samples, labels, 5)), rtol=1e-12)


def test_gradients_flow_to_the_queries(cloud) -> None:
    y, samples, labels = cloud
    packed = in_torch(pack(samples, labels, 5))
    query = torch.from_numpy(y[:3]).requires_grad_()
    log_fields(query, packed).sum().backward()
    step = 1e-6 * np.eye(40)[7]
    slope = [
        (plain_fields(row[None] + step, samples, labels, 5) - plain_fields(row[None] - step, samples, labels, 5)).sum()
        / 2e-6
        for row in y[:3]
    ]
    np.testing.assert_allclose(query.grad.numpy()[:, 7], slope, rtol=1e-4)


@pytest.mark.parametrize("bandwidth", [0.5, 3.0])
def test_one_packing_serves_every_bandwidth(cloud, bandwidth: float) -> None:
    y, samples, labels = cloud
    weights = np.random.default_rng(1).uniform(0.1, 2, len(samples))
    found = log_fields(y, pack(samples, labels, 5, weights), bandwidth)
    expected = plain_fields(y / bandwidth, samples / bandwidth, labels, 5, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.gpu
def test_on_a_gpu_float32_is_as_good(cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(class_field, "_GPU_TILE", 2**11)  # several tiles: sums are carried from one to the next
    y, samples, labels = cloud
    packed = pack(samples.astype(np.float32), labels, 5)
    keys, squares, weights = (torch.from_numpy(part).cuda() for part in packed[:3])
    there = packed._replace(keys=keys, squares=squares, weights=weights)
    found = log_fields(torch.from_numpy(y.astype(np.float32)).cuda(), there).cpu().numpy()
    np.testing.assert_allclose(found, plain_fields(y, samples, labels, 5), atol=2e-4)
