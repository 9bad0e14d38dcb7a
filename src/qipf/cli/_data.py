"""The data that the command line accepts, read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.budget import TooLargeError
from qipf._common.errors import InputError, UserError
from qipf._common.npz import load_npz
from qipf._common.optional import require
from qipf.cli._images import image_mode, list_images, read_images

NAMES = {"inputs": ("inputs", "x"), "labels": ("labels", "y"), "logits": ("logits",), "features": ("features",)}
INPUT = "input "
"""How the key of one of several inputs begins."""


@dataclass(frozen=True)
class Data:
    """Arrays (possibly still on disk) or image files, with labels if there are any."""

    arrays: dict[str, np.ndarray]
    """some of inputs, labels, logits, features, one row per example; one of several inputs has `INPUT` and its name"""
    files: tuple[Path, ...] = ()
    classes: tuple[str, ...] = ()
    mode: str = ""
    """how images are decoded; empty for that of the first one"""
    named: dict[str, np.ndarray] = field(default_factory=dict)
    """every array of an .npz by its own name, from which a model with several inputs takes them"""
    numbers: np.ndarray | None = None
    """the row of every example in its file, where these are only some of the rows"""
    ids: tuple[str, ...] = ()
    """the arrays of token ids in a small type, which a model takes as whole numbers of 64 bits"""

    def __len__(self) -> int:
        return len(self.files) or len(next(iter(self.arrays.values() or self.named.values())))

    @property
    def has_inputs(self) -> bool:
        several = "logits" not in self.arrays and (self.named or any(key.startswith(INPUT) for key in self.arrays))
        return bool(self.files or "inputs" in self.arrays or several)

    def sample(self, size: int, seed: int = 0) -> Data:
        """At most `size` examples, drawn at random and in their order."""
        if size >= len(self):
            return self
        return self.take(np.sort(np.random.default_rng(seed).choice(len(self), size, replace=False)))

    def take(self, rows: np.ndarray) -> Data:
        """These rows, read into memory except for images."""
        files = tuple(self.files[row] for row in rows) if self.files else ()
        arrays = {key: value[rows] for key, value in self.arrays.items()}
        numbers = rows if self.numbers is None else self.numbers[rows]
        return replace(self, arrays=arrays, files=files, named={}, numbers=numbers)

    def batches(self, size: int) -> Iterator[DataBatch]:
        """Consecutive batches; only one is in memory at a time."""
        mode = self.mode
        for start in range(0, len(self), size):
            rows = slice(start, min(start + size, len(self)))
            part = {key: np.asarray(value[rows]) for key, value in self.arrays.items()}
            part |= {key: part[key].astype(np.int64) for key in self.ids}
            files = self.files[rows]
            if files:
                mode = mode or image_mode(files[0])
                part["inputs"] = read_images(files, mode)
            yield DataBatch(start, part, files)


@dataclass(frozen=True)
class DataBatch:
    """Some consecutive rows of the data."""

    start: int
    arrays: dict[str, np.ndarray]
    files: tuple[Path, ...]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def tensors(self) -> Any:
        """Inputs, or inputs and labels, as torch tensors: uint8 as [0, 1], doubles as floats, the rest as it is.

        Several inputs are a dict by their names, and only images among them are scaled.
        """
        torch = require("torch", extra="torch")
        named = {key.removeprefix(INPUT): value for key, value in self.arrays.items() if key.startswith(INPUT)}
        inputs = {name: _tensor(value, value.ndim == 4) for name, value in named.items()}
        given = inputs or _tensor(self.arrays["inputs"], True)
        labels = self.arrays.get("labels")
        return given if labels is None else (given, torch.from_numpy(np.array(labels)))

    def columns(self, examples: np.ndarray | None = None) -> dict[str, Any]:
        """The first columns of a table: the row in the data, and the file, of these examples of the batch or of all."""
        chosen = np.arange(len(self)) if examples is None else examples
        columns: dict[str, Any] = {"row": chosen + self.start}
        if self.files:
            columns["file"] = [str(self.files[example]) for example in chosen]
        return columns

    @property
    def images(self) -> np.ndarray:
        """The images of a model whose pixels are classified; of several inputs, the first that has four dimensions."""
        inputs = [array for key, array in self.arrays.items() if key == "inputs" or key.startswith(INPUT)]
        return next((array for array in inputs if array.ndim == 4), inputs[0])


def _tensor(values: np.ndarray, scaled: bool) -> Any:
    torch = require("torch", extra="torch")
    if values.dtype == np.uint8 and scaled:
        values = values.astype(np.float32)
        values /= np.float32(255)
    elif values.dtype == np.float64:  # which no network expects, and some devices do not have
        values = values.astype(np.float32)
    return torch.from_numpy(np.require(values, requirements=["W", "C"]))


def open_data(path: Path, labels: Path | None = None, *, named: bool = False, several: bool = False) -> Data:
    """Open an `.npz`, an `.npy` or a folder of images. Pickled objects are refused.

    Args:
        path: The file or folder.
        labels: An `.npy` with labels, where the data has none.
        named: Whether an `.npz` may hold inputs under names of their own, as a model with several inputs takes them.
        several: Whether an example may have several labels, as images whose pixels are classified do.

    Raises:
        InputError: there is no such file, it cannot be read, or its parts do not fit together.
        UserError: it is of another kind, or has labels although others were given.
    """
    if path.is_dir():
        files, classes, names = list_images(path)
        data = Data({} if classes is None else {"labels": classes}, files, names)
    elif not path.is_file():
        hint = "; MODEL comes before DATA" if ":" in path.name or path.suffix in (".pt2", ".onnx") else ""
        raise InputError(f"DATA: there is no file or folder {path}{hint}")
    elif path.suffix == ".npz":
        data = _npz(path, named)
    elif path.suffix == ".npy":
        data = Data({"inputs": _npy(path)})
    else:
        raise UserError(f"DATA: expected an .npz, an .npy or a folder of images, got {path}{_way_out(path)}")
    if labels is not None:
        if "labels" in data.arrays:
            raise UserError(f"--labels: {path} has labels already")
        data = replace(data, arrays={**data.arrays, "labels": _npy(labels)})
    lengths = {key: len(value) for key, value in data.arrays.items()} | (
        {"files": len(data.files)} if data.files else {}
    )
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{count} {key}" for key, count in lengths.items())
        raise InputError(f"DATA: the parts of {path} differ in length ({counts}); give one of each per example")
    if len(data) == 0:
        raise InputError(f"DATA: {path} holds no examples")
    for name, array in data.arrays.items():
        way = {"labels": "; give the number of each class, counted from 0 as the model counts them"}.get(name, "")
        if name == "inputs" and array.dtype.kind in "US":
            way = "; give the token ids that the model takes instead of texts"
        check_numbers(name, array, way)
    found = data.arrays.get("labels")
    if found is not None and found.ndim != 1 and not several:
        raise InputError(
            f"DATA: expected one label per example, got {found.dtype} of shape {found.shape}; a scorer for tokens, "
            "pixels, several labels or numbers is fitted to data with such labels (qipf fit)"
        )
    return data


def check_numbers(name: str, array: np.ndarray, way: str = "") -> None:
    """Raise InputError unless an array has numbers that a model can take; `way` says what to do."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InputError(f"DATA: {name}: expected numbers of at most 64 bits, got values of type {array.dtype}{way}")


def _way_out(path: Path) -> str:
    """How to bring a table into a file that is read."""
    if path.suffix not in (".csv", ".parquet"):
        return ""
    return (
        f"; a table becomes one by: import numpy, pandas; t = pandas.read_{path.suffix[1:]}({str(path)!r}); "
        "numpy.savez('data.npz', inputs=t.drop(columns='label').to_numpy('float32'), labels=t['label'])"
    )


def _npy(path: Path) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, MemoryError) as error:
        raise InputError(f"{path} cannot be read ({error})") from None
    except Exception as error:  # a damaged header: EOFError, SyntaxError, tokenize.TokenError, ...
        raise InputError(f"{path} {_why(error)}") from None
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise InputError(f"{path}: expected an array with one row per example")
    return array


def _npz(path: Path, named: bool) -> Data:
    try:
        with load_npz(path) as file:
            held = file.files
            own = {part: next((name for name in names if name in held), "") for part, names in NAMES.items()}
            others = [name for name in held if named and name != own["labels"]]
            read = {name: file[name] for name in {*own.values(), *others} - {""}}
    except TooLargeError as error:
        raise InputError(f"DATA: {error}") from None
    except ValueError as error:
        raise InputError(f"DATA: {path} {_why(error)}") from None
    found = {part: read[name] for part, name in own.items() if name}
    if set(found) <= {"labels"} and not others:
        raise InputError(
            f"DATA: {path} holds {', '.join(held) or 'nothing'}; expected inputs (or x), or logits, and perhaps "
            "features and labels (or y)"
        )
    for part, array in found.items():
        if array.ndim == 0:
            raise InputError(f"DATA: {part} in {path} is a single number, expected one row per example")
    return Data(found, named={name: read[name] for name in others if read[name].ndim})


def _why(error: Exception) -> str:
    """What is the matter with a file of arrays, by the error that reading it gave."""
    if "pickle" in str(error) or "Python objects" in str(error):  # NumPy has no error of its own for these
        return f"cannot be read without running code ({error})"
    return f"is damaged, or not what its name says ({error}); copy it again"
