"""Pieces of a network and their training: second networks and sub-ensembles."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from probe.networks import train_by
from qipf.study.recipes import Recipe
from qipf.tasks.perturb import draw_images
from qipf.tasks.perturbations import PERTURBATIONS, draw_perturbations, perturb_batch
from qipf.tasks.views import moved
from qipf.training.loop import Split

CHUNK = 5000
"""Images that are perturbed at once."""
MIDDLE = {"lenet": 2, "vgg3": 1, "resnet18": 5}
"""The first piece behind the middle of a network."""


class GlobalMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


def pieces(name: str, net: nn.Module) -> nn.Sequential:
    """The network as a sequence of pieces that share its weights; the last piece is its last linear layer."""
    if name == "lenet":
        blocks = [[net.conv1, nn.Tanh()], [net.pool], [net.conv2, nn.Tanh()], [net.pool], [nn.Flatten()]]
        dense = [[net.dense1, nn.Tanh()], [net.dense2, nn.Tanh()], [net.dense3]]
        return nn.Sequential(*(nn.Sequential(*part) for part in blocks + dense))  # pyright: ignore
    if name == "vgg3":
        layers = list(net)  # pyright: ignore
        return nn.Sequential(*layers[:3], nn.Sequential(*layers[3:7]), layers[7])
    return nn.Sequential(net.stem, *net.blocks, GlobalMean(), net.dense)  # pyright: ignore


def check_pieces(name: str, net: nn.Module, images: Tensor) -> None:
    """Raise unless the pieces give what the network gives."""
    with torch.no_grad():
        net.eval()
        torch.testing.assert_close(pieces(name, net)(images), net(images), rtol=1e-3, atol=1e-3)


def draw_without_bending(images: Tensor, generator: torch.Generator) -> Tensor:
    """Perturb three quarters of the images, as `draw_images` does, each in one way that is not elastic."""
    kinds, intensities = draw_perturbations(len(images), generator, [n for n in PERTURBATIONS if n != "elastic"])
    skip = torch.rand(len(images), generator=generator, device=generator.device) < 0.25
    return perturb_batch(images, torch.where(skip, -1, kinds), intensities, generator)


def frozen(trunk: nn.Module) -> nn.Module:
    """Return a copy that is never trained."""
    return copy.deepcopy(trunk).eval().requires_grad_(False)


class Behind(nn.Sequential):
    """A frozen trunk, which stays in evaluation mode, and a part that is trained behind it."""

    def train(self, mode: bool = True) -> Behind:
        super().train(mode)
        self[0].eval()
        return self


def second_network(fresh: nn.Module, how: Recipe, split: Split, seed: int) -> None:
    """Train a new network by its recipe on clean images and one perturbed copy of each, drawn again in every epoch."""
    count = len(split.inputs)
    both = torch.cat([split.inputs, split.inputs])
    generator = torch.Generator(both.device).manual_seed(seed)

    def draw(*_: Any) -> None:
        for first in range(0, count, CHUNK):
            part = split.inputs[first : first + CHUNK]
            both[count + first :][: len(part)] = draw_images(part, generator)

    draw()
    twice = Split(both, split.targets.repeat(2))
    train_by(how, fresh, twice, seed, batch_size=2 * how.batch_size, on_epoch=draw)


class Viewed(nn.Module):
    """A network that is shown a view of each image, or the image if there is none."""

    def __init__(self, net: nn.Module, view: str | None) -> None:
        super().__init__()
        self.net, self.view = net, view

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x if self.view is None else moved(x, self.view))
