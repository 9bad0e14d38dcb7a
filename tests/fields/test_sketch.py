"""The field of very many weights: sketched, merged, saved, and shared by processes."""

from __future__ import annotations

import socket
import tracemalloc

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from qipf.fields import sketch as sketches
from qipf.fields.bandwidth import silverman
from qipf.fields.field import Field
from qipf.fields.sketch import FieldSketch


@pytest.fixture(scope="module")
def weights() -> np.ndarray:
    generator = np.random.default_rng(5)
    dense = generator.standard_normal(60_000) * 0.02 * (1 + 4 * generator.random(60_000) ** 6)
    return np.concatenate([dense, np.zeros(500), [0.7, -0.9], np.full(50, 0.125)]).astype(np.float32)


def values_of(field, y: np.ndarray) -> np.ndarray:
    log, gradient, laplacian = field.derivatives(y)
    return np.stack([log, gradient[:, 0], laplacian])


@pytest.mark.parametrize("factor", [0.5, 5.0, 160.0])
def test_field_is_that_of_all_weights(weights: np.ndarray, factor: float) -> None:
    exact = Field(weights.astype(np.float64), factor * silverman(weights))
    sketch = FieldSketch(bandwidth=exact.bandwidth)
    for chunk in np.array_split(weights, 7):
        sketch.add(chunk)
    found = sketch.finish()
    y = np.concatenate([np.linspace(-1, 1, 60), weights[:40].astype(np.float64), 0.7 + exact.bandwidth * np.arange(38)])
    np.testing.assert_allclose(found.log(y), exact.log(y), rtol=1e-10, atol=1e-13)
    mine, theirs = values_of(found, y), values_of(exact, y)
    size = np.abs(theirs[2]) + theirs[1] ** 2
    assert (np.abs(mine[2] - theirs[2]) / size).max() < 1e-10


def test_any_order_and_split_gives_the_same_field(weights: np.ndarray) -> None:
    shuffled = np.random.default_rng(6).permutation(weights)
    one = FieldSketch(factor=20).add(weights).finish()
    parts = [FieldSketch(factor=20), FieldSketch(factor=20), FieldSketch(factor=20)]
    for number, chunk in enumerate(np.split(shuffled, [1, 5, 4000, 4001, 30_000])):
        parts[number % 3].add(chunk.reshape(-1, 1) if number % 2 else chunk)
    other = parts[2].merge(parts[0]).merge(parts[1]).finish()
    assert len(one) == len(other) == len(weights)
    assert other.bandwidth == pytest.approx(one.bandwidth, rel=1e-13)
    y = np.linspace(-1, 1, 300)
    np.testing.assert_allclose(values_of(other, y), values_of(one, y), rtol=1e-11, atol=1e-12)


def test_statistics_are_those_of_all_weights(weights: np.ndarray) -> None:
    sketch = FieldSketch().add(weights)
    double = weights.astype(np.float64)
    assert sketch.mean == pytest.approx(double.mean(), rel=1e-11)
    assert sketch.std == pytest.approx(double.std(), rel=1e-12)
    assert (sketch.minimum, sketch.maximum) == (double.min(), double.max())
    for probability in (0.0, 0.1, 0.25, 0.5, 0.75, 0.999, 1.0):
        assert sketch.quantile(probability) == pytest.approx(np.quantile(double, probability), rel=1e-4, abs=1e-7)
    assert sketch.silverman() == pytest.approx(silverman(weights), rel=1e-5)


def test_standardised_field_takes_standardised_queries(weights: np.ndarray) -> None:
    field = FieldSketch(factor=40).add(weights).finish(standardise=True)
    double = weights.astype(np.float64)
    standard = (double - double.mean()) / double.std()
    exact = Field(standard, field.bandwidth)
    assert field.bandwidth == pytest.approx(40 * silverman(standard), rel=1e-5)
    y = np.linspace(-10, 10, 50)
    np.testing.assert_allclose(field.log(y), exact.log(y), rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_torch_weights_of_any_precision(dtype: torch.dtype, weights: np.ndarray) -> None:
    tensor = torch.from_numpy(weights).to(dtype)
    exact = Field(tensor.double().numpy(), 0.05)
    y = np.linspace(-1, 1, 50)
    for given in (tensor, tensor.numpy()) if dtype != torch.bfloat16 else (tensor,):
        sketch = FieldSketch(bandwidth=0.05).add(given)
        np.testing.assert_allclose(sketch.finish().log(y), exact.log(y), rtol=1e-11)
        assert sketch.count == weights.size


def test_origin_serves_weights_far_from_zero() -> None:
    values = 1e4 + np.random.default_rng(7).standard_normal(100_000)
    width = 0.5 * silverman(values)
    with pytest.raises(ValueError, match="origin"):
        FieldSketch(bandwidth=width).add(values).finish()
    found = FieldSketch(bandwidth=width, origin=1e4).add(values).finish()
    y = np.linspace(9_996, 10_004, 30)
    np.testing.assert_allclose(found.log(y), Field(values, width).log(y), rtol=1e-9)


def test_state_survives_a_round_trip(weights: np.ndarray) -> None:
    sketch = FieldSketch(factor=5).add(weights[:30_000])
    again = FieldSketch.from_state(sketch.state()).add(weights[30_000:])
    sketch.add(weights[30_000:])
    assert again.factor == 5
    y = np.linspace(-1, 1, 50)
    np.testing.assert_array_equal(values_of(again.finish(), y), values_of(sketch.finish(), y))


def test_a_constant_needs_its_own_bandwidth() -> None:
    sketch = FieldSketch().add(np.full(100, 0.25))
    with pytest.raises(ValueError, match="distinct"):
        sketch.finish(factor=1.0)
    assert sketch.finish(bandwidth=2.0).log(np.asarray(2.25)) == pytest.approx(-0.5, rel=1e-14)


def test_bad_input_is_named() -> None:
    sketch = FieldSketch(bandwidth=1.0).add(np.empty(0))
    with pytest.raises(ValueError, match="empty"):
        sketch.finish()
    infinite = torch.tensor([1.0, float("inf")], dtype=torch.bfloat16)
    for chunk, message in ((np.asarray([1.0, np.nan]), "NaN"), (infinite, "NaN"), (np.asarray([1e300]), "rescale")):
        with pytest.raises(ValueError, match=message):
            sketch.add(chunk)
    with pytest.raises(TypeError, match="floating"):
        sketch.add(np.arange(3))
    assert sketch.count == 0
    with pytest.raises(ValueError, match="bandwidth"):
        sketch.merge(FieldSketch(bandwidth=2.0))
    with pytest.raises(ValueError, match="both"):
        FieldSketch(bandwidth=1.0, factor=1.0)
    with pytest.raises(ValueError, match="positive"):
        FieldSketch(factor=-1.0)
    with pytest.raises(ValueError, match="bandwidth"):
        FieldSketch().add(np.zeros(3)).finish()


def test_memory_stays_within_the_promise_for_any_weights() -> None:
    """Random bit patterns fall into every bin, a few in each: the most that a sketch can be asked to keep."""
    generator = np.random.default_rng(0)
    tracemalloc.start()
    try:
        sketch, count = FieldSketch(), 0
        for _ in range(4):
            bits = generator.integers(0, 2**32, 2**20, dtype=np.uint32)
            weights = bits.view(np.float32)
            weights = weights[np.abs(weights) < 3e38]  # neither NaN nor infinite, nor beyond the sketch
            sketch.add(weights)
            count += weights.size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sketch.count == count
    assert sketch._sums.nbytes + sketch._few.nbytes <= 120 * 2**20
    assert peak <= (120 + 90 + 10) * 2**20  # the weights of this test included


def test_dropping_kept_weights_changes_nothing_but_the_last_digits(monkeypatch) -> None:
    weights = np.random.default_rng(1).standard_t(4, 30_000)
    y = np.linspace(-8, 8, 101)
    expected = FieldSketch(bandwidth=0.1).add(weights).finish()
    monkeypatch.setattr(sketches, "KEPT", 50)
    sparing = FieldSketch(bandwidth=0.1)
    for part in np.split(weights, 10):
        sparing.merge(FieldSketch(bandwidth=0.1).add(part))
    assert sparing._few.size <= 50
    np.testing.assert_allclose(sparing.finish().log(y), expected.log(y), rtol=1e-9)
    assert sparing.quantile(0.3) == pytest.approx(np.quantile(weights, 0.3), rel=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_gpu_counts_every_pattern_of_16_bits(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    usual = torch.randn(300_001, generator=generator) * 0.02
    odd = torch.tensor([0.0, -0.0, 1e-40, -2e-30, 6e4, -6e4])
    weights = torch.cat([usual, torch.zeros(5003), odd]).to(dtype)
    here, there = FieldSketch(factor=20).add(weights), FieldSketch(factor=20).add(weights.cuda())
    assert (there.count, there.mean, there.std) == (here.count, here.mean, here.std)


def shards() -> np.ndarray:
    generator = np.random.default_rng(9)
    return np.concatenate([generator.standard_normal(30_000), [12.0, -15.0]])


def _work(rank: int, port: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    shard = shards()[:7_000] if rank == 0 else shards()[7_000:]
    field = FieldSketch(factor=10).add(shard).merge_ranks().finish()
    np.savez(f"{folder}/{rank}.npz", **field.state())
    dist.destroy_process_group()


@pytest.mark.thorough
def test_two_processes_equal_one(tmp_path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.spawn(_work, (port, str(tmp_path)), nprocs=2)
    one = FieldSketch(factor=10).add(shards()).finish().state()
    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz") as found:
            assert set(found) == set(one)
            for name, values in one.items():
                np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)
