"""Random numbers follow from a seed, and are as random as they should be."""

import pytest
import torch
from scipy import stats

from qipf.predictive._fitting import derive, keep_mask, normal
from qipf.training import seeded

CPU = torch.device("cpu")


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.5, 0.9])
def test_the_share_dropped_is_the_rate(rate):
    dropped = int((~keep_mask((300, 400), rate, 1, CPU)).sum())
    assert stats.binomtest(dropped, 300 * 400, rate).pvalue > 1e-3


def test_derived_seeds_differ_by_path_and_stay_in_range():
    seeds = {derive(0, "x", k) for k in range(1000)} | {derive(1, "x", k) for k in range(1000)}
    assert len(seeds) == 2000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive(7, "mask") == 6375098235631328618  # the same on every machine and in every version


def test_draws_repeat_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    first, mask = normal((4,), 3, CPU), keep_mask((50,), 0.5, 3, CPU)
    with seeded(5, CPU):
        inside = torch.randn(3)
    with seeded(5, CPU):
        again = torch.randn(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(inside, again)
    assert torch.equal(first, normal((4,), 3, CPU))
    assert torch.equal(mask, keep_mask((50,), 0.5, 3, CPU))
    assert not torch.equal(mask, keep_mask((50,), 0.5, 4, CPU))
