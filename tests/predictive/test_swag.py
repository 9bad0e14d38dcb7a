"""SWAG and SGD iterates on a quadratic loss, against the moments of the iterates themselves."""

import copy

import pytest
import torch
from torch import nn

from qipf.predictive import SWAG, SGDIterates
from qipf.predictive.swag import sgd_decay
from qipf.study import datasets
from qipf.training import one_cycle, seeded
from qipf.training.loop import Split

CPU = torch.device("cpu")
SETTINGS = {"iterates": 40, "every": 3, "sgd_rate": 0.02, "batch_size": 8, "epochs": 0}


def quadratic():
    """Linear regression in two layers of parameters (a weight and a bias): a quadratic loss."""
    with seeded(0, CPU):
        x = torch.randn(64, 2)
        return Split(x, x @ torch.tensor([1.0, -2.0]) + 0.5 + 0.3 * torch.randn(64))


def factory():
    return nn.Sequential(nn.Linear(2, 1))


def visited():
    """The iterates, as (T, 3), read off the method that keeps them all."""
    state = SGDIterates(**SETTINGS).fit(factory, quadratic(), seed=3, progress=False).state()
    return torch.cat([state["iterates.0.weight"].flatten(1), state["iterates.0.bias"]], dim=1)


def test_iterates_surround_the_least_squares_solution():
    """On a quadratic, SGD at a constant rate wanders around the minimum."""
    data, late = quadratic(), visited()[20:]
    design = torch.cat([data.inputs, torch.ones(64, 1)], dim=1)
    best = torch.linalg.lstsq(design, data.targets[:, None]).solution[:, 0]
    assert ((late.mean(0) - best).abs() < 3 * late.std(0)).all()
    assert (late.std(0) > 1e-3).all()


@pytest.mark.parametrize("rank", [40, 10])
def test_draws_have_the_mean_and_the_covariance_of_the_iterates(rank):
    """Mean m; covariance (diag v + D^T D / (K - 1)) / 2: variances and (halved) covariances of the iterates."""
    iterates = visited().double()
    method = SWAG(rank=rank, **SETTINGS).fit(factory, quadratic(), seed=3, progress=False)
    count = 6000
    draws = torch.stack([method.draw(k) for k in range(count)]).double()
    deviations = (iterates - iterates.mean(0))[-rank:]
    covariance = 0.5 * (iterates.var(0, correction=0).diag() + deviations.T @ deviations / (rank - 1))
    spread = covariance.diag().sqrt()
    assert ((draws.mean(0) - iterates.mean(0)).abs() < 4 * spread / count**0.5).all()
    error = (torch.cov(draws.T) - covariance).abs() / torch.outer(spread, spread)
    assert error.max() < 5 / count**0.5
    if rank == len(iterates):  # then these are the iterates' own, up to (T - 1) / T in the variances
        own = torch.cov(iterates.T)
        torch.testing.assert_close(covariance.diag(), own.diag(), rtol=0.02, atol=0)
        torch.testing.assert_close(2 * covariance[0, 1], own[0, 1], rtol=1e-9, atol=0)


def test_the_low_rank_noise_is_shared_by_all_layers():
    """Layers that moved together are drawn together: without a shared vector their correlation would be zero."""
    method = SWAG(rank=5, iterates=5, epochs=0, scale=1.0)
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    method._begin(net, quadratic())
    for step in (-2.0, -1.0, 0.0, 1.0, 2.0):
        nn.init.constant_(net[0].weight, 1 + step)
        nn.init.constant_(net[1].weight, 5 - 3 * step)
        method._keep(net)
    method._settle()
    draws = torch.stack([method.draw(k) for k in range(4000)])
    # Cov = diag(2, 18) + [[1, -3], [-3, 9]] * 10 / 4
    expected = torch.tensor([[4.5, -7.5], [-7.5, 40.5]])
    torch.testing.assert_close(torch.cov(draws.T), expected, rtol=0.1, atol=0)
    torch.testing.assert_close(draws.mean(0), torch.tensor([1.0, 5.0]), rtol=0, atol=0.4)


def test_scale_zero_is_the_average_of_the_weights():
    method = SWAG(scale=0.0, **SETTINGS).fit(factory, quadratic(), seed=3, progress=False)
    torch.testing.assert_close(method.draw(0), visited().mean(0), rtol=0, atol=1e-5)


def norm_net():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 10)
    )


def test_batch_norm_statistics_are_those_of_the_drawn_weights():
    """The same as torch.optim.swa_utils.update_bn on a copy with the drawn weights, and nothing else changes."""
    train = datasets.load("digits").train
    data = Split(train.inputs[:1001], train.targets[:1001])  # a last batch of one, which has no variance
    method = SWAG(iterates=3, rank=3, epochs=1, sgd_rate=0.05).fit(norm_net, data, progress=False)
    before = copy.deepcopy(method._ready().state_dict())
    passes = method.sample(data.inputs[:20], 2, seed=1)
    for k in range(2):
        net = copy.deepcopy(method._ready())
        nn.utils.vector_to_parameters(method.draw(k, 1), net.parameters())
        net[4].p = 0.0
        torch.optim.swa_utils.update_bn([data.inputs[:500], data.inputs[500:1000]], net)
        torch.testing.assert_close(passes[k], net.eval()(data.inputs[:20]).softmax(1))
    after = method._ready().state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())

    with pytest.raises(ValueError, match="training"):
        SWAG(iterates=3, rank=3).load_state(norm_net, method.state())
    restored = SWAG(iterates=3, rank=3).load_state(norm_net, method.state(), data)
    assert torch.equal(restored.sample(data.inputs[:20], 2, seed=1), passes)


def test_iterates_are_taken_once_an_epoch_from_a_given_network():
    net = nn.Linear(2, 1)
    start = net.weight.detach().clone()
    method = SGDIterates(iterates=3, batch_size=16).fit(net, quadratic(), progress=False)
    weights = method.state()["iterates.weight"]
    assert weights.shape == (3, 1, 2)
    assert torch.equal(net.weight, start)
    # one epoch alone ends at the first of them
    once = SGDIterates(iterates=2, batch_size=16).fit(net, quadratic(), progress=False).state()["iterates.weight"]
    assert torch.equal(once, weights[:2])


def test_channels_last_weights_are_drawn_in_their_places():
    data = Split(torch.rand(40, 2, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3)
    with seeded(2, CPU):
        net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    last = copy.deepcopy(net).to(memory_format=torch.channels_last)
    draws = [
        SWAG(iterates=2, rank=2, batch_size=20).fit(n, data, progress=False).sample(data.inputs, 2) for n in (net, last)
    ]
    torch.testing.assert_close(*draws, rtol=0, atol=1e-4)


def test_iterates_take_the_decay_and_the_augmentation_of_the_recipe():
    """AdamW at a mean rate r shrinks weights by r * decay per step, and so does SGD with its L2 factor."""
    recipe = {"learning_rate": 5e-3, "weight_decay": 0.02}  # of the study's VGG-3
    assert sgd_decay(recipe, 0.01) == pytest.approx(5e-4)  # the L2 factor of Maddox et al. 2019
    assert sgd_decay({**recipe, "optimizer": "sgd"}, 0.01) == 0.02
    assert sgd_decay({}, 0.01) == 0
    rates = [one_cycle(step, 1000, 5e-3) for step in range(1000)]
    assert sum(rates) / 1000 == pytest.approx(2.5e-3, rel=0.02)

    # inputs of zeros give no gradient to the weight: it shrinks by the decay alone
    data = Split(torch.zeros(20, 2), torch.ones(20))
    net = nn.Linear(2, 1, bias=True)
    steps = 400
    method = SGDIterates(iterates=2, every=steps // 2, batch_size=20, **recipe).fit(net, data, progress=False)
    left = (method.state()["iterates.weight"][-1] / net.weight).mean().item()
    assert left == pytest.approx((1 - 2.5e-3 * 0.02) ** steps, rel=1e-3)

    images = Split(torch.rand(30, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    plain, cropped = (
        SWAG(iterates=2, rank=2, augment=augment).fit(net, images, progress=False).state()["mean"]
        for augment in ("none", "crop")
    )
    assert not torch.allclose(plain, cropped, atol=1e-5)


def test_wrong_settings_are_refused():
    for name, value in (("iterates", 1), ("rank", 1), ("scale", -1.0), ("every", 0)):
        with pytest.raises(ValueError, match=name):
            SWAG(**{name: value})
    with pytest.raises(ValueError, match="iterates"):
        SGDIterates(iterates=2, epochs=0).fit(factory, quadratic(), progress=False).sample(quadratic().inputs, 3)
