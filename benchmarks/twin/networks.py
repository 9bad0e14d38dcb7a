"""Networks of the twin study: training, predictions, and their division into pieces."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qipf._common.files import replacing
from qipf.study.recipes import Recipe
from qipf.tasks.perturb import draw_images
from qipf.tasks.perturbations import PERTURBATIONS, draw_perturbations, perturb_batch
from qipf.tasks.views import moved
from qipf.training import train
from qipf.training.loop import Split
from twin import published
from twin.setting import Setting

CHUNK = 5000
"""The number of images to perturb at a time."""
MIDDLE = {"lenet": 2, "vgg3": 1, "resnet18": 5}
"""The index of the first piece after the middle of a network."""


def network(setting: Setting, seed: int, cache: Path) -> nn.Module:
    """Return the network with a given seed, from the cache or newly trained."""
    net, file = setting.fresh(seed), cache / f"{setting.pair}-{seed}.pt"
    if file.exists():
        net.load_state_dict(torch.load(file, weights_only=True))
        return net.eval()
    if setting.pair == "published":
        return published.read(net, seed, setting.folder)
    train_by(setting.recipe, net, setting.data.train, seed)
    torch.save(net.state_dict(), file)
    return net


def train_by(how: Recipe, net: nn.Module, split: Split, seed: int, **changed: Any) -> nn.Module:
    """Train a network according to a recipe; keyword arguments override settings."""
    settings = {**dataclasses.asdict(how), "seed": seed, "cuda_graph": True, "progress": False, **changed}
    return train(net, split, **settings)


@torch.no_grad()
def probabilities(net: nn.Module, images: list[Tensor], batch: int = 4000) -> Tensor:
    """Return the softmax (K, N, C), in half precision on a GPU."""
    on_gpu = images[0].device.type == "cuda"
    layout = torch.channels_last if on_gpu else torch.contiguous_format
    net = net.eval().to(memory_format=layout)  # pyright: ignore[reportCallIssue]
    result = []
    for condition in images:
        with torch.autocast("cuda", dtype=torch.float16, enabled=on_gpu):
            logits = [net(part.contiguous(memory_format=layout)) for part in condition.split(batch)]
        result.append(torch.cat(logits).float().softmax(1))
    return torch.stack(result)


def cached_probabilities(setting: Setting, seed: int, cache: Path) -> Tensor:
    """Return the `probabilities` of the network with a given seed."""
    file = cache / f"{setting.pair}-{seed}.probabilities.pt"
    if not file.exists():
        with replacing(file) as part:
            torch.save(probabilities(network(setting, seed, cache), setting.images).cpu(), part)
    return torch.load(file, weights_only=True).to(setting.device).double()


def pieces(name: str, net: nn.Module) -> nn.Sequential:
    """Return the network as a sequence of pieces that share its weights."""
    if name == "lenet":
        blocks = [[net.conv1, nn.Tanh()], [net.pool], [net.conv2, nn.Tanh()], [net.pool], [nn.Flatten()]]
        dense = [[net.dense1, nn.Tanh()], [net.dense2, nn.Tanh()], [net.dense3]]
        return nn.Sequential(*(nn.Sequential(*part) for part in blocks + dense))  # pyright: ignore
    if name == "vgg3":
        layers = list(net)  # pyright: ignore
        return nn.Sequential(*layers[:3], nn.Sequential(*layers[3:7]), layers[7])
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(net.stem, *net.blocks, pool, net.dense)  # pyright: ignore


def check_pieces(name: str, net: nn.Module, images: Tensor) -> None:
    """Raise if the pieces and the network compute different outputs."""
    with torch.no_grad():
        net.eval()
        torch.testing.assert_close(pieces(name, net)(images), net(images), rtol=1e-3, atol=1e-3)


def draw_without_bending(images: Tensor, generator: torch.Generator) -> Tensor:
    """Perturb three quarters of the images, without elastic distortion."""
    kinds, intensities = draw_perturbations(len(images), generator, [n for n in PERTURBATIONS if n != "elastic"])
    skip = torch.rand(len(images), generator=generator, device=generator.device) < 0.25
    return perturb_batch(images, torch.where(skip, -1, kinds), intensities, generator)


def frozen(trunk: nn.Module) -> nn.Module:
    """Return a copy that cannot be trained."""
    return copy.deepcopy(trunk).eval().requires_grad_(False)


class Behind(nn.Sequential):
    """A frozen trunk followed by a trainable part."""

    def train(self, mode: bool = True) -> Behind:
        super().train(mode)
        self[0].eval()
        return self


def second_network(fresh: nn.Module, how: Recipe, split: Split, seed: int) -> None:
    """Train a new network on clean images and a fresh perturbed copy of each."""
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
    """A network applied to a view, or to the image if `view` is None."""

    def __init__(self, net: nn.Module, view: str | None) -> None:
        super().__init__()
        self.net, self.view = net, view

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x if self.view is None else moved(x, self.view))
