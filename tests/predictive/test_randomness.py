"""Masks are a function of seed and position, and as random as they should be."""

import numpy as np
import pytest
import torch
from scipy import stats

from qipf.predictive.randomness import derive, keep_mask, normal
from qipf.training import seeded

CPU = torch.device("cpu")


def mask(rows=300, features=400, rate=0.2, seed=1, start=0):
    return keep_mask(rows, features, rate=rate, seed=seed, start=start, device=CPU)


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.5, 0.9])
def test_the_share_dropped_is_the_rate(rate):
    dropped = int((~mask(rate=rate)).sum())
    assert stats.binomtest(dropped, 300 * 400, rate).pvalue > 1e-3


def test_rows_columns_and_seeds_are_uncorrelated():
    a, b = mask(seed=1).numpy().astype(float), mask(seed=2).numpy().astype(float)
    for matrix in (a, a.T):
        off = np.corrcoef(matrix)[np.triu_indices(len(matrix), 1)]
        assert abs(off.std() * np.sqrt(matrix.shape[1]) - 1) < 0.03
    assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4 / np.sqrt(a.size)


def test_a_row_does_not_depend_on_its_batch():
    assert torch.equal(mask()[120:150], mask(rows=30, start=120))


def mix(bits):
    """The integer finaliser in plain Python."""
    bits ^= bits >> 16
    bits = bits * 0x7FEB352D % 2**32
    bits ^= bits >> 15
    bits = bits * 0x846CA68B % 2**32
    return bits ^ bits >> 16


def test_the_bits_are_those_of_the_hash_written_out():
    """Stored results must be reproducible by a later version and on another device: these bits may not change."""
    key = derive(7, "mask")
    for row, column in [(0, 0), (1, 3), (2, 5), (3, 399), (299, 1)]:
        bits = mix(mix(row ^ key % 2**32) ^ mix(column ^ (key >> 31) % 2**32))
        uniform = (bits ^ 0x80000000) / 2**32  # signed order
        for rate in (0.2, 0.5, 0.8):
            assert bool(mask(rate=rate, seed=7)[row, column]) == (uniform >= rate)
    assert key == 6375098235631328618


def test_derived_seeds_differ_by_path_and_stay_in_range():
    seeds = {derive(0, "x", k) for k in range(1000)} | {derive(1, "x", k) for k in range(1000)}
    assert len(seeds) == 2000
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_normal_and_seeded_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    first = normal((4,), 3, CPU)
    with seeded(5, CPU):
        inside = torch.randn(3)
    with seeded(5, CPU):
        again = torch.randn(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(inside, again)
    assert torch.equal(first, normal((4,), 3, CPU))


def test_channels_last_is_the_same_mask_in_another_order():
    plain = mask(rows=7, features=3 * 4 * 5).reshape(7, 3, 4, 5)
    other = keep_mask(7, 3 * 4 * 5, rate=0.2, seed=1, start=0, device=CPU, channels=3).reshape(7, 4, 5, 3)
    assert torch.equal(other.permute(0, 3, 1, 2), plain)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("channels", [0, 8])
@pytest.mark.parametrize(("rows", "features"), [(1, 8), (300, 400), (5000, 2048)])
def test_the_gpus_masks_are_the_cpus(rows, features, channels):
    options = {"rate": 0.3, "seed": 5, "start": 17, "channels": channels}
    expected = keep_mask(rows, features, device=CPU, **options)
    assert torch.equal(keep_mask(rows, features, device=torch.device("cuda"), **options).cpu(), expected)
