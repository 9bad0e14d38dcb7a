"""The ResNets for CIFAR-10 of He et al. (2016), in the form that the published weights of Idelbayev fit.

Shortcuts that change the shape take every second pixel and add channels of zeros (option A of the paper).
"""

from __future__ import annotations

import io
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from qipf.study import datasets

BLOCKS = {"resnet20": 3, "resnet32": 5, "resnet44": 7, "resnet56": 9}
"""Blocks per stage of each network."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, before: int, channels: int) -> None:
        super().__init__()
        self.added = channels - before
        stride = 2 if self.added else 1
        self.conv1 = nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """A map with the block's channels."""
        inner = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.added:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.added // 2, self.added // 2))
        return functional.relu(inner + x)


class ResNet(nn.Module):
    """Three stages of blocks with 16, 32 and 64 channels; takes images with values in [0, 1]."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(DEVIATION)[:, None, None], persistent=False)
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks)
        self.layer2 = _stage(16, 32, blocks)
        self.layer3 = _stage(32, 64, blocks)
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, 10)."""
        x = functional.relu(self.bn1(self.conv1((x - self.mean) / self.deviation)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def _stage(before: int, channels: int, blocks: int) -> nn.Sequential:
    return nn.Sequential(Block(before, channels), *(Block(channels, channels) for _ in range(blocks - 1)))


def load(name: str, folder: Path | None, *, download: bool = False) -> ResNet:
    """The published network in evaluation mode.

    Args:
        name: one of `BLOCKS`.
        folder: where the files of the weights are; None for the cache.
        download: whether missing files are downloaded.
    """
    found = datasets.files("cifar10-resnets", data=folder, download=download)
    (content,) = [content for file, content in found.items() if file.startswith(f"{name}-")]
    state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)["state_dict"]
    net = ResNet(BLOCKS[name])
    net.load_state_dict({key.removeprefix("module."): value for key, value in state.items()})
    return net.eval()
