"""Load the data of a plan onto a device, with a cache in each process."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qipf._common.budget import budget, too_large
from qipf.arrays import to_numpy
from qipf.data.batches import shape_text
from qipf.data.npz import read_arrays
from qipf.scores.base import check_rows
from qipf.study import datasets, nets, shifts
from qipf.study.datasets import Dataset, Split
from qipf.study.plan.methods import PREDICTS
from qipf.study.run.own_model import unchanged
from qipf.tasks.outputs import zeros_and_ones
from qipf.tasks.pixels import IGNORED
from qipf.tasks.task import Task

if TYPE_CHECKING:
    from qipf.study.plan.plan import Pair

PARTS = ("y", "y_train", "y_test", "y_held_out")
"""Names of label arrays in a file."""
UNLABELLED = {"tokens": (-100,), "tags": (-100,), "pixels": IGNORED}
"""Labels that mark ignored positions, keyed by task."""
FORMS = {
    "classes": ((1,), "iub", "one integer label >= 0 per input"),
    "tokens": ((2,), "iub", "one token id per position (N, T), with -100 for ignored positions"),
    "tags": ((2,), "iub", "one label per token (N, T), with -100 for ignored tokens"),
    "pixels": ((3,), "iub", "one class per pixel (N, h, w), with 255 or -100 for ignored pixels"),
    "labels": ((2,), "iubf", "labels (N, L) with values 0 and 1"),
    "numbers": ((1, 2), "f", "targets (N,) or (N, k) as floating-point numbers"),
}
"""Allowed numbers of dimensions, allowed dtype kinds and description of the labels, keyed by task."""
HINTS = {
    ("classes", "f"): '; for regression, set predicts = "numbers"',
    **{("numbers", kind): "; if these integers are quantities, save y.astype('float64')" for kind in "iu"},
}


def read_npz(path: Path, predicts: str = "classes") -> Dataset:
    """Read a dataset from x_train, y_train, x_test and y_test, or from x and y, split in half at random.

    x_held_out and y_held_out are optional. Images (N, c, h, w) or (N, h, w) are uint8 or floats in [0, 1], tables
    (N, d) are floats, and token ids (N, T) are integers.
    """
    arrays = _arrays(path)
    halves = {"x", "y"} <= set(arrays)
    missing = set() if halves else {"x_train", "y_train", "x_test", "y_test"} - set(arrays)
    if missing:
        absent = ", ".join(sorted(missing))
        raise ValueError(f"{path}: expected x and y, or x_train, y_train, x_test and y_test; {absent} missing")
    one_of_two = {"x_held_out", "y_held_out"} & set(arrays)
    if len(one_of_two) == 1:
        raise ValueError(f"{path}: expected both x_held_out and y_held_out, got only {one_of_two.pop()}")
    # check the arrays before rows are drawn, so that errors name rows of the file
    ends = [""] if halves else ["_train", "_test"]
    splits = [_split(arrays, end, path, predicts) for end in ends]
    if halves:
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(splits[0].inputs)))
        half = len(order) // 2
        drawn = [part.sort().values for part in (order[:half], order[half:])]
        splits = [Split(splits[0].inputs[rows], splits[0].targets[rows]) for rows in drawn]
    if one_of_two:
        splits.append(_split(arrays, "_held_out", path, predicts))
        ends.append("_held_out")
    if not all(len(split.inputs) for split in splits):
        raise ValueError(
            f"{path}: expected at least one input in every part (training, test and held-out data); one part is empty"
        )
    if predicts == "numbers":
        for end in ends:
            _check_not_classes(arrays[f"y{end}"], f"{path}, y{end}")
    classes = 0 if predicts == "numbers" else int(max(split.targets.max() for split in splits)) + 1
    return Dataset(path.stem, splits[0], splits[1], classes, *splits[2:])


def read_shifted(path: Path, predicts: str = "classes") -> Split:
    """Read shifted inputs with labels: x and y, or x_test and y_test."""
    arrays = _arrays(path)
    end = next((end for end in ("", "_test") if {f"x{end}", f"y{end}"} <= set(arrays)), None)
    if end is None:
        raise ValueError(
            f"{path}: expected x and y, or x_test and y_test, got {', '.join(sorted(arrays)) or 'no arrays'}"
        )
    split = _split(arrays, end, path, predicts)
    if not len(split.inputs):
        raise ValueError(f"{path}: expected at least one input, got none")
    if predicts == "numbers" and split.targets.ndim == 2:
        _check_not_classes(arrays[f"y{end}"], f"{path}, y{end}")
    return split


def _arrays(path: Path) -> dict[str, np.ndarray]:
    arrays = read_arrays(path)
    floats = 4 * sum(array.size for array in arrays.values() if array.dtype == np.uint8)
    if floats > (most := max(budget(), 4 * path.stat().st_size)):
        raise too_large(path, most)
    return arrays


def _split(arrays: dict[str, np.ndarray], end: str, path: Path, predicts: str) -> Split:
    x, y = f"x{end}", f"y{end}"
    labels = _labels(arrays[y], predicts, f"{path}, {y}")
    split = Split(_inputs(arrays[x], f"{path}, {x}", ids=predicts in ("tokens", "tags")), labels)
    if len(split.inputs) != len(split.targets):
        counts = f"{len(split.inputs)} and {len(split.targets)}"
        raise ValueError(f"{path}: expected the same number of inputs in {x} and labels in {y}, got {counts}")
    return split


def _inputs(array: np.ndarray, place: str, *, ids: bool = False) -> Tensor:
    """Return the inputs as a tensor; uint8 values are pixels, or token ids if `ids` is True."""
    if array.dtype == np.uint8 and not ids:
        array = array.astype(np.float32)
        array /= np.float32(255)
    if array.dtype.kind in "iu" and array.ndim == 2:
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
    if array.dtype.kind != "f" or array.ndim not in (2, 3, 4):
        raise ValueError(
            f"{place}: expected floats or uint8 of shape (N, c, h, w), (N, h, w) or (N, d), or token ids (N, T); "
            f"got {array.dtype} {array.shape}"
        )
    array = array[:, None] if array.ndim == 3 else array
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    check_rows(tensor.flatten(1), place)
    return tensor


def _labels(array: np.ndarray, predicts: str, place: str) -> Tensor:
    """Check labels or targets and return them as a tensor."""
    dimensions, kinds, words = FORMS[predicts]
    wrong = array.ndim not in dimensions or array.dtype.kind not in kinds or 0 in array.shape[1:]
    if wrong or (predicts == "labels" and not zeros_and_ones(array)):
        hint = HINTS.get((predicts, array.dtype.kind), "")
        raise ValueError(f"{place}: for {predicts}, expected {words}, got {array.dtype} {array.shape}{hint}")
    if predicts == "numbers":
        targets = np.ascontiguousarray(array, dtype=np.float64)
        check_rows(targets[:, None] if targets.ndim == 1 else targets, place)
        return torch.from_numpy(targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets)
    labels = torch.from_numpy(array.astype(np.int64))
    if predicts == "classes" and len(negative := torch.nonzero(labels < 0).flatten()):
        row = int(negative[0])
        raise ValueError(
            f"{place}: expected labels >= 0, got {array[row]} in row {row} (negative labels: {len(negative)}); remove "
            "or correct these rows"
        )
    if predicts != "classes" and len(labels) and not bool(labelled(labels, predicts).any()):
        rest = " after the first token of each text" if predicts == "tokens" else ""
        raise ValueError(
            f"{place}: expected at least one label other than {' and '.join(map(str, UNLABELLED[predicts]))} (ignored)"
            f"{rest}, got none in {array.dtype} {array.shape}"
        )
    return labels


def _check_not_classes(targets: np.ndarray, place: str) -> None:
    if zeros_and_ones(targets):
        raise ValueError(
            f"{place}: expected regression targets, got only zeros and ones; for a classifier, remove `predicts` and "
            "store integers"
        )


def labelled(labels: Tensor, predicts: str) -> Tensor:
    """Return a mask (N, ...) of the labels to evaluate; the first token of a text is not predicted."""
    if predicts == "labels":
        return torch.ones_like(labels, dtype=torch.bool)
    counts = ~torch.isin(labels, torch.tensor(UNLABELLED[predicts], device=labels.device))
    if predicts == "tokens":
        counts[:, :1] = False
    return counts


class StudyData(NamedTuple):
    """Parts of a dataset for training, calibration (`held_out`) and evaluation."""

    train: Split
    held_out: Split
    test: Split
    classes: int
    predicts: str = "classes"

    @property
    def task(self) -> Task:
        """The task that `predicts` names."""
        return PREDICTS[self.predicts]


def first(split: Split, size: int) -> Split:
    """Return the first `size` rows, or all rows if `size` is 0."""
    return Split(split.inputs[:size], split.targets[:size]) if size else split


def some_labelled(split: Split, size: int, predicts: str) -> Split:
    """Return at most `size` rows with labels, evenly spaced."""
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
    """Load a dataset onto a device. Its parts are the same for every seed.

    Args:
        dataset: A name, or an .npz file.
        calibration_size: Number of held-out inputs to draw; unused if the file contains x_held_out.
        folder: Folder with dataset files.
        device: Device of the tensors.
        held_out_of: Part from which held-out inputs are drawn and removed, "train" or "test".
        digest: Expected SHA-256 of an .npz file; "" skips the check.
        predicts: A key of `qipf.study.plan.methods.PREDICTS`.

    Raises:
        ValueError: The file is invalid, or `calibration_size` is 0 or too large.
    """
    found = _read(dataset, folder, digest, predicts)
    train, test, held_out = found.train, found.test, found.held_out
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
    """Return True if the dataset is a file that contains x_held_out."""
    return dataset.endswith(".npz") and _read(dataset, None, digest, predicts).held_out is not None


def held_out_of(pair: Pair) -> str:
    """Return the part from which held-out inputs are drawn: "test" for the user's own model, otherwise "train"."""
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
    """Inputs evaluated together, such as one shift at all its intensities.

    Attributes:
        name: A shift, "clean", "held-out", "reference", "perturbed", or "ood:" followed by a dataset.
        size: Number of inputs, from the start of the set; 0 for all.
        subset: Number of these inputs that `common_rows` draws; 0 for all.
        digest: SHA-256 of the .npz file of an "ood:" dataset.
        files: The user's own shifted files, one per intensity.
        digests: SHA-256 of each file.
    """

    name: str
    intensities: tuple[float, ...]
    size: int
    subset: int = 0
    digest: str = ""
    files: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()


def common_rows(count: int, size: int) -> np.ndarray:
    """Return the rows for comparing methods: `size` of `count`, drawn with a fixed seed, or all if `size` is 0."""
    if not 0 < size < count:
        return np.arange(count)
    return np.sort(np.random.default_rng(1).choice(count, size, replace=False))


def inputs_of(data: StudyData, group: Group, index: int, folder: str | None, device: str) -> Split:
    """Return the inputs of a group at `intensities[index]`."""
    if group.name == "held-out":
        return first(data.held_out, group.size)
    if group.name.startswith("ood:"):
        other = _read(group.name.removeprefix("ood:"), folder, group.digest).test
        # these labels are not classes of the network, so any class serves as a placeholder
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
    """Return the inputs in a user's shifted file; its labels must be the same as in the first file of the group."""
    first_file, here = (
        _shifted(group.files[place], group.digests[place] if group.digests else "", data.predicts)
        for place in (0, index)
    )
    path, expected, found = group.files[index], tuple(data.test.inputs.shape[1:]), tuple(here.inputs.shape[1:])
    if found != expected or here.inputs.dtype != data.test.inputs.dtype:
        raise ValueError(
            f"{path}: expected inputs of shape {shape_text((None, *expected))} and type {data.test.inputs.dtype} "
            f"(as in the test data), got {tuple(here.inputs.shape)} and {here.inputs.dtype}"
        )
    labels = tuple(data.test.targets.shape[1:])
    if tuple(here.targets.shape[1:]) != labels:
        what = "targets" if data.task.judged_by == "intervals" else "labels"
        raise ValueError(
            f"{path}: expected {what} of shape {shape_text((None, *labels))} (as in the test data), got "
            f"{tuple(here.targets.shape)}"
        )
    if here.inputs.ndim == 4:
        (low, high), (least, most) = ((float(x.min()), float(x.max())) for x in (data.test.inputs, here.inputs))
        if low >= 0 and high <= 1 and most > 2:
            raise ValueError(
                f"{path}: values range from {least:g} to {most:g}, but those of the test images from {low:g} to "
                f"{high:g}; divide them by 255, or store uint8"
            )
    if not torch.equal(here.targets, first_file.targets):
        raise ValueError(
            f"{path}: expected the same labels as in {group.files[0]} (another severity of {group.name}); list "
            "files with different labels under another name"
        )
    return Split(here.inputs.to(device), here.targets.to(device))


@lru_cache(maxsize=4)
def _shifted(path: str, digest: str, predicts: str) -> Split:
    with unchanged(path, digest):
        return read_shifted(Path(path), predicts)


def forget() -> None:
    """Clear the cached data of this process."""
    for read in (load_data, _read, _shifted):
        read.cache_clear()


def _some(split: Split, group: Group) -> Split:
    split = first(split, group.size)
    if not group.subset:
        return split
    return _rows(split, torch.from_numpy(common_rows(len(split.inputs), group.subset)).to(split.inputs.device))


def new_network(net: str, data: StudyData, seed: int | None = None) -> nn.Module:
    """Return a new network for the data; see `nets.build`."""
    _, classes, channels, size = nets.spec_for(net, data)
    return nets.build(net, classes=classes, channels=channels, size=size, seed=seed)


REPEATED = 0.05
"""Minimum fraction of repeated test inputs for which `notes_of` returns a note."""


def notes_of(data: StudyData) -> list[str]:
    """Return notes about test inputs that also occur in other parts of the data."""
    parts = (
        ("x_train", data.train, "scores are fitted"),
        ("the held-out inputs", data.held_out, "scores and intervals are calibrated"),
    )
    notes = []
    for name, part, use in parts:
        if part.inputs.shape[1:] != data.test.inputs.shape[1:] or part.targets.shape[1:] != data.test.targets.shape[1:]:
            continue  # the model accepts inputs of several sizes
        known = set(_row_digests(part))
        count = sum(row in known for row in _row_digests(data.test))
        if count >= REPEATED * len(data.test.inputs):
            notes.append(
                f"{count} of {len(data.test.inputs)} test inputs are also in {name}, with the same labels: {use} on "
                "them, so the results are better than on new inputs; remove them from one of the parts"
            )
    return notes


def _row_digests(split: Split) -> list[bytes]:
    inputs, targets = (np.ascontiguousarray(to_numpy(part)) for part in split)
    return [blake2b(x.tobytes() + y.tobytes(), digest_size=16).digest() for x, y in zip(inputs, targets, strict=True)]
