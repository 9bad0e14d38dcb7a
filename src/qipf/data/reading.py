"""Open an `.npz` file, an `.npy` file or a folder of images, and read inputs and labels batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.errors import Problem
from qipf.data.batches import MASK, InputSpec, Source
from qipf.data.images import image_mode, list_images, read_images
from qipf.data.npz import Archive, open_npy, read_arrays

NAMES = {
    "inputs": ("inputs", "x", "X", "images", "data"),
    "labels": ("labels", "y", "Y", "targets", "target", "label"),
    "logits": ("logits",),
    "features": ("features",),
}
"""The accepted names of the arrays in an `.npz` file, keyed by what the arrays contain."""
KNOWN = {name for names in NAMES.values() for name in names}
INPUT = "input "
"""The prefix of the keys of inputs in `Data.arrays` if the model has several inputs."""


@dataclass(frozen=True)
class Data:
    """Arrays in memory or on disk, or image files, with labels if available."""

    arrays: dict[str, np.ndarray]
    """The available inputs, labels, logits and features, with one row per example."""
    files: tuple[Path, ...] = ()
    classes: tuple[str, ...] = ()
    mode: str = ""
    """The mode in which images are decoded, "L" or "RGB"; empty for the mode of the first image."""
    named: dict[str, np.ndarray] = field(default_factory=dict)
    """The arrays of an `.npz` file except labels, keyed by their names in the file, for models with several inputs."""
    numbers: np.ndarray | None = None
    """The index of each example in the original data; None if all examples are present."""

    def __len__(self) -> int:
        return len(self.files) or len(next(iter(self.arrays.values() or self.named.values())))

    @property
    def has_inputs(self) -> bool:
        """True if there are inputs for a model."""
        return bool(self.files or self.inputs or ("logits" not in self.arrays and self.named))

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The input arrays, keyed as in `arrays`."""
        return {key: array for key, array in self.arrays.items() if key == "inputs" or key.startswith(INPUT)}

    @property
    def labels(self) -> np.ndarray | None:
        """The labels, if any."""
        return self.arrays.get("labels")

    def sample(self, size: int, seed: int = 0) -> Data:
        """Return at most `size` examples, drawn at random, in their original order."""
        if size >= len(self):
            return self
        return self.take(np.sort(np.random.default_rng(seed).choice(len(self), size, replace=False)))

    def take(self, rows: np.ndarray) -> Data:
        """Return the given rows; arrays are read into memory, but images are not decoded."""
        files = tuple(self.files[row] for row in rows) if self.files else ()
        mode = self.mode or (image_mode(self.files[0]) if self.files else "")
        arrays = {key: value[rows] for key, value in self.arrays.items()}
        numbers = rows if self.numbers is None else self.numbers[rows]
        return replace(self, arrays=arrays, files=files, named={}, numbers=numbers, mode=mode)

    def read(self, rows: slice | np.ndarray) -> dict[str, np.ndarray]:
        """Read the given rows of all arrays into memory, and decode the corresponding images."""
        part = {key: np.asarray(value[rows]) for key, value in self.arrays.items()}
        if self.files:
            files = tuple(self.files[row] for row in np.arange(len(self))[rows])
            part["inputs"] = read_images(files, self.mode or image_mode(self.files[0]))
        return part

    def images(self, rows: Sequence[int]) -> np.ndarray:
        """Return the images in the given rows: the first four-dimensional input, or else the first."""
        arrays = self.read(np.asarray(rows))
        inputs = [array for key, array in arrays.items() if key == "inputs" or key.startswith(INPUT)]
        return next((array for array in inputs if array.ndim == 4), inputs[0])

    def bound(self, inputs: Sequence[InputSpec]) -> Data:
        """Return the data with the inputs that a model takes, matched by name to the arrays in an `.npz` file.

        An array named `inputs` is used for the first input that matches no array. An `attention_mask` is always kept.
        """
        if not self.has_inputs:
            return replace(self, named={})
        names = [one.name for one in inputs]
        others = {name: a for name, a in self.named.items() if name in (MASK, *names) and name not in KNOWN}
        alone = bool(self.files) or "inputs" in self.arrays
        if alone and not others:
            return replace(self, named={})
        if self.files:
            hint = "pass an .npz file with one array per input"
            raise Problem("data", "a folder of images has only one input", hint=hint)
        first = {next((name for name in names if name not in others), "inputs"): self.arrays["inputs"]} if alone else {}
        declared = {one.name: self.named[one.name] for one in inputs if not alone and one.name in self.named}
        chosen = {**first, **declared, **others}
        missing = [one.name for one in inputs if one.dtype is not None and one.name not in chosen]
        if missing or not set(chosen) - {MASK}:
            raise Problem(
                "data", f"the file holds {', '.join((*self.arrays, *self.named)) or 'nothing'}, but the model takes "
                f"{', '.join(map(str, inputs)) or 'inputs without names'}",
                hint=f"provide {listed('inputs')}, or one array for each input, named after it",
            )  # fmt: skip
        arrays = {key: array for key, array in self.arrays.items() if key == "labels"}
        arrays |= {INPUT + name: array for name, array in chosen.items()}
        lengths = {key.removeprefix(INPUT): len(array) for key, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise Problem("data", str(lengths), expected="arrays with the same number of rows")
        for name, array in chosen.items():
            check_numbers(name, array)
        return Data(arrays, classes=self.classes, numbers=self.numbers)


class FileSource(Source):
    """An iterable of batches read from a `Data` object and converted to the types that a model takes.

    Values of type uint8 are scaled to [0, 1] unless they are token ids or the model takes integers. The channels of
    decoded images come first unless the model takes them last.

    Args:
        data: The result of `Data.bound`.
        inputs: The inputs of the model.
        batch_size: Rows per batch.
        ids: Treat two-dimensional inputs of type uint8 as token ids.
    """

    def __init__(self, data: Data, inputs: Sequence[InputSpec], batch_size: int, *, ids: bool = False) -> None:
        if data.files and not data.mode:
            data = replace(data, mode=image_mode(data.files[0]))
        self.data, self._specs, self._size, self._ids = data, inputs, batch_size, ids
        self._numbers, self.indexed, self.rows = data.numbers, True, len(data)
        self.count = -(-self.rows // batch_size)

    def _read(self, rows: slice | np.ndarray) -> Any:
        arrays = self.data.read(rows)
        if "inputs" in arrays:
            spec = self._specs[0] if len(self._specs) == 1 else None
            inputs: Any = self._taken(arrays["inputs"], spec, True)
        else:
            specs = {one.name: one for one in self._specs}
            named = {key.removeprefix(INPUT): values for key, values in arrays.items() if key.startswith(INPUT)}
            inputs = {name: self._taken(values, specs.get(name), False) for name, values in named.items()}
        return inputs, arrays.get("labels")

    def _taken(self, values: np.ndarray, spec: InputSpec | None, alone: bool) -> np.ndarray:
        """Convert one input to the layout, type and value range that the model takes."""
        dtype, shape = (None, ()) if spec is None else (spec.dtype, spec.shape)
        if self.data.files and len(shape) == 4 and shape[3] == values.shape[1] != shape[1]:
            values = values.transpose(0, 2, 3, 1)
        if values.dtype == np.uint8 and (dtype.kind == "f" if dtype is not None else values.ndim == 4 or alone):
            if dtype is None and self._ids and values.ndim == 2:
                return values.astype(np.int64)
            wide = np.dtype(np.float32) if dtype is None else dtype
            return values.astype(wide) / wide.type(255)
        if dtype is not None:
            return values
        small = values.ndim == 2 and values.dtype.kind in "iu" and values.dtype not in (np.int32, np.int64)
        if small:  # such values can only be token ids, but an embedding does not accept their type
            return values.astype(np.int64)
        return values.astype(np.float32) if values.dtype == np.float64 else values


def open_data(path: Path, labels: Path | None = None, *, named: bool = False, several: bool = False) -> Data:
    """Open an `.npz` file, an `.npy` file or a folder of images.

    Args:
        path: The file or folder.
        labels: An `.npy` file of labels, if the data has none.
        named: Accept inputs of any name in an `.npz` file, for a model with several inputs.
        several: Accept several labels per example, such as one per pixel.
    """
    if path.is_dir():
        files, classes, names = list_images(path)
        data = Data({} if classes is None else {"labels": classes}, files, names)
    elif ":" in path.name or path.suffix in (".pt2", ".onnx"):
        raise Problem("data", f"{path} is a model", hint="pass the model before the data")
    elif not path.is_file():
        raise Problem("data", f"there is no file or folder {path}")
    elif path.suffix == ".npz":
        data = _npz(path, named)
    elif path.suffix == ".npy":
        data = Data({"inputs": open_npy(path)})
    else:
        raise Problem("data", str(path), expected="an .npz file, an .npy file or a folder", hint=_way_out(path))
    if labels is not None:
        if "labels" in data.arrays:
            raise Problem("data", f"{path} already has labels", hint=f"omit {labels}")
        data = replace(data, arrays={**data.arrays, "labels": open_npy(labels)})
    lengths = {key: len(value) for key, value in data.arrays.items()} | (
        {"files": len(data.files)} if data.files else {}
    )
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{count} ({key})" for key, count in lengths.items())
        raise Problem("data", f"{path}: expected equal numbers of rows, got {counts}", hint="add the missing rows")
    if len(data) == 0:
        raise Problem("data", f"{path} contains no examples")
    for name, array in data.arrays.items():
        check_numbers(name, array)
    found = data.arrays.get("labels")
    if found is not None and found.ndim != 1 and not several:
        raise Problem(
            "data", f"labels of shape {found.shape}", expected="one label per example",
            hint="the scorer was fitted to one class per example, so pass labels of shape (N,)",
        )  # fmt: skip
    return data


def listed(part: str) -> str:
    """Return the accepted names of an array, such as "labels (or y, ...)"."""
    first, *others = NAMES[part]
    return f"{first} (or {', '.join(others)})"


def no_labels(path: Path) -> Problem:
    """Return the error for data without labels."""
    found = f" only {', '.join(Archive(path).files)}" if path.suffix == ".npz" else ""
    hint = "sort the images into class subfolders" if path.is_dir() else f"name the array {listed('labels')}"
    way = "write inputs and labels to an .npz file: numpy.savez(file, inputs=..., labels=...)"
    hint = way if path.suffix == ".npy" else hint
    return Problem("data", f"{path} has no labels{',' if found else ''}{found}", hint=hint)


HINTS = {
    "labels": "number the classes from 0, as the model does",
    "inputs": "pass token ids instead of text",
}


def check_numbers(name: str, array: np.ndarray) -> None:
    """Raise Problem unless an array holds numbers of at most 64 bits."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        hint = HINTS.get(name, "") if name != "inputs" or array.dtype.kind in "US" else ""
        found = f"values of type {array.dtype}"
        raise Problem("data", found, expected=f"numbers of at most 64 bits for {name}", hint=hint)


def _way_out(path: Path) -> str:
    """Return a hint that shows how to convert a table to an `.npz` file, or "" for other files."""
    if path.suffix not in (".csv", ".parquet"):
        return ""
    return (
        f"convert the table with: import numpy, pandas; t = pandas.read_{path.suffix[1:]}({str(path)!r}); "
        "numpy.savez('data.npz', inputs=t.drop(columns='label').to_numpy('float32'), labels=t['label'])"
    )


def _npz(path: Path, named: bool) -> Data:
    read = read_arrays(path, None if named else KNOWN)
    own = {part: next((name for name in names if name in read), "") for part, names in NAMES.items()}
    found = {part: read[name] for part, name in own.items() if name}
    others = {name: array for name, array in read.items() if named and name != own["labels"]}
    if set(found) <= {"labels"} and not others:
        raise Problem(
            "data",
            f"{path} contains {', '.join(Archive(path).files) or 'nothing'}",
            hint=f"name its arrays {listed('inputs')} or logits, and {listed('labels')}",
        )
    for part, array in found.items():
        if array.ndim == 0:
            raise Problem("data", f"{part} in {path} is a single number", hint="provide one row per example")
    return Data(found, named={name: array for name, array in others.items() if array.ndim})
