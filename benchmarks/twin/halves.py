"""Pieces of a network and their training: second networks and sub-ensembles."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from qipf.study.recipes import Recipe
from qipf.tasks.perturb import draw_images
from qipf.tasks.perturbations import PERTURBATIONS, draw_perturbations, perturb_batch
from qipf.tasks.views import moved
from qipf.training.loop import GraphedStep, _optimizer, _set_rate, one_cycle, seeded
from qipf.training.split import Augment, Split, minibatches

RECORDED = True
"""True to record steps as CUDA graphs on a GPU."""
Draw = Callable[[Tensor, torch.Generator], Tensor]
CHUNK = 18
"""Steps whose images are perturbed at once: many small operations would wait for each other."""

MIDDLE = {"lenet": 2, "vgg3": 1, "resnet18": 5}
"""The first piece behind the middle of a network."""


class Fit(NamedTuple):
    """Settings of training a part of a network: `batch` clean and `batch` perturbed images per step."""

    epochs: int
    batch: int
    rate: float
    decay: float
    augment: Augment


def as_trained(how: Recipe) -> Fit:
    """The network's own recipe."""
    return Fit(how.epochs, how.batch_size, how.learning_rate, how.weight_decay, how.augment)


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
    """A copy that is never trained."""
    return copy.deepcopy(trunk).eval().requires_grad_(False)


def learned(rest: nn.Module, trunk: nn.Module, split: Split, fit: Fit, seed: int, draw: Draw | None) -> nn.Module:
    """Train `rest` on what the frozen `trunk` makes of clean images and, with `draw`, of perturbed copies."""
    device = split.inputs.device
    cuda = device.type == "cuda"
    if cuda:
        rest.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        trunk.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    rest.train().requires_grad_(True)
    descent = _optimizer(rest, "adam", fit.rate, fit.decay, recorded=cuda)

    def take_step(x: Tensor, y: Tensor) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cuda):
            with torch.no_grad():
                hidden = trunk(x)
            loss = functional.cross_entropy(rest(hidden).float(), y)
        descent.zero_grad(set_to_none=True)
        loss.backward()
        descent.step()

    step_once = GraphedStep(take_step, device) if cuda and RECORDED else take_step
    total = fit.epochs * -(-len(split.inputs) // fit.batch)
    with seeded(seed, device):
        for done, (x, y) in enumerate(_batches(split, fit, seed, draw)):
            for group in descent.param_groups:
                _set_rate(group, one_cycle(done, total, fit.rate))
            step_once(x, y)
    if not all(bool(torch.isfinite(p).all()) for p in rest.parameters()):
        raise ValueError("training gave weights that are not finite")
    return rest.eval().requires_grad_(False)


def _batches(split: Split, fit: Fit, seed: int, draw: Draw | None) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.Generator().manual_seed(seed)
    random = torch.Generator(split.inputs.device).manual_seed(seed)
    for _ in range(fit.epochs):
        for images, targets in minibatches(*split, CHUNK * fit.batch, fit.augment, order):
            drawn = images if draw is None else draw(images, random)
            parts = zip(images.split(fit.batch), drawn.split(fit.batch), targets.split(fit.batch), strict=True)
            for clean, other, y in parts:
                x = clean if draw is None else torch.cat([clean, other])
                if x.device.type == "cuda":
                    x = x.contiguous(memory_format=torch.channels_last)
                yield x, y if draw is None else torch.cat([y, y])


def second_network(name: str, fresh: nn.Module, how: Recipe, split: Split, seed: int) -> nn.Module:
    """A whole network trained by its own recipe on clean images and a perturbed copy of each."""
    learned(fresh, nn.Identity(), split, as_trained(how), seed, draw_images)
    return fresh


class Viewed(nn.Module):
    """A network that is shown a view of each image, or the image if there is none."""

    def __init__(self, net: nn.Module, view: str | None) -> None:
        super().__init__()
        self.net, self.view = net, view

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x if self.view is None else moved(x, self.view))
