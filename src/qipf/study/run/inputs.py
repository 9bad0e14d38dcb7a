"""The data that a plan names, loaded once per process and kept on the device."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qipf.study import datasets, nets, shifts
from qipf.study.datasets import Dataset, Split
from qipf.study.run.digests import unchanged
from qipf.study.run.own_data import OwnDataset, labelled, read_npz, read_shifted

if TYPE_CHECKING:
    from qipf.study.plan.pairs import Pair


class StudyData(NamedTuple):
    """A dataset in three parts without overlap: to train networks, to calibrate, and to evaluate."""

    train: Split
    held_out: Split
    test: Split
    classes: int
    predicts: str = "classes"

    def reference(self, size: int) -> Split:
        """The training inputs that scorers are fitted on."""
        return first(self.train, size)


def common_rows(count: int, size: int) -> np.ndarray:
    """The rows of the test inputs that all methods are compared on: `size` of `count` at random, or all of them for 0.

    The draw depends on the two numbers alone, so it is the same for every network, seed, shift and method of a dataset.
    """
    if not 0 < size < count:
        return np.arange(count)
    return np.sort(np.random.default_rng(1).choice(count, size, replace=False))


def first(split: Split, size: int) -> Split:
    """The first `size` rows of a split; all of them for 0."""
    return Split(split.inputs[:size], split.targets[:size]) if size else split


def some_labelled(split: Split, size: int, predicts: str) -> Split:
    """At most `size` rows that have a label that counts, evenly spaced because files may be sorted by their labels."""
    rows = labelled(split.targets, predicts).flatten(1).any(dim=1).nonzero().flatten()
    places = np.unique(np.linspace(0, len(rows) - 1, min(size, len(rows))).round().astype(int))
    return _rows(split, rows[torch.from_numpy(places).to(rows.device)])


@lru_cache(maxsize=2)
def load_data(
    dataset: str,
    calibration_size: int,
    folder: str | None,
    device: str,
    *,
    held_out_of: str = "train",
    digest: str = "",
    predicts: str = "classes",
) -> StudyData:
    """The dataset on the device, with inputs set apart that no network learns from, the same for every seed.

    If the file has x_held_out and y_held_out, these are used and `calibration_size` has no meaning. Otherwise they are
    drawn from the training data, and networks are trained without them. A network that was trained elsewhere may have
    seen all training data: for it they are drawn from the test data, which is then evaluated without them.

    Args:
        dataset: the name of a dataset, or an .npz file.
        calibration_size: number of inputs to set apart.
        folder: where the files of datasets are.
        device: where the tensors go.
        held_out_of: "train" or "test".
        digest: of an .npz file, to be sure that it is the file of the plan; empty to skip the check.
        predicts: what the labels of an .npz file are about, one of `qipf.study.plan.predicts.PREDICTS`.

    Raises:
        ChangedError: the file is not the file of the plan.
        ValueError: there are too few inputs.
    """
    found = _read(dataset, folder, digest, predicts)
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

    return StudyData(there(train), there(held_out), there(test), found.classes, predicts)


def brings_held_out(dataset: str, digest: str = "", predicts: str = "classes") -> bool:
    """Whether the file of a dataset has x_held_out and y_held_out."""
    found = _read(dataset, None, digest, predicts) if dataset.endswith(".npz") else None
    return isinstance(found, OwnDataset) and found.held_out is not None


def held_out_of(pair: Pair) -> str:
    """Which part the held-out inputs of a pair are drawn from: nobody knows which training data a user's model saw."""
    return "train" if pair.model is None else "test"


def _rows(split: Split, rows: Tensor) -> Split:
    return Split(split.inputs[rows], split.targets[rows])


@lru_cache(maxsize=2)
def _read(dataset: str, folder: str | None, digest: str = "", predicts: str = "classes") -> Dataset:
    if dataset.endswith(".npz"):
        with unchanged(dataset, digest):
            return read_npz(Path(dataset), predicts)
    return datasets.load(dataset, data=folder, progress=False)


class Group(NamedTuple):
    """Inputs that are evaluated together: a shift with all its intensities.

    Attributes:
        name: a shift, "clean", "held-out", or "ood:" followed by a dataset.
        intensities: of the shift; a single 0.0 for the others.
        size: number of inputs, from the first (0: all).
        subset: number of these that are drawn by `common_rows` (0: all).
        digest: of the .npz file of another dataset; empty for the others.
        files: of a shift of the user's own, one per intensity; empty for the others.
        digests: of these files.
    """

    name: str
    intensities: tuple[float, ...]
    size: int
    subset: int = 0
    digest: str = ""
    files: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()


def inputs_of(data: StudyData, group: Group, index: int, folder: str | None, device: str) -> Split:
    """The inputs of a group at its `index`-th intensity, shifted on the device."""
    if group.name == "held-out":
        return first(data.held_out, group.size)
    if group.name.startswith("ood:"):
        other = _read(group.name.removeprefix("ood:"), folder, group.digest).test
        # their labels are not classes of this network, so any of its classes will do
        other = Split(other.inputs, other.targets.long() % data.classes)
        return _some(Split(other.inputs.to(device), other.targets.to(device)), group)
    if group.files:
        return _some(_own_shifted(data, group, index, device), group)
    split = _some(data.test, group)
    if group.name == "clean":
        return split
    moved = shifts.apply(split.inputs, group.name, group.intensities[index])
    as_images = device == "cuda" and moved.ndim == 4
    return Split(moved.contiguous(memory_format=torch.channels_last) if as_images else moved, split.targets)


def _own_shifted(data: StudyData, group: Group, index: int, device: str) -> Split:
    """The inputs of a file of the user's own; labels are those of the first file of the shift."""
    first_file, here = (
        _shifted(group.files[place], group.digests[place] if group.digests else "", data.predicts)
        for place in (0, index)
    )
    path, expected, found = group.files[index], tuple(data.test.inputs.shape[1:]), tuple(here.inputs.shape[1:])
    if found != expected or here.inputs.dtype != data.test.inputs.dtype:
        raise ValueError(
            f"{path}: expected inputs of shape (N, {', '.join(map(str, expected))}) and type {data.test.inputs.dtype}, "
            f"as in the test data, got {tuple(here.inputs.shape)} and {here.inputs.dtype}"
        )
    if here.inputs.ndim == 4:
        (low, high), (least, most) = ((float(x.min()), float(x.max())) for x in (data.test.inputs, here.inputs))
        if low >= 0 and high <= 1 and most > 2:
            raise ValueError(
                f"{path}: holds numbers from {least:g} to {most:g}, and the test images numbers from {low:g} to "
                f"{high:g}; divide by 255, or store bytes, which are read so"
            )
    if not torch.equal(here.targets, first_file.targets):
        raise ValueError(
            f"{path}: expected the labels of {group.files[0]}, as both are severities of {group.name}; give files "
            "with other labels names of their own"
        )
    return Split(here.inputs.to(device), here.targets.to(device))


@lru_cache(maxsize=4)
def _shifted(path: str, digest: str, predicts: str) -> Split:
    with unchanged(path, digest):
        return read_shifted(Path(path), predicts)


def forget() -> None:
    """Release the data that this process has read."""
    for read in (load_data, _read, _shifted):
        read.cache_clear()


def _some(split: Split, group: Group) -> Split:
    split = first(split, group.size)
    if not group.subset:
        return split
    return _rows(split, torch.from_numpy(common_rows(len(split.inputs), group.subset)).to(split.inputs.device))


def new_network(net: str, data: StudyData, seed: int | None = None) -> nn.Module:
    """A new network by name for this data. Without a seed, its weights come from the global generator of torch."""
    shape = tuple(data.train.inputs.shape[1:])
    if net.startswith("mlp") != (len(shape) == 1):
        raise ValueError(f"network {net} does not take inputs of shape {shape}")
    return nets.build(net, classes=data.classes, channels=shape[0], size=shape[1] if len(shape) == 3 else 1, seed=seed)
