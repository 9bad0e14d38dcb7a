"""Pooling against the authors' own numbers, and against means taken by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qipf.weights.pooling import pool_weights, pooled_shape, values_per_layer
from qipf.weights.weights import read_weights

AUTHORS = [(1, 5, 1, 1), (1, 5, 6, 1), (10, 10), (5, 8), (1, 5)]
VGG3 = [(32, 3, 3, 3), (32, 32, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3), (128, 64, 3, 3), (128, 128, 3, 3)]
VGG3 += [(128, 2048), (10, 128)]


def resnet18() -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = [(64, 3, 3, 3)]
    width = 64
    for out in (64, 128, 256, 512):
        shapes += [(out, width, 3, 3), *[(out, out, 3, 3)] * 3]
        if out != width:
            shapes.append((out, width, 1, 1))
        width = out
    return [*shapes, (10, 512)]


def filled(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    return [np.ones(shape, dtype=np.float32) for shape in shapes]


def test_the_authors_blocks_give_the_authors_values(author_checkpoint: Path, golden: Path) -> None:
    expected = np.load(golden / "author-mnist-lenet.npz")["pooled"]
    pooled = pool_weights(read_weights(author_checkpoint), AUTHORS, edges="zeros")
    assert pooled.shape == (1022,)
    assert pooled.dtype == np.float32
    np.testing.assert_allclose(pooled, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("shapes", "published"), [(VGG3, 2400), (resnet18(), 3552)], ids=["VGG-3", "ResNet-18"])
def test_the_rule_reaches_the_published_totals(shapes: list[tuple[int, ...]], published: int) -> None:
    assert pool_weights(filled(shapes)).size == pytest.approx(published, rel=0.02)


def test_blocks_are_means_in_row_major_order() -> None:
    values = np.arange(24.0).reshape(4, 6)
    expected = [values[i : i + 2, j : j + 3].mean() for i in (0, 2) for j in (0, 3)]
    np.testing.assert_array_equal(pool_weights([values], [(2, 3)]), expected)
    np.testing.assert_array_equal(pool_weights({"a": values, "b": values[:1]}, {"b": (1, 6), "a": (4, 6)}), [11.5, 2.5])


def test_edges_hold_what_is_there_or_zeros() -> None:
    values = np.arange(1.0, 6.0)[None, :]
    np.testing.assert_array_equal(pool_weights([values], [(1, 2)], edges="mean"), [1.5, 3.5, 5])
    np.testing.assert_array_equal(pool_weights([values], [(1, 2)], edges="zeros"), [1.5, 3.5, 2.5])
    with pytest.raises(ValueError, match="kernel"):
        pool_weights({"fc": values}, [(1, 2)])


def test_target_averages_uneven_parts_over_what_is_there() -> None:
    values = np.arange(7.0)[None, :] ** 2
    parts = [values[0, :2], values[0, 2:4], values[0, 4:]]
    np.testing.assert_allclose(pool_weights([values], target=3), [part.mean() for part in parts], rtol=1e-15)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(1, 400))
def test_the_parts_are_about_the_target(shape: list[int], target: int) -> None:
    parts = pooled_shape(shape, target)
    assert all(1 <= part <= size for part, size in zip(parts, shape, strict=True))
    if math.prod(shape) <= target:
        assert parts == tuple(shape)
    else:
        assert 0.5 <= math.prod(parts) / target <= 2


@given(st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_the_order_of_the_axes_does_not_matter(target: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(12, 7, 5, 3))
    turned = pool_weights([values.transpose(2, 3, 1, 0)], target=target)
    np.testing.assert_allclose(np.sort(pool_weights([values], target=target)), np.sort(turned), rtol=0, atol=1e-14)


def test_a_target_beyond_the_size_keeps_every_weight(rng: np.random.Generator) -> None:
    values = rng.normal(size=(5, 4))
    np.testing.assert_array_equal(pool_weights([values], target=10**9), values.ravel())
    assert pool_weights([values], target=1) == pytest.approx(values.mean())
    assert values_per_layer(10**6) == 1


def test_wrong_calls_say_what_is_wrong() -> None:
    values = np.ones((4, 4))
    for arguments, options, message in (
        (([values], [(1, 1), (1, 1)]), {}, "blocks"),
        (({"a": values}, {"b": (1, 1)}), {}, "blocks"),
        (([values], [(1, 1, 1)]), {}, "positive"),
        (([values], [(1, 1)]), {"target": 3}, "both"),
        (([],), {}, "kernels"),
        (([values, values * np.nan],), {}, "kernel 1"),
        (([values],), {"target": 0}, "target"),
        (([values], [(3, 3)]), {"edges": "wrap"}, "edges"),
    ):
        with pytest.raises(ValueError, match=message):
            pool_weights(*arguments, **options)
