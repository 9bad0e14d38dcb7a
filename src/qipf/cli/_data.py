"""The data that the command line accepts, read batch by batch."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.errors import InputError, UserError
from qipf._common.npz import load_npz
from qipf._common.optional import require

IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
NAMES = {"inputs": ("inputs", "x"), "labels": ("labels", "y"), "logits": ("logits",), "features": ("features",)}


@dataclass(frozen=True)
class Data:
    """Arrays (possibly still on disk) or image files, with labels if there are any."""

    arrays: dict[str, np.ndarray]
    """some of inputs, labels, logits, features, one row an example"""
    files: tuple[Path, ...] = ()
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.files) or len(next(iter(self.arrays.values())))

    @property
    def has_inputs(self) -> bool:
        return bool(self.files) or "inputs" in self.arrays

    def sample(self, size: int, seed: int = 0) -> Data:
        """At most `size` examples, drawn at random and in their order."""
        if size >= len(self):
            return self
        rows = np.sort(np.random.default_rng(seed).choice(len(self), size, replace=False))
        files = tuple(self.files[row] for row in rows) if self.files else ()
        return Data({key: value[rows] for key, value in self.arrays.items()}, files, self.classes)

    def batches(self, size: int) -> Iterator[Batch]:
        """Consecutive batches; only one is in memory at a time."""
        mode = None
        for start in range(0, len(self), size):
            rows = slice(start, min(start + size, len(self)))
            part = {key: np.asarray(value[rows]) for key, value in self.arrays.items()}
            files = self.files[rows]
            if files:
                mode = mode or _image_mode(files[0])
                part["inputs"] = _images(files, mode)
            yield Batch(start, part, files)


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of the data."""

    start: int
    arrays: dict[str, np.ndarray]
    files: tuple[Path, ...]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def tensors(self) -> Any:
        """Inputs, or inputs and labels, as torch tensors: uint8 as [0, 1], doubles as floats, the rest as it is."""
        torch = require("torch", extra="torch")
        inputs = self.arrays["inputs"]
        if inputs.dtype == np.uint8:
            inputs = inputs.astype(np.float32) / np.float32(255)
        elif inputs.dtype == np.float64:
            inputs = inputs.astype(np.float32)
        tensor = torch.from_numpy(np.array(inputs))
        labels = self.arrays.get("labels")
        return tensor if labels is None else (tensor, torch.from_numpy(np.array(labels)))


def open_data(path: Path, labels: Path | None = None) -> Data:
    """Open an `.npz`, an `.npy` or a folder of images. Pickled objects are refused.

    Raises:
        InputError: there is no such file, it cannot be read, or its parts do not fit together.
        UserError: it is of another kind, or has labels where others were given.
    """
    if path.is_dir():
        data = _folder(path)
    elif not path.is_file():
        raise InputError(f"DATA: there is no file or folder {path}")
    elif path.suffix == ".npz":
        data = Data(_npz(path))
    elif path.suffix == ".npy":
        data = Data({"inputs": _npy(path)})
    else:
        raise UserError(f"DATA: expected an .npz, an .npy or a folder of images, got {path}")
    if labels is not None:
        if "labels" in data.arrays:
            raise UserError(f"--labels: {path} has labels already")
        data = Data({**data.arrays, "labels": _npy(labels)}, data.files)
    lengths = {key: len(value) for key, value in data.arrays.items()} | (
        {"files": len(data.files)} if data.files else {}
    )
    if len(set(lengths.values())) > 1:
        raise InputError(f"DATA: the parts of {path} differ in length: {lengths}")
    if len(data) == 0:
        raise InputError(f"DATA: {path} holds no examples")
    kinds = data.arrays["labels"] if "labels" in data.arrays else np.zeros(0, np.int64)
    if kinds.ndim != 1 or kinds.dtype.kind not in "biuf":
        raise InputError(f"DATA: labels must be one number an example, got shape {kinds.shape}, dtype {kinds.dtype}")
    return data


def _npy(path: Path) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} {_why(error, ValueError, EOFError)}") from None
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise InputError(f"{path}: expected an array with one row an example")
    return array


def _npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with load_npz(path) as file:
            found = {}
            for part, names in NAMES.items():
                for name in names:
                    if name in file.files:
                        found[part] = file[name]
                        break
            held = file.files
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"DATA: {path} {_why(error, EOFError, zipfile.BadZipFile, zlib.error)}") from None
    if not found or set(found) == {"labels"}:
        raise InputError(
            f"DATA: {path} holds {', '.join(held) or 'nothing'}; expected inputs (or x), or logits, and perhaps "
            "features and labels (or y)"
        )
    for part, array in found.items():
        if array.ndim == 0:
            raise InputError(f"DATA: {part} in {path} is a single number, expected one row an example")
    return found


def _why(error: Exception, *damage: type[Exception]) -> str:
    """What is the matter with a file, by the error that reading it gave; `damage` are those of a damaged one."""
    if "pickle" in str(error) or "Python objects" in str(error):  # NumPy has no error of its own for these
        return f"cannot be read without running code ({error})"
    if isinstance(error, damage):
        return f"is damaged, or not what its name says ({error}); copy it anew"
    return f"cannot be read ({error})"


def _folder(path: Path) -> Data:
    here = sorted(file for file in path.iterdir() if file.suffix.lower() in IMAGES)
    folders = sorted(folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    by_class = [sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMAGES) for folder in folders]
    if here and any(by_class):
        raise InputError(f"DATA: {path} has images beside subfolders of images; put all of them in class subfolders")
    if here:
        return Data({}, tuple(here))
    files = tuple(file for group in by_class for file in group)
    if not files:
        raise InputError(f"DATA: {path} has no images ({', '.join(IMAGES)}), nor subfolders of them")
    labels = np.repeat(np.arange(len(folders)), [len(group) for group in by_class])
    return Data({"labels": labels}, files, tuple(folder.name for folder in folders))


def _image_mode(file: Path) -> str:
    with _open_image(file) as image:
        return "L" if image.mode in ("1", "L", "LA", "I", "I;16", "F") else "RGB"


def _images(files: tuple[Path, ...], mode: str) -> np.ndarray:
    """(N, c, h, w), uint8."""
    arrays = []
    for file in files:
        with _open_image(file) as image:
            try:
                pixels = np.asarray(image.convert(mode))
            except OSError as error:
                raise InputError(f"DATA: {file} is damaged ({error})") from None
        arrays.append(pixels[None] if mode == "L" else pixels.transpose(2, 0, 1))
        if arrays[-1].shape != arrays[0].shape:
            raise InputError(
                f"DATA: {file} is {arrays[-1].shape[1:]} pixels and {files[0]} is {arrays[0].shape[1:]}; "
                "bring all images to one size first"
            )
    return np.stack(arrays)


def _open_image(file: Path) -> Any:
    pillow = require("PIL.Image", extra="bench")
    try:
        return pillow.open(file)
    except OSError as error:
        raise InputError(f"DATA: {file} cannot be read as an image ({error})") from None
