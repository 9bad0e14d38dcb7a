"""Flipout layers against the formulas they estimate."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from qipf.predictive.variational import Flipout
from qipf.training import seeded

CPU = torch.device("cpu")


def layer_with(means, stds):
    linear = nn.Linear(means.shape[1], means.shape[0], bias=False).double()
    layer = Flipout(linear)
    with torch.no_grad():
        linear.weight.copy_(means)
        layer.rho.copy_(stds.expm1().log())
    return layer


def test_kl_is_that_of_torch_distributions():
    with seeded(0, CPU):
        layer = layer_with(torch.randn(3, 5).double(), torch.rand(3, 5).double() + 0.1)
    prior = Normal(*torch.tensor([0.0, 0.7], dtype=torch.float64))
    expected = kl_divergence(Normal(layer.weight, layer.std), prior).sum()
    assert layer.kl(0.7).item() == pytest.approx(expected.item(), rel=1e-12)


def test_the_gradient_is_unbiased_and_has_the_variance_of_the_formula():
    """Squared loss of one linear output: L = mean_b (y_b - t_b)^2 / 2, with y_b = x_b w + e_b.

    The perturbations e_b of different examples are uncorrelated with variance v_b = sum_j x_bj^2 std_j^2, so
    Cov(dL/dmean) = sum_b v_b x_b x_b^T / B^2. One perturbation for the whole batch would give
    sum_bc (sum_j x_bj x_cj std_j^2) x_b x_c^T / B^2 instead, which the estimate must not be.
    """
    with seeded(1, CPU):
        x, t = torch.randn(6, 4).double() + 1, torch.randn(6).double()
        means, stds = torch.randn(1, 4).double(), torch.rand(1, 4).double() + 0.3
    layer = layer_with(means, stds).train()
    repeats = 4000
    estimates = []
    with seeded(3, CPU):
        for _ in range(repeats):
            loss = 0.5 * (layer(x)[:, 0] - t).square().mean()
            gradients = torch.autograd.grad(loss, [layer.layer.weight, layer.rho])
            estimates.append(torch.cat([gradient[0] for gradient in gradients]))
    estimates = torch.stack(estimates)
    v = (x**2) @ (stds[0] ** 2)
    covariance = (v[:, None, None] * x[:, :, None] * x[:, None, :]).sum(0) / 36
    shared = torch.einsum("bj,cj,j,bk,cl->kl", x, x, stds[0] ** 2, x, x) / 36
    exact_mean = ((x @ means[0] - t)[:, None] * x).mean(0)
    exact_std = (x**2).mean(0) * stds[0] * (1 - torch.exp(-stds[0]))  # d std / d rho = 1 - exp(-std)

    error = estimates.mean(0) - torch.cat([exact_mean, exact_std])
    assert (error.abs() < 4 * estimates.std(0) / repeats**0.5).all()
    spread = covariance.diag().sqrt()
    found = torch.cov(estimates[:, :4].T)
    assert ((found - covariance).abs() / torch.outer(spread, spread)).max() < 0.1
    assert ((shared - covariance).abs() / torch.outer(spread, spread)).max() > 0.5


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_has_the_marginal_moments_of_its_weights(groups):
    """Mean conv(x, mean) and variance conv(x^2, std^2) at every output, and no correlation between examples."""
    with seeded(4, CPU):
        layer = Flipout(nn.Conv2d(2, 4, 3, padding=1, groups=groups), initial_std=0.3).train()
        x = torch.randn(2, 2, 4, 4)
        outputs = torch.stack([layer(x).detach() for _ in range(4000)])
    mean = layer.layer(x)
    variance = functional.conv2d(x**2, layer.std**2, padding=1, groups=groups)
    assert ((outputs.mean(0) - mean).abs() < 5 * (variance / 4000).sqrt()).all()
    assert torch.allclose(outputs.var(0), variance, rtol=0.2)
    assert abs(outputs.var(0).mean() / variance.mean() - 1) < 0.03
    first, second = (outputs[:, b] - mean[b] for b in (0, 1))
    correlation = (first * second).mean(0) / (variance[0] * variance[1]).sqrt()
    assert correlation.abs().max() < 5 * 3 / 4000**0.5


def test_prediction_uses_the_means_or_the_given_noise():
    with seeded(5, CPU):
        layer, x = Flipout(nn.Linear(3, 2)).eval(), torch.randn(5, 3)
    assert torch.equal(layer(x), layer.layer(x))
    layer.noise = torch.full((2, 3), 2.0)
    expected = functional.linear(x, layer.weight + 2 * layer.std, layer.bias)
    assert torch.allclose(layer(x), expected)
