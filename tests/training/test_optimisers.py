"""Schedules and optimisers take the steps of their formulas."""

import pytest
import torch
from small_training import line
from torch import nn

from qipf import training


def test_one_cycle_is_torchs() -> None:
    steps, peak = 101, 0.02
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, peak, total_steps=steps, pct_start=26 / steps, div_factor=25, final_div_factor=40
    )
    for step in range(steps):
        assert training.one_cycle(step, steps, peak) == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        if step < steps - 1:
            schedule.step()


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_one_cycle_of_very_short_runs(steps: int) -> None:
    assert all(0 < training.one_cycle(step, steps, 1.0) <= 1 for step in range(steps))


def test_sgd_takes_the_steps_of_its_formula() -> None:
    net = nn.Linear(1, 1).double()
    weight, bias = float(net.weight.detach()), float(net.bias.detach())
    x, y = line()
    velocity = [0.0, 0.0]
    for _ in range(3):
        residual = weight * x[:, 0] + bias - y
        gradient = [2 * float((residual * x[:, 0]).mean()) + 0.01 * weight, 2 * float(residual.mean())]
        velocity = [0.9 * v + g for v, g in zip(velocity, gradient, strict=True)]
        weight, bias = weight - 0.1 * velocity[0], bias - 0.1 * velocity[1]
    training.train(
        net, line(), epochs=3, batch_size=20, learning_rate=0.1, weight_decay=0.01, optimizer="sgd",
        schedule="constant", progress=False,
    )  # fmt: skip
    assert float(net.weight.detach()) == pytest.approx(weight, rel=1e-12)
    assert float(net.bias.detach()) == pytest.approx(bias, rel=1e-12)


def test_adam_takes_the_steps_of_its_formula_and_decays_weights_only() -> None:
    net = nn.Linear(1, 1).double()
    start = torch.tensor([float(net.weight.detach()), float(net.bias.detach())], dtype=torch.float64)
    value, mean, square = (start.clone(), torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    decay = torch.tensor([0.1, 0.0], dtype=torch.float64)
    x, y = line()
    for step in range(1, 4):
        residual = value[0] * x[:, 0] + value[1] - y
        gradient = 2 * torch.stack([(residual * x[:, 0]).mean(), residual.mean()])
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        rate = training.one_cycle(step - 1, 3, 0.05)
        value = value * (1 - rate * decay)
        value = value - rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
    training.train(net, line(), epochs=3, batch_size=20, learning_rate=0.05, weight_decay=0.1, progress=False)
    torch.testing.assert_close(torch.stack([net.weight[0, 0], net.bias[0]]).detach(), value, rtol=1e-10, atol=0)
