"""A user's own dataset in an .npz file. Every row is checked when the file is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from qipf._common.budget import budget, too_large
from qipf.data.npz import Archive, read_arrays
from qipf.models.kinds.ignored import IGNORED, MASKS, look_like_masks
from qipf.models.labels import check_binary, check_classes, zeros_and_ones
from qipf.scores.base import check_rows
from qipf.study.datasets import Dataset, Split

PARTS = ("y", "y_train", "y_test", "y_held_out")
"""The labels in a file."""
UNLABELLED = {"tokens": (-100,), "tags": (-100,), "pixels": IGNORED}
"""Labels that do not count."""


@dataclass(frozen=True)
class OwnDataset(Dataset):
    """A user's dataset, which may have inputs that no network was trained on and that are not evaluated."""

    held_out: Split | None = None


def read_npz(path: Path, predicts: str = "classes") -> OwnDataset:
    """A user's dataset: x_train, y_train, x_test and y_test; or x and y, which are split into random halves.

    x_held_out and y_held_out are optional in both cases. They are used for calibration; no network was trained on them.
    Images are (N, c, h, w) or (N, h, w), floats in [0, 1] or uint8; the rows of a table (N, d), floats, and token ids
    (N, T), whole numbers, are used as they are.

    Args:
        path: the file.
        predicts: what the labels are about, one of `qipf.study.plan.predicts.PREDICTS`.

    Raises:
        ValueError: an array is missing, of the wrong shape or type.
    """
    arrays = _arrays(path)
    halves = {"x", "y"} <= set(arrays)
    missing = set() if halves else {"x_train", "y_train", "x_test", "y_test"} - set(arrays)
    if missing:
        raise ValueError(f"{path}: expected x and y, or x_train, y_train, x_test and y_test; {sorted(missing)} missing")
    one_of_two = {"x_held_out", "y_held_out"} & set(arrays)
    if len(one_of_two) == 1:
        raise ValueError(f"{path}: expected x_held_out and y_held_out, or neither; it has only {one_of_two.pop()}")
    # checked before rows are drawn, so that errors name rows of the file
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
            f"{path}: expected at least one input for training, for testing and in every other part; one is empty"
        )
    if predicts == "numbers":
        for end in ends:
            _check_not_classes(arrays[f"y{end}"], f"{path}, y{end}")
    classes = 0 if predicts == "numbers" else int(max(split.targets.max() for split in splits)) + 1
    return OwnDataset(path.stem, splits[0], splits[1], classes, *splits[2:])


def read_shifted(path: Path, predicts: str = "classes") -> Split:
    """Shifted inputs of the user's own, with their labels: x and y, or x_test and y_test.

    Args:
        path: the file.
        predicts: as for `read_npz`.

    Raises:
        ValueError: an array is missing, of the wrong shape or type.
    """
    arrays = _arrays(path)
    end = next((end for end in ("", "_test") if {f"x{end}", f"y{end}"} <= set(arrays)), None)
    if end is None:
        raise ValueError(
            f"{path}: expected x and y, or x_test and y_test; it has {', '.join(sorted(arrays)) or 'none'}"
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
    place = f"{path}, {y}"
    if predicts == "numbers":
        labels = _numbers(arrays[y], place)
    else:
        labels = _classes(arrays[y], place) if predicts == "classes" else _several(arrays[y], predicts, place)
    split = Split(_inputs(arrays[x], f"{path}, {x}", ids=predicts in ("tokens", "tags")), labels)
    if len(split.inputs) != len(split.targets):
        counts = f"{len(split.inputs)} inputs and {len(split.targets)} labels"
        raise ValueError(f"{path}: {counts} in {x} and {y}; expected the same number of both")
    return split


def _inputs(array: np.ndarray, place: str, *, ids: bool = False) -> Tensor:
    """The inputs as the model reads them; bytes are pixels, unless the inputs are `ids` of tokens."""
    if array.dtype == np.uint8 and not ids:
        array = array.astype(np.float32)
        array /= np.float32(255)
    if array.dtype.kind in "iu" and array.ndim == 2:
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
    if array.dtype.kind != "f" or array.ndim not in (2, 3, 4):
        raise ValueError(
            f"{place}: expected inputs (N, c, h, w), (N, h, w) or (N, d), floats or uint8, or token ids (N, T); "
            f"got {array.dtype} {array.shape}"
        )
    array = array[:, None] if array.ndim == 3 else array
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    check_rows(tensor.flatten(1), place)
    return tensor


def _numbers(array: np.ndarray, place: str) -> Tensor:
    """The targets of a regression: (N,) or, where each input has several, (N, k)."""
    if array.dtype.kind != "f" or array.ndim not in (1, 2) or 0 in array.shape[1:]:
        whole = "; if these whole numbers are amounts, save y.astype('float64')" if array.dtype.kind in "iu" else ""
        raise ValueError(
            f"{place}: expected targets (N,) or (N, k) as floating-point numbers for numbers, got {array.dtype} "
            f"{array.shape}{whole}"
        )
    targets = np.ascontiguousarray(array, dtype=np.float64)
    check_rows(targets[:, None] if targets.ndim == 1 else targets, place)
    return torch.from_numpy(targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets)


def _check_not_classes(targets: np.ndarray, place: str) -> None:
    if zeros_and_ones(targets):
        raise ValueError(
            f"{place}: expected the targets of a regression, got nothing but 0 and 1, which are classes; leave "
            "`predicts` out for a classifier, and give its classes as whole numbers"
        )


def _several(array: np.ndarray, predicts: str, place: str) -> Tensor:
    """The labels of several predictions per input; those that do not count are negative or 255."""
    shape, words = {
        "tokens": (2, "one token per place (N, T), or -100"),
        "tags": (2, "one label per token (N, T), or -100"),
        "pixels": (3, "one class per pixel (N, h, w), or 255 or -100"),
        "labels": (2, "labels (N, L) of 0 and 1"),
    }[predicts]
    whole = array.dtype.kind in "iub" or (predicts == "labels" and array.dtype.kind == "f")
    if array.ndim != shape or not whole or (predicts == "labels" and not zeros_and_ones(array)):
        raise ValueError(f"{place}: expected {words} for {predicts}, got {array.dtype} {array.shape}")
    labels = torch.from_numpy(array.astype(np.int64))
    if len(labels) and not bool(labelled(labels, predicts).any()):
        first = " after the first token of each text, which no model predicts" if predicts == "tokens" else ""
        raise ValueError(
            f"{place}: expected at least one label that counts{first}, got {array.dtype} {array.shape} with none; "
            f"labels that do not count are {' and '.join(map(str, UNLABELLED[predicts]))}"
        )
    return labels


def _classes(array: np.ndarray, place: str) -> Tensor:
    if array.dtype.kind not in "iub" or array.ndim != 1:
        numbers = '; for a regression, set predicts = "numbers"' if array.dtype.kind == "f" else ""
        raise ValueError(
            f"{place}: expected one label per input, a whole number >= 0, got {array.dtype} {array.shape}{numbers}"
        )
    labels = torch.from_numpy(array.astype(np.int64))
    if negative := torch.nonzero(labels < 0).flatten().tolist():
        row = negative[0]
        raise ValueError(
            f"{place}: expected labels from 0, got {array[row]} in row {row} (counted from 0), the first of "
            f"{len(negative)}; remove or repair these rows"
        )
    return labels


def labelled(labels: Tensor, predicts: str) -> Tensor:
    """Which of several labels per input count, (N, ...): of tokens those that follow another one."""
    if predicts == "labels":
        return torch.ones_like(labels, dtype=torch.bool)
    counts = ~torch.isin(labels, torch.tensor(UNLABELLED[predicts], device=labels.device))
    if predicts == "tokens":
        counts[:, :1] = False
    return counts


def check_places(labels: np.ndarray, columns: int, predicts: str) -> None:
    """Raise ValueError that names a pixel or a token whose label is not a class of a model with that many logits.

    Args:
        labels: (N, h, w) of pixels, or (N, T) of tokens; whole numbers.
        columns: How many logits each prediction has; one logit says yes or no.
        predicts: "pixels", "tokens" or "tags".
    """
    classes, values = max(columns, 2), labels.astype(np.int64)
    some = [one for one in UNLABELLED[predicts] if not 0 <= one < classes]
    wrong = np.argwhere(((values < 0) | (values >= classes)) & ~np.isin(values, some))
    if predicts == "pixels" and look_like_masks(values, columns):
        raise ValueError(MASKS)
    if not len(wrong):
        return
    words = ("image", "row", "column") if predicts == "pixels" else ("text", "place")
    place = ", ".join(f"{word} {number}" for word, number in zip(words, wrong[0], strict=True))
    logits = f"there are {columns} logits" if columns > 1 else "there is one logit"
    raise ValueError(
        f"expected labels from 0 to {classes - 1}, as {logits}, or {' or '.join(map(str, some))} for "
        f"{'pixels' if predicts == 'pixels' else 'tokens'} that do not count; got {values[tuple(wrong[0])]} in {place} "
        f"(counted from 0), the first of {len(wrong)} such labels"
    )


def check_file_places(dataset: str, columns: int, predicts: str) -> None:
    """Raise ValueError as `check_places` does, with the part of the file that the labels are in."""
    with Archive(Path(dataset)) as file:
        for name in (name for name in PARTS if name in file.files):
            try:
                check_places(file[name], columns, predicts)
            except ValueError as error:
                raise ValueError(f"{dataset}, {name}: {error}") from None


def check_file_labels(dataset: str, columns: int) -> None:
    """Raise ValueError that names a row of the file whose label is not a class of a model with that many logits."""
    if not dataset.endswith(".npz"):
        return
    check = partial(check_classes, columns=columns) if columns > 1 else check_binary
    with Archive(Path(dataset)) as file:
        for name in (name for name in PARTS if name in file.files):
            try:
                check(file[name])
            except ValueError as error:
                raise ValueError(f"{dataset}, {name}: {error}") from None
