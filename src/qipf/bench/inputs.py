"""The data and the networks that a plan names, loaded once a process and kept on the device."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qipf import datasets, nets, shifts
from qipf.datasets import Dataset, Split

NAMES = tuple(name for name in datasets.NAMES if name != "regression")  # a benchmark is about right and wrong
NETS = tuple(name for name in nets.NETS if name != "mlp-regression")


class Data(NamedTuple):
    """A dataset cut for a benchmark: what networks learn from, what nobody learns from, what is evaluated."""

    train: Split
    held_out: Split
    test: Split
    classes: int

    def reference(self, size: int) -> Split:
        """The training inputs that scorers are fitted on."""
        return first(self.train, size)


def first(split: Split, size: int) -> Split:
    """The first `size` of a split; all of them for 0."""
    return Split(split.inputs[:size], split.targets[:size]) if size else split


@lru_cache(maxsize=2)
def load_data(dataset: str, calibration_size: int, folder: str | None, device: str) -> Data:
    """The dataset with a held-out part of the training data set apart, on the device.

    The held-out part is the same for every seed and network, so that no network of the pool ever sees it.
    """
    found = _read(dataset, folder)
    count = len(found.train.inputs)
    if not 0 < calibration_size < count:
        raise ValueError(
            f"calibration_size: expected 1 to {count - 1} of the {count} training inputs of {dataset}, "
            f"got {calibration_size}"
        )
    order = torch.from_numpy(np.random.default_rng(0).permutation(count))
    held_out, kept = order[:calibration_size], order[calibration_size:].sort().values

    def take(rows: Tensor) -> Split:
        return Split(found.train.inputs[rows].to(device), found.train.targets[rows].to(device))

    test = Split(found.test.inputs.to(device), found.test.targets.to(device))
    return Data(take(kept), take(held_out), test, found.classes)


@lru_cache(maxsize=2)
def _read(dataset: str, folder: str | None) -> Dataset:
    if dataset.endswith(".npz"):
        return read_npz(Path(dataset))
    return datasets.load(dataset, data=folder, progress=False)


def read_npz(path: Path) -> Dataset:
    """A user's dataset: x_train, y_train, x_test, y_test; or x and y, of which a random half is for reference.

    Images are (N, c, h, w) or (N, h, w), floating point in [0, 1] or uint8; vectors (N, d) are taken as they are.

    Raises:
        ValueError: an array is missing, of the wrong shape or type.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if {"x", "y"} <= set(arrays):
        order = np.random.default_rng(0).permutation(len(arrays["x"]))
        half = len(order) // 2
        parts = {"train": np.sort(order[:half]), "test": np.sort(order[half:])}
        arrays = {f"{name}_{part}": arrays[name][rows] for part, rows in parts.items() for name in ("x", "y")}
    missing = {"x_train", "y_train", "x_test", "y_test"} - set(arrays)
    if missing:
        raise ValueError(f"{path}: expected x and y, or x_train, y_train, x_test and y_test; {sorted(missing)} missing")
    splits = [
        Split(_inputs(arrays[f"x_{part}"], path), _classes(arrays[f"y_{part}"], path)) for part in ("train", "test")
    ]
    for split in splits:
        if len(split.inputs) != len(split.targets) or len(split.inputs) == 0:
            raise ValueError(
                f"{path}: {len(split.inputs)} inputs and {len(split.targets)} labels; expected as many, and some"
            )
    classes = int(max(split.targets.max() for split in splits)) + 1
    return Dataset(path.stem, splits[0], splits[1], classes)


def _inputs(array: np.ndarray, path: Path) -> Tensor:
    if array.dtype == np.uint8:
        array = array.astype(np.float32) / np.float32(255)
    if array.dtype.kind != "f" or array.ndim not in (2, 3, 4):
        raise ValueError(
            f"{path}: expected inputs (N, c, h, w), (N, h, w) or (N, d), floats or uint8; "
            f"got {array.dtype} {array.shape}"
        )
    array = array[:, None] if array.ndim == 3 else array
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


def _classes(array: np.ndarray, path: Path) -> Tensor:
    if array.dtype.kind not in "iub" or array.ndim != 1 or (array.size and array.min() < 0):
        raise ValueError(f"{path}: expected labels as one whole number >= 0 an input, got {array.dtype} {array.shape}")
    return torch.from_numpy(array.astype(np.int64))


@lru_cache(maxsize=64)
def digest(name: str) -> str:
    """What identifies the bytes behind a name in a plan: the SHA-256 of a file; a shipped dataset's own name.

    The files of the named datasets are checked against published digests when they are read.
    """
    path = Path(name)
    if path.suffix and path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return name


class Group(NamedTuple):
    """Inputs that are evaluated together: a shift with all its intensities.

    Attributes:
        name: a shift, "clean", "held-out" or "ood:" and a dataset.
        intensities: of the shift; one 0.0 for the others.
        size: the first so many inputs (0: all).
    """

    name: str
    intensities: tuple[float, ...]
    size: int


def inputs_of(data: Data, group: Group, index: int, folder: str | None, device: str) -> Split:
    """The inputs of a group at its `index`-th intensity, shifted on the device."""
    if group.name == "held-out":
        return first(data.held_out, group.size)
    if group.name.startswith("ood:"):
        other = _read(group.name.removeprefix("ood:"), folder).test
        return first(Split(other.inputs.to(device), other.targets.to(device)), group.size)
    split = first(data.test, group.size)
    if group.name == "clean":
        return split
    images = shifts.apply(split.inputs, group.name, group.intensities[index])
    return Split(images.contiguous(memory_format=torch.channels_last) if device == "cuda" else images, split.targets)


def new_network(net: str, data: Data, seed: int) -> nn.Module:
    """A fresh network of a shipped kind for this data."""
    shape = tuple(data.train.inputs.shape[1:])
    if net.startswith("mlp") != (len(shape) == 1):
        raise ValueError(f"network {net} does not take inputs of shape {shape}")
    return nets.build(net, classes=data.classes, channels=shape[0], size=shape[1] if len(shape) == 3 else 1, seed=seed)


def own_network(model: str, weights: str | None) -> nn.Module:
    """The user's own model. Loading it runs the user's code."""
    from qipf.cli._models import load_model

    net: Any = load_model(model, None if weights is None else Path(weights))
    if not model.endswith(".pt2"):  # an exported program has no modes
        net.eval()
    return net
