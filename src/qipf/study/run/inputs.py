"""The data and the networks that a plan names, loaded once a process and kept on the device."""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qipf.study import datasets, nets, shifts
from qipf.study.datasets import Dataset, Split
from qipf.study.run.own_data import OwnDataset, read_npz

if TYPE_CHECKING:
    from qipf.study.plan.pairs import Pair

NAMES = tuple(name for name in datasets.NAMES if name != "regression")  # a benchmark is about right and wrong
NETS = tuple(name for name in nets.NETS if name != "mlp-regression")


class Data(NamedTuple):
    """A dataset cut for a benchmark: what networks learn from, what calibrates, what is evaluated; no overlaps."""

    train: Split
    held_out: Split
    test: Split
    classes: int

    def reference(self, size: int) -> Split:
        """The training inputs that scorers are fitted on."""
        return first(self.train, size)


def common_rows(count: int, size: int) -> np.ndarray:
    """Which of `count` test inputs all methods are compared on: `size` of them at random, all of them for 0.

    The draw depends on the two numbers alone, so it is the same for every network, seed, shift and method of a dataset.
    """
    if not 0 < size < count:
        return np.arange(count)
    return np.sort(np.random.default_rng(1).choice(count, size, replace=False))


def first(split: Split, size: int) -> Split:
    """The first `size` of a split; all of them for 0."""
    return Split(split.inputs[:size], split.targets[:size]) if size else split


@lru_cache(maxsize=2)
def load_data(
    dataset: str, calibration_size: int, folder: str | None, device: str, *, held_out_of: str = "train"
) -> Data:
    """The dataset on the device, with inputs set apart that no network learns from, the same for every seed.

    Where a file brings them (x_held_out and y_held_out) it is these, and `calibration_size` has no meaning. Else they
    are drawn from the training data, which networks are then trained without; or, for a network that was trained
    elsewhere and may have seen all training data, from the test data (`held_out_of="test"`), and not evaluated.
    """
    found = _read(dataset, folder)
    train, test = found.train, found.test
    held_out = found.held_out if isinstance(found, OwnDataset) else None
    if held_out is None:
        source = test if held_out_of == "test" else train
        count = len(source.inputs)
        if not 0 < calibration_size < count:
            what = "training" if held_out_of == "train" else "test"
            raise ValueError(
                f"calibration_size: expected 1 to {count - 1} of the {count} {what} inputs of {dataset}, "
                f"got {calibration_size}"
            )
        order = torch.from_numpy(np.random.default_rng(0).permutation(count))
        held_out, kept = _rows(source, order[:calibration_size]), _rows(source, order[calibration_size:].sort().values)
        train, test = (train, kept) if held_out_of == "test" else (kept, test)

    def there(split: Split) -> Split:
        return Split(split.inputs.to(device), split.targets.to(device))

    return Data(there(train), there(held_out), there(test), found.classes)


def brings_held_out(dataset: str) -> bool:
    """Whether a dataset's file has x_held_out and y_held_out."""
    found = _read(dataset, None) if dataset.endswith(".npz") else None
    return isinstance(found, OwnDataset) and found.held_out is not None


def held_out_of(pair: Pair) -> str:
    """Where a pair's held-out inputs come from if its file has none: nobody knows what a user's model has seen."""
    return "train" if pair.model is None else "test"


def _rows(split: Split, rows: Tensor) -> Split:
    return Split(split.inputs[rows], split.targets[rows])


@lru_cache(maxsize=2)
def _read(dataset: str, folder: str | None) -> Dataset:
    if dataset.endswith(".npz"):
        return read_npz(Path(dataset))
    return datasets.load(dataset, data=folder, progress=False)


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


def model_digest(model: str, weights: str | None) -> str:
    """What identifies a user's model: the bytes of a file; of `module:callable` the module's source and all tensors.

    One that cannot be built has only its name: its cell will fail, and say why.
    """
    if model.endswith(".pt2"):
        return digest(model)
    found = hashlib.sha256(model.encode())
    try:
        state = own_network(model, weights).state_dict()
        source = sys.modules[model.partition(":")[0]].__file__
        if source is not None:
            found.update(Path(source).read_bytes())
        for name, value in state.items():
            found.update(f"{name} {getattr(value, 'dtype', type(value))} {getattr(value, 'shape', '')}".encode())
            is_tensor = isinstance(value, Tensor)
            found.update(
                value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
                if is_tensor
                else repr(value).encode()
            )
    except Exception:  # whatever the user's code raises
        return model
    return found.hexdigest()


class Group(NamedTuple):
    """Inputs that are evaluated together: a shift with all its intensities.

    Attributes:
        name: a shift, "clean", "held-out" or "ood:" and a dataset.
        intensities: of the shift; one 0.0 for the others.
        size: the first so many inputs (0: all).
        subset: so many of these, see `common_rows` (0: all).
    """

    name: str
    intensities: tuple[float, ...]
    size: int
    subset: int = 0


def inputs_of(data: Data, group: Group, index: int, folder: str | None, device: str) -> Split:
    """The inputs of a group at its `index`-th intensity, shifted on the device."""
    if group.name == "held-out":
        return first(data.held_out, group.size)
    if group.name.startswith("ood:"):
        other = _read(group.name.removeprefix("ood:"), folder).test
        # whatever they are called there, they are no classes of this network: any that it has will do
        other = Split(other.inputs, other.targets.long() % data.classes)
        return _some(Split(other.inputs.to(device), other.targets.to(device)), group)
    split = _some(data.test, group)
    if group.name == "clean":
        return split
    images = shifts.apply(split.inputs, group.name, group.intensities[index])
    return Split(images.contiguous(memory_format=torch.channels_last) if device == "cuda" else images, split.targets)


def _some(split: Split, group: Group) -> Split:
    split = first(split, group.size)
    if not group.subset:
        return split
    return _rows(split, torch.from_numpy(common_rows(len(split.inputs), group.subset)).to(split.inputs.device))


def new_network(net: str, data: Data, seed: int | None = None) -> nn.Module:
    """A fresh network of a shipped kind for this data; without a seed its weights are torch's to draw."""
    shape = tuple(data.train.inputs.shape[1:])
    if net.startswith("mlp") != (len(shape) == 1):
        raise ValueError(f"network {net} does not take inputs of shape {shape}")
    return nets.build(net, classes=data.classes, channels=shape[0], size=shape[1] if len(shape) == 3 else 1, seed=seed)


def own_network(model: str, weights: str | None) -> nn.Module:
    """The user's own model. Loading it runs the user's code, with a fixed seed: every worker gets the same network."""
    from qipf.models.loading import load_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net: Any = load_model(model, None if weights is None else Path(weights))
    if not model.endswith(".pt2"):  # an exported program has no modes
        net.eval()
    return net
