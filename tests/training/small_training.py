"""Data and networks that are trained in no time."""

import torch
from torch import nn

from qipf import training
from qipf.study import nets
from qipf.training.loop import Split


def small_images(count: int = 60) -> Split:
    generator = torch.Generator().manual_seed(0)
    return Split(torch.rand(count, 1, 8, 8, generator=generator), torch.arange(count) % 10)


def line(count: int = 20) -> Split:
    x = torch.linspace(-1, 1, count, dtype=torch.float64)[:, None]
    return Split(x, 3 * x[:, 0] - 1)


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    a, b = first.state_dict(), second.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a)


def train_vgg(seed: int = 0, **options) -> nn.Module:
    """Batch-norm, dropout and augmentation: everything that has a state."""
    net = nets.build("vgg3", channels=1, size=8, seed=1)
    options = {"epochs": 4, "batch_size": 16, "augment": "crop-flip", "progress": False, "seed": seed} | options
    return training.train(net, small_images(), **options)
