"""Networks used in the studies, built by name and saved as safetensors files.

| name | input | description |
|---|---|---|
| lenet | images of at least 12x12 | the paper authors' LeNet-5: tanh, average pooling, dense layers 120-84-10 |
| vgg3 | images of at least 8x8 | three blocks of two 3x3 convolutions (32, 64 and 128 filters), dense layers 128-10 |
| resnet18 | images of at least 8x8 | ResNet-18 for small images: 3x3 stem, no max pooling |
| small-cnn | images of at least 4x4 | two 3x3 convolutions and two dense layers, for the bundled 8x8 digits |
| mlp-regression | 1 value | 3 hidden layers of 100 units, 1 output; for the regression example |
| mlp-moons | 2 values | 3 hidden layers of 20 units, 2 outputs; for the two-moons example |
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from qipf._common.files import atomic_write
from qipf._common.optional import require


class LeNet(nn.Module):
    """LeNet-5, with 61,706 parameters for 28x28 greyscale images and 10 classes."""

    def __init__(self, classes: int = 10, channels: int = 1, size: int = 28) -> None:
        super().__init__()
        side = (size // 2 - 4) // 2
        self.conv1 = nn.Conv2d(channels, 6, 5, padding="same")
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.pool = nn.AvgPool2d(2)
        self.dense1 = nn.Linear(16 * side * side, 120)
        self.dense2 = nn.Linear(120, 84)
        self.dense3 = nn.Linear(84, classes)
        for layer in self.children():
            if isinstance(layer, nn.Conv2d | nn.Linear):  # the Keras defaults, which the authors used
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)  # pyright: ignore[reportArgumentType]

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.tanh(self.conv1(x)))
        x = self.pool(torch.tanh(self.conv2(x))).flatten(1)
        return self.dense3(torch.tanh(self.dense2(torch.tanh(self.dense1(x)))))


class VGG3(nn.Sequential):
    """Three VGG blocks with batch normalisation and dropout, and two dense layers."""

    def __init__(self, classes: int, channels: int, size: int) -> None:
        widths = (32, 64, 128)
        blocks = [_vgg_block(a, b) for a, b in zip((channels, *widths), widths, strict=False)]
        dense = nn.Linear(128 * (size // 8) ** 2, 128)
        super().__init__(*blocks, nn.Flatten(), dense, nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, classes))


def _vgg_block(channels: int, width: int) -> nn.Sequential:
    first, second = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
    layers = [layer for one in (first, second) for layer in (one, nn.BatchNorm2d(width), nn.ReLU())]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Dropout(0.1))


class ResNet18(nn.Module):
    """ResNet-18 for small images, with 11,173,962 parameters for 3 channels and 10 classes."""

    def __init__(self, classes: int = 10, channels: int = 3, size: int = 32) -> None:
        super().__init__()
        del size  # the global pooling accepts any size
        self.stem = nn.Sequential(nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        blocks = [
            _Residual(before, after, stride)
            for first, last, step in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
            for before, after, stride in ((first, last, step), (last, last, 1))
        ]
        self.blocks = nn.Sequential(*blocks)
        self.dense = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.blocks(self.stem(x)).mean(dim=(2, 3)))


class _Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class SmallCNN(nn.Sequential):
    """Two convolutions with max pooling and two dense layers, for 8x8 digits."""

    def __init__(self, classes: int, channels: int, size: int) -> None:
        first, second = nn.Conv2d(channels, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        dense = nn.Linear(32 * (size // 4) ** 2, 64)
        super().__init__(first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), dense,
                         nn.ReLU(), nn.Linear(64, classes))  # fmt: skip


class MLP(nn.Sequential):
    """Multilayer perceptron with three hidden ReLU layers of equal width."""

    def __init__(self, classes: int, channels: int, width: int) -> None:
        layers: list[nn.Module] = []
        for inputs in (channels, width, width):
            layers += [nn.Linear(inputs, width), nn.ReLU()]
        super().__init__(*layers, nn.Linear(width, classes))


class Spec(NamedTuple):
    """Arguments of `build`, except the seed."""

    name: str
    classes: int
    channels: int
    size: int


class _Kind(NamedTuple):
    make: Callable[[int, int, int], nn.Module]
    classes: int
    channels: int
    size: int
    smallest: int


NETS: dict[str, _Kind] = {
    "lenet": _Kind(LeNet, 10, 1, 28, 12),
    "vgg3": _Kind(VGG3, 10, 3, 32, 8),
    "resnet18": _Kind(ResNet18, 10, 3, 32, 8),
    "small-cnn": _Kind(SmallCNN, 10, 1, 8, 4),
    "mlp-regression": _Kind(lambda classes, channels, _: MLP(classes, channels, 100), 1, 1, 1, 1),
    "mlp-moons": _Kind(lambda classes, channels, _: MLP(classes, channels, 20), 2, 2, 1, 1),
}


def build(
    name: str,
    *,
    classes: int | None = None,
    channels: int | None = None,
    size: int | None = None,
    seed: int | None = None,
) -> nn.Module:
    """Build a network with random weights.

    Args:
        name: A key of `NETS`.
        classes: Number of outputs; for this and the next two arguments, None selects the network's default.
        channels: Number of image channels, or the length of the input vector.
        size: Height and width of the images.
        seed: Seed for the weights; None uses torch's global generator.
    """
    if name not in NETS:
        raise ValueError(f"unknown network {name!r}; choose one of {', '.join(NETS)}")
    kind = NETS[name]
    classes, channels, size = classes or kind.classes, channels or kind.channels, size or kind.size
    if size < kind.smallest:
        hint = "" if name == "small-cnn" else "; small-cnn accepts 4x4 and larger"
        raise ValueError(
            f"size: {name} needs images of at least {kind.smallest}x{kind.smallest}, got {size}x{size}{hint}"
        )
    if seed is None:
        return kind.make(classes, channels, size)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs as well
        return kind.make(classes, channels, size)


def spec_for(name: str, dataset: Any) -> Spec:
    """Return the `Spec` of a network for a dataset."""
    shape = tuple(dataset.train.inputs.shape[1:])
    if len(shape) == 3 and shape[1] != shape[2]:
        raise ValueError(f"expected square images, got {shape[1]}x{shape[2]}")
    if name in NETS and name.startswith("mlp") != (len(shape) == 1):
        wanted, got = ("vectors", "images") if name.startswith("mlp") else ("images", "vectors")
        raise ValueError(f"network {name}: expected a dataset of {wanted}, got {got} of shape {shape}")
    return Spec(name, dataset.classes, shape[0], shape[1] if len(shape) == 3 else 1)


def save(net: nn.Module, path: str | os.PathLike[str], **about: Any) -> None:
    """Save a network's weights and the JSON metadata `about` in a safetensors file."""
    safetensors = require("safetensors.torch", extra="torch")
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in net.state_dict().items()}
    atomic_write(path, safetensors.save(tensors, metadata={"about": json.dumps(about)}))
