"""Open inputs and labels in an `.npz`, an `.npy` or a folder of images, and read them batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.errors import Problem
from qipf._common.optional import require
from qipf.data.images import image_mode, list_images, read_images
from qipf.data.npz import Archive, open_npy, read_arrays

NAMES = {"inputs": ("inputs", "x"), "labels": ("labels", "y"), "logits": ("logits",), "features": ("features",)}
INPUT = "input "
"""How the key of one of several inputs begins."""


@dataclass(frozen=True)
class Data:
    """Arrays (possibly still on disk) or image files, with labels if there are any."""

    arrays: dict[str, np.ndarray]
    """Some of inputs, labels, logits, features, one row per example; one of several inputs has `INPUT` and its name."""
    files: tuple[Path, ...] = ()
    classes: tuple[str, ...] = ()
    mode: str = ""
    """How images are decoded; empty for the mode of the first one."""
    named: dict[str, np.ndarray] = field(default_factory=dict)
    """Every array of an .npz by its own name, from which a model with several inputs takes them."""
    numbers: np.ndarray | None = None
    """The row of every example in its file, if these are only some of the rows."""
    ids: tuple[str, ...] = ()
    """The arrays of token ids in a small type, which a model takes as integers of 64 bits."""

    def __len__(self) -> int:
        return len(self.files) or len(next(iter(self.arrays.values() or self.named.values())))

    @property
    def has_inputs(self) -> bool:
        several = "logits" not in self.arrays and (self.named or any(key.startswith(INPUT) for key in self.arrays))
        return bool(self.files or "inputs" in self.arrays or several)

    def sample(self, size: int, seed: int = 0) -> Data:
        """Draw at most `size` examples at random; they keep their order."""
        if size >= len(self):
            return self
        return self.take(np.sort(np.random.default_rng(seed).choice(len(self), size, replace=False)))

    def take(self, rows: np.ndarray) -> Data:
        """Return some rows, read into memory except for images."""
        files = tuple(self.files[row] for row in rows) if self.files else ()
        arrays = {key: value[rows] for key, value in self.arrays.items()}
        numbers = rows if self.numbers is None else self.numbers[rows]
        return replace(self, arrays=arrays, files=files, named={}, numbers=numbers)

    def batches(self, size: int) -> Iterator[DataBatch]:
        """Yield consecutive batches, one of which is in memory at a time."""
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
        """Return inputs, or inputs and labels, as torch tensors: uint8 as [0, 1], doubles as floats.

        Several inputs are a dict by their names, and only images among them are scaled.
        """
        torch = require("torch", extra="torch")
        named = {key.removeprefix(INPUT): value for key, value in self.arrays.items() if key.startswith(INPUT)}
        inputs = {name: _tensor(value, value.ndim == 4) for name, value in named.items()}
        given = inputs or _tensor(self.arrays["inputs"], True)
        labels = self.arrays.get("labels")
        return given if labels is None else (given, torch.from_numpy(np.array(labels)))

    def columns(self, examples: np.ndarray | None = None) -> dict[str, Any]:
        """Return the first columns of a table, row and file, of some examples of the batch or of all."""
        chosen = np.arange(len(self)) if examples is None else examples
        columns: dict[str, Any] = {"row": chosen + self.start}
        if self.files:
            columns["file"] = [str(self.files[example]) for example in chosen]
        return columns

    @property
    def images(self) -> np.ndarray:
        """Return the images; of several inputs, the first that has four dimensions."""
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
        labels: An `.npy` with labels, if the data has none.
        named: Whether an `.npz` may hold inputs under names of their own, as a model with several inputs takes them.
        several: Whether an example may have several labels, as images whose pixels are classified do.

    Raises:
        Problem: There is no such file, it cannot be read, or its parts do not fit together.
    """
    if path.is_dir():
        files, classes, names = list_images(path)
        data = Data({} if classes is None else {"labels": classes}, files, names)
    elif not path.is_file():
        first = "give the model before the data" if ":" in path.name or path.suffix in (".pt2", ".onnx") else ""
        raise Problem("data", f"there is no file or folder {path}", hint=first)
    elif path.suffix == ".npz":
        data = _npz(path, named)
    elif path.suffix == ".npy":
        data = Data({"inputs": open_npy(path)})
    else:
        raise Problem("data", str(path), expected="an .npz, an .npy or a folder of images", hint=_way_out(path))
    if labels is not None:
        if "labels" in data.arrays:
            raise Problem("data", f"{path} has labels already", hint=f"leave {labels} out")
        data = replace(data, arrays={**data.arrays, "labels": open_npy(labels)})
    lengths = {key: len(value) for key, value in data.arrays.items()} | (
        {"files": len(data.files)} if data.files else {}
    )
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{count} {key}" for key, count in lengths.items())
        raise Problem("data", f"the parts of {path} differ in length ({counts})", hint="give one of each per example")
    if len(data) == 0:
        raise Problem("data", f"{path} holds no examples")
    for name, array in data.arrays.items():
        check_numbers(name, array)
    found = data.arrays.get("labels")
    if found is not None and found.ndim != 1 and not several:
        raise Problem(
            "data", f"labels of shape {found.shape}", expected="one label per example",
            hint="only a scorer for tokens, pixels, several labels or numbers reads such labels",
        )  # fmt: skip
    return data


HINTS = {
    "labels": "give the number of each class, counted from 0 as the model counts them",
    "inputs": "give the token ids that the model takes instead of texts",
}


def check_numbers(name: str, array: np.ndarray) -> None:
    """Raise Problem unless an array holds numbers that a model can take."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        hint = HINTS.get(name, "") if name != "inputs" or array.dtype.kind in "US" else ""
        found = f"values of type {array.dtype}"
        raise Problem("data", found, expected=f"{name} that are numbers of at most 64 bits", hint=hint)


def _way_out(path: Path) -> str:
    """Show how to bring a table into a file that is read."""
    if path.suffix not in (".csv", ".parquet"):
        return ""
    return (
        f"a table becomes one by: import numpy, pandas; t = pandas.read_{path.suffix[1:]}({str(path)!r}); "
        "numpy.savez('data.npz', inputs=t.drop(columns='label').to_numpy('float32'), labels=t['label'])"
    )


def _npz(path: Path, named: bool) -> Data:
    known = {name for names in NAMES.values() for name in names}
    read = read_arrays(path, None if named else known)
    own = {part: next((name for name in names if name in read), "") for part, names in NAMES.items()}
    found = {part: read[name] for part, name in own.items() if name}
    others = {name: array for name, array in read.items() if named and name != own["labels"]}
    if set(found) <= {"labels"} and not others:
        raise Problem(
            "data",
            f"{path} holds {', '.join(Archive(path).files) or 'nothing'}",
            hint="expected inputs (or x), or logits, and perhaps features and labels (or y)",
        )
    for part, array in found.items():
        if array.ndim == 0:
            raise Problem("data", f"{part} in {path} is a single number", hint="give one row per example")
    return Data(found, named={name: array for name, array in others.items() if array.ndim})
