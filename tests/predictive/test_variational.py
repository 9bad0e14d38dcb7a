"""Variational inference against exact posteriors, and Flipout layers against the formulas they estimate."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from qipf.predictive import AUTHORS_SETTINGS, SVI, SVILastLayer
from qipf.predictive.variational import Flipout
from qipf.study import nets
from qipf.training import seeded
from qipf.training.loop import Split

CPU = torch.device("cpu")


def random_layers(method, name, shape):
    method._example = torch.zeros(2, *shape)
    net = method._randomise(nets.build(name))
    return {layer for layer, module in net.named_modules() if isinstance(module, Flipout)}


def test_which_layers_are_random():
    """Appendix F.1: every dense layer and the last convolution; or the last dense layer alone."""
    assert random_layers(SVI(), "lenet", (1, 28, 28)) == {"conv2", "dense1", "dense2", "dense3"}
    assert random_layers(SVI(), "vgg3", (3, 32, 32)) == {"2.3", "4", "7"}
    assert random_layers(SVILastLayer(), "lenet", (1, 28, 28)) == {"dense3"}
    authors = SVI(**AUTHORS_SETTINGS["svi"])  # their program leaves the convolution as it is
    assert random_layers(authors, "lenet", (1, 28, 28)) == {"dense1", "dense2", "dense3"}
    assert SVI().training["epochs"] == 100
    assert SVILastLayer().training["epochs"] == 50


def test_bayesian_linear_regression():
    """y = X w + noise, w ~ N(0, prior^2): precision L = X^T X / noise^2 + I / prior^2.

    The best mean-field Gaussian has the exact mean L^-1 X^T y / noise^2 and the variances 1 / L_ii, which are smaller
    than the exact marginal variances (L^-1)_ii wherever inputs are correlated. Sixty independent regressions on
    the same inputs are fitted at once, so that the noise of the optimisation averages out.
    """
    noise, prior, count = 0.5, 2.0, 60
    with seeded(0, CPU):
        x = torch.randn(24, 3) @ torch.tensor([[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 0.4]])
        y = x @ torch.randn(3, count) + noise * torch.randn(24, count)
    precision = x.T @ x / noise**2 + torch.eye(3) / prior**2
    mean = torch.linalg.solve(precision, x.T @ y / noise**2).T
    variances = 1 / precision.diagonal()

    settings = {"noise": noise, "prior_std": prior, "initial_std": 0.3, "batch_size": 24, "learning_rate": 0.06}
    method = SVI(epochs=1500, weight_decay=0.1, **settings)  # which must not move the weights of the bound
    method.fit(lambda: nn.Sequential(nn.Linear(3, count, bias=False)), Split(x, y), progress=False)
    layer = method._ready()[0]
    error = (layer.weight - mean) / variances.sqrt()
    assert error.mean(0).abs().max() < 0.05
    assert error.abs().max() < 0.3
    torch.testing.assert_close((layer.std**2).mean(0), variances, rtol=0.05, atol=0)
    assert torch.linalg.inv(precision).diagonal()[0] > 1.3 * variances[0]

    # the passes follow that posterior: f(x) ~ N(x m, sum_j x_j^2 v_j)
    summary = method.summarise(x, 500, progress=False)
    expected = (x**2) @ (layer.std**2).T
    assert ((summary.mean - x @ layer.weight.T) / (expected / 500).sqrt()).abs().max() < 5
    torch.testing.assert_close((summary.std**2).mean(1), expected.mean(1), rtol=0.05, atol=0)


def test_without_information_the_posterior_becomes_the_prior():
    """With nothing to learn (all inputs zero, no bias) the posterior must become the prior."""
    data = Split(torch.zeros(8, 2), torch.zeros(8))
    method = SVI(prior_std=0.7, epochs=800, batch_size=8, learning_rate=0.05, weight_decay=0.5)
    method.fit(lambda: nn.Sequential(nn.Linear(2, 1, bias=False)), data, progress=False)
    layer = next(module for module in method._ready().modules() if isinstance(module, Flipout))
    torch.testing.assert_close(layer.std, torch.full((1, 2), 0.7), rtol=1e-3, atol=0)
    torch.testing.assert_close(layer.weight, torch.zeros(1, 2), rtol=0, atol=1e-3)
    assert method.kl().item() == pytest.approx(0, abs=1e-4)


def test_a_given_network_is_where_the_means_start():
    net = nn.Sequential(nn.Linear(2, 1))
    method = SVI(epochs=0).fit(net, Split(torch.ones(3, 2), torch.ones(3)), progress=False)
    assert torch.equal(method._ready()[0].weight, net[0].weight)
    assert isinstance(net[0], nn.Linear)


def test_a_bare_layer_and_a_network_without_layers():
    data = Split(torch.ones(3, 2), torch.ones(3))
    assert SVI(epochs=1).fit(nn.Linear(2, 1), data, progress=False).sample(data.inputs, 2).shape == (2, 3, 1)
    with pytest.raises(ValueError, match="convolution"):
        SVI().fit(nn.Sequential(nn.PReLU()), data, progress=False)
    with pytest.raises(ValueError, match="prior_std"):
        SVI(prior_std=0)


def test_the_unscaled_kl_of_the_authors_weighs_n_times_as_much():
    """One weight without a bias, targets 1: the bound is minimal at the mean sum(x y) / (sum(x^2) + N k noise^2).

    k = 1 / N is the KL term divided by N, and k = 1 the authors' undivided one.
    """
    x = torch.linspace(0.5, 1.5, 20)[:, None]
    data = Split(x, torch.ones(20))
    for scaled, k in ((True, 1 / 20), (False, 1.0)):
        method = SVI(noise=0.5, scale_kl=scaled, full_batch=True, epochs=1500, learning_rate=0.02)
        method.fit(lambda: nn.Sequential(nn.Linear(1, 1, bias=False)), data, progress=False)
        expected = x.sum() / (x.square().sum() + 20 * k * 0.25)
        assert method._ready()[0].weight.item() == pytest.approx(expected.item(), abs=0.03)


def test_a_full_batch_takes_one_step_per_epoch():
    data = Split(torch.ones(300, 2), torch.ones(300))
    for full, count in ((True, 2), (False, 6)):
        steps = []
        method = SVI(epochs=2, full_batch=full, on_step=lambda step, _, steps=steps: steps.append(step))
        method.fit(lambda: nn.Linear(2, 1), data, progress=False)
        assert steps == list(range(1, count + 1))


def test_what_training_starts_from():
    data = Split(torch.ones(3, 4), torch.arange(3))
    base = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 60))

    def fitted(start, given):
        return SVILastLayer(start=start, epochs=0).fit(given, data, seed=2, progress=False)._ready()

    whole, trunk = fitted("base", base), fitted("trunk", base)
    for net in (whole, trunk):
        assert torch.equal(net[0].weight, base[0].weight)
    assert torch.equal(whole[2].weight, base[2].weight)
    assert not torch.allclose(trunk[2].weight, base[2].weight)
    assert trunk[2].weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert (trunk[2].bias == 0).all()
    assert torch.equal(fitted("trunk", base)[2].weight, trunk[2].weight)
    with pytest.raises(TypeError, match="trained"):
        fitted("base", lambda: base)
    with pytest.raises(TypeError, match="network"):
        fitted("scratch", base)
    with pytest.raises(ValueError, match="start"):
        SVI(start="anywhere")


def test_the_logit_of_one_flipout_pass_has_weights_of_its_own_for_every_input():
    """Two logits x w_j, w_j ~ N(m, s^2): the larger one has the moments of a maximum of Gaussians (Clark 1961)."""
    net = nn.Sequential(nn.Linear(1, 2, bias=False))
    nn.init.constant_(net[0].weight, 0.5)
    data = Split(torch.ones(4, 1), torch.tensor([0, 1, 0, 1]))
    method = SVI(epochs=0, initial_std=0.3).fit(net, data, progress=False)
    x = torch.full((60_000, 1), 2.0)
    found = method.summarise(x, 1, seed=1, progress=False).minus_max_logit_of_one_pass
    std = 2 * 0.3
    mean = 1.0 + std / torch.pi**0.5  # of max(A, B), equal means
    variance = std**2 * (1 - 1 / torch.pi)
    assert len(found.unique()) > 120  # 120 blocks of 500 inputs, and signs within each
    assert -found.mean().item() == pytest.approx(mean, abs=0.15)
    assert found.var().item() == pytest.approx(variance, rel=0.3)
    assert torch.equal(method.summarise(x, 1, seed=1, batch_size=7000, progress=False)[-1], found)
    assert not torch.equal(method.summarise(x, 1, seed=2, progress=False)[-1], found)


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
