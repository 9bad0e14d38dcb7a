"""The inputs of the probe study: 8,000 test images per pair, clean, shifted, corrupted, and out of distribution."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from qipf.study import datasets, shifts
from qipf.study.run.study_data import StudyData, common_rows, load_data
from qipf.study.shifts.corruptions import CORRUPTIONS, RESEMBLES
from qipf.training.loop import Split

PAIRS = {
    "mnist": ("mnist", "lenet", "fashion-mnist"),
    "kmnist": ("kmnist", "lenet", "mnist"),
    "vgg3": ("cifar10", "vgg3", "fashion-mnist"),
    "resnet18": ("cifar10", "resnet18", "fashion-mnist"),
}
"""Dataset, network and out-of-distribution set of every pair."""


class Condition(NamedTuple):
    """One set of inputs: a group (column of the tables), a family within it, and its intensity."""

    group: str
    family: str
    intensity: float


def load(pair: str, folder: str | None, device: str) -> StudyData:
    """The pair's data on the device, with the test images that no prototype has seen."""
    dataset = PAIRS[pair][0]
    data = load_data(dataset, 5000, folder, device)
    count = len(data.test.inputs)
    rows = torch.from_numpy(np.setdiff1d(np.arange(count), common_rows(count, 2000))).to(device)
    return data._replace(test=Split(data.test.inputs[rows], data.test.targets[rows]))


def conditions(pair: str) -> list[Condition]:
    """Every condition of a pair; the first one is the clean test set."""
    found = [Condition("clean", "clean", 0.0)]
    found += [Condition("shift", name, float(t)) for name, levels in shifts.SHIFTS.items() for t in levels]
    for name in CORRUPTIONS:
        group = "resembling" if name in RESEMBLES else "unseen"
        found += [Condition(group, name, float(severity)) for severity in range(1, 6)]
    return [*found, Condition("ood", PAIRS[pair][2], 0.0)]


def images_of(pair: str, data: StudyData, condition: Condition, folder: str | None) -> Tensor:
    """Return the images of a condition, one per test image."""
    images = data.test.inputs
    if condition.group == "clean":
        return images
    if condition.group != "ood":
        return shifts.apply(images, condition.family, condition.intensity)
    file = Path(str(folder)) / condition.family / "t10k-images-idx3-ubyte.gz"
    pixels = datasets.parse_idx(gzip.decompress(file.read_bytes()))[: len(images), None]
    other = torch.from_numpy(pixels.astype(np.float32) / 255).to(images)
    channels, size = images.shape[1], images.shape[-1]
    border = (size - other.shape[-1]) // 2
    return torch.nn.functional.pad(other, (border,) * 4).expand(-1, channels, -1, -1).contiguous()
