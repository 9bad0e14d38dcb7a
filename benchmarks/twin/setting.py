"""The data of the twin study: 8,000 test images per pair, clean, shifted, corrupted and out of distribution."""

from __future__ import annotations

import dataclasses
import gzip
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qipf.study import datasets, nets, recipes, shifts
from qipf.study.run.study_data import StudyData, common_rows, load_data
from qipf.study.shifts import corruptions, effects
from qipf.study.shifts.corruptions import CORRUPTIONS, RESEMBLES
from qipf.training.loop import Split
from twin.published import SIZES, ResNet
from twin.vit import VisionTransformer

PAIRS = {
    "mnist": ("mnist", "lenet", "fashion-mnist"),
    "kmnist": ("kmnist", "lenet", "mnist"),
    "vgg3": ("cifar10", "vgg3", "fashion-mnist"),
    "resnet18": ("cifar10", "resnet18", "fashion-mnist"),
    "published": ("cifar10", "published", "fashion-mnist"),
    "vit": ("kmnist", "vit", "mnist"),
}
"""The dataset, network and out-of-distribution dataset of every pair; "published" stands for four published ResNets."""
OWN = {"published": ResNet, "vit": VisionTransformer}
"""Networks that are not in `qipf.study.nets`."""
EXTRA = "no relative"
"""The group of the two families that are not in the probe study."""
GAMMA = (0.7, 0.5, 0.35, 0.25, 0.15)


class Condition(NamedTuple):
    """A set of inputs by group, family and intensity."""

    group: str
    family: str
    intensity: float


def conditions(pair: str) -> list[Condition]:
    """Return all conditions of a pair, clean first."""
    found = [Condition("clean", "clean", 0.0)]
    found += [Condition("shift", name, float(t)) for name, levels in shifts.SHIFTS.items() for t in levels]
    for name in CORRUPTIONS:
        group = "resembling" if name in RESEMBLES else "unseen"
        found += [Condition(group, name, float(severity)) for severity in range(1, 6)]
    found.append(Condition("ood", PAIRS[pair][2], 0.0))
    extra = ["fog, not rescaled"] + (["gamma"] if PAIRS[pair][0] == "cifar10" else [])
    return found + [Condition(EXTRA, name, float(severity)) for name in extra for severity in range(1, 6)]


def images_of(data: StudyData, condition: Condition, folder: str) -> Tensor:
    """Return the images of a condition, one per test image."""
    images, severity = data.test.inputs, int(condition.intensity)
    if condition.group == "clean":
        return images
    if condition.group == "ood":
        return _foreign(images, Path(folder) / condition.family / "t10k-images-idx3-ubyte.gz")
    if condition.group != EXTRA:
        return shifts.apply(images, condition.family, condition.intensity)
    if condition.family == "gamma":
        return effects.gamma(images, GAMMA[severity - 1])
    density = corruptions.parameters("fog", severity, images.shape[1], images.shape[-1])[0]
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    scaled = corruptions.apply(images, "fog", severity)
    return (scaled * (brightest + density) / brightest.clamp_min(1e-6)).clamp(0, 1)


def _foreign(images: Tensor, file: Path) -> Tensor:
    """Return the images of a file with the number of channels and the size of `images`."""
    pixels = datasets.parse_idx(gzip.decompress(file.read_bytes()))[: len(images), None]
    other = torch.from_numpy(pixels.astype(np.float32) / 255).to(images)
    channels, size = images.shape[1], images.shape[-1]
    border = (size - other.shape[-1]) // 2
    return torch.nn.functional.pad(other, (border,) * 4).expand(-1, channels, -1, -1).contiguous()


class Schedule(NamedTuple):
    """Epochs and learning rates of the two training steps of ConfidNet."""

    head_epochs: int = 200
    head_rate: float = 1e-4
    epochs: int = 10
    rate: float = 1e-6
    batch: int = 128


_IMAGES: dict[str, list[Tensor]] = {}


class Setting:
    """A pair with data, conditions and settings; `smoke` reduces them."""

    def __init__(self, pair: str, folder: str, device: str, smoke: bool) -> None:
        self.folder = folder
        self.pair, self.device, self.smoke = pair, device, smoke
        dataset, self.name, _ = PAIRS[pair]
        self.digits = dataset != "cifar10"
        self.view = "right" if self.digits else "mirror"
        data = load_data(dataset, 5000, folder, device)
        count = len(data.test.inputs)  # excludes the images that a prototype has seen
        rows = torch.from_numpy(np.setdiff1d(np.arange(count), common_rows(count, 2000))).to(device)
        self.data = data._replace(test=Split(data.test.inputs[rows], data.test.targets[rows]))
        self.listed = conditions(pair)
        self.recipe = recipes.recipe(self.name, dataset)
        self.confidence = Schedule()
        count = 5 if pair == "vit" else 10
        self.members: tuple[int, ...] = SIZES if pair == "published" else tuple(range(2000, 2000 + count))
        self.second, self.sub = 5, 5
        if smoke:
            self._shrink()
        self.labels = self.data.test.targets

    def fresh(self, seed: int) -> nn.Module:
        """Return an untrained network of the pair."""
        if self.name in OWN:
            return OWN[self.name](seed).to(self.device)
        _, channels, size, _ = self.data.train.inputs.shape
        return nets.build(self.name, classes=10, channels=channels, size=size, seed=seed).to(self.device)

    @property
    def images(self) -> list[Tensor]:
        """The images of every condition."""
        dataset = PAIRS[self.pair][0]
        if dataset not in _IMAGES:
            _IMAGES[dataset] = self._made()
        return _IMAGES[dataset]

    def _made(self) -> list[Tensor]:
        begin = time.perf_counter()
        found = [images_of(self.data, condition, self.folder) for condition in self.listed]
        if self.device == "cuda":
            torch.cuda.synchronize()
        print(f"{self.pair}: {len(found)} conditions in {time.perf_counter() - begin:.1f} s", flush=True)
        return found

    def _shrink(self) -> None:
        few = {"train": 500, "held_out": 200, "test": 200}
        if not self.digits:  # slow on a CPU
            few = {"train": 400, "held_out": 40, "test": 40}
        parts: dict[str, Any] = {}
        for part, count in few.items():
            inputs, targets = getattr(self.data, part)
            parts[part] = Split(inputs[:count], targets[:count])
        self.data = self.data._replace(**parts)
        first = {}
        for condition in self.listed:
            first[condition.group, condition.family] = condition  # the strongest intensity
        self.listed = list(first.values())
        self.recipe = dataclasses.replace(self.recipe, epochs=1)
        self.confidence = Schedule(head_epochs=8, epochs=1)
        self.members, self.second, self.sub = self.members[:2], 1, 2
