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
from qipf.training.split import Split

PAIRS = {
    "mnist": ("mnist", "lenet", "fashion-mnist"),
    "kmnist": ("kmnist", "lenet", "mnist"),
    "vgg3": ("cifar10", "vgg3", "fashion-mnist"),
    "resnet18": ("cifar10", "resnet18", "fashion-mnist"),
    "digits": ("digits", "small-cnn", None),
}
"""Dataset, network and out-of-distribution set of every pair; "digits" is for trying the programs out."""

BASES = {"resnet18": range(1000, 1003), "digits": range(1000, 1002)}
ENSEMBLES = {"resnet18": 2, "digits": 2}
MEMBERS = {"digits": 2}
RETRAINED = {"resnet18": range(0), "digits": range(3000, 3002)}


class Condition(NamedTuple):
    """One set of inputs: a group (column of the tables), a family within it, and its intensity."""

    group: str
    family: str
    intensity: float


def seeds(pair: str) -> tuple[list[int], list[list[int]], list[int]]:
    """Seeds of the base networks, of the members of every ensemble, and of the networks trained on perturbed images."""
    members = MEMBERS.get(pair, 10)
    ensembles = [[2000 + 100 * e + m for m in range(members)] for e in range(ENSEMBLES.get(pair, 3))]
    return list(BASES.get(pair, range(1000, 1005))), ensembles, list(RETRAINED.get(pair, range(3000, 3005)))


def load(pair: str, folder: str | None, device: str) -> StudyData:
    """The pair's data on the device, with the test images that no prototype has seen."""
    dataset = PAIRS[pair][0]
    data = load_data(dataset, 300 if pair == "digits" else 5000, folder, device)
    count = len(data.test.inputs)
    seen = common_rows(count, 2000) if count == 10_000 else np.arange(0)
    rows = torch.from_numpy(np.setdiff1d(np.arange(count), seen)).to(device)
    return data._replace(test=Split(data.test.inputs[rows], data.test.targets[rows]))


def conditions(pair: str) -> list[Condition]:
    """Every condition of a pair; the first one is the clean test set."""
    found = [Condition("clean", "clean", 0.0)]
    found += [Condition("shift", name, float(t)) for name, levels in shifts.SHIFTS.items() for t in levels]
    for name in CORRUPTIONS:
        group = "resembling" if name in RESEMBLES else "unseen"
        found += [Condition(group, name, float(severity)) for severity in range(1, 6)]
    if PAIRS[pair][2] is not None:
        found.append(Condition("ood", str(PAIRS[pair][2]), 0.0))
    return found


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
