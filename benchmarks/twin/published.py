"""The ResNets of He et al. (2016) for CIFAR-10, with the weights published by Idelbayev.

The weight files of `akamaster/pytorch_resnet_cifar10`, such as resnet20-12fca82f.th, belong in the folder `resnets` of
the data.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

SIZES = (20, 32, 44, 56)
"""The numbers of layers of the networks, used as their seeds."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions and a shortcut without weights."""

    def __init__(self, before: int, channels: int) -> None:
        super().__init__()
        self.added = channels - before
        self.conv1 = nn.Conv2d(before, channels, 3, stride=2 if self.added else 1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.added:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.added // 2, self.added // 2))
        return functional.relu(inner + x)


class ResNet(nn.Module):
    """A ResNet for images with values in [0, 1]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        for name, values in (("mean", MEAN), ("deviation", DEVIATION)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        for number, (before, channels) in enumerate(((16, 16), (16, 32), (32, 64)), start=1):
            rest = (Block(channels, channels) for _ in range((size - 2) // 6 - 1))
            setattr(self, f"layer{number}", nn.Sequential(Block(before, channels), *rest))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn1(self.conv1((x - self.mean) / self.deviation)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def read(net: nn.Module, size: int, folder: str) -> nn.Module:
    """Load the published weights into a network and return it."""
    (file,) = (Path(folder) / "resnets").glob(f"resnet{size}-*.th")
    state = torch.load(file, map_location="cpu", weights_only=True)["state_dict"]
    net.load_state_dict({name.removeprefix("module."): values for name, values in state.items()})
    return net.eval()
