"""Open inputs and labels in an `.npz`, an `.npy` or a folder of images, and read them batch by batch."""

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
"""Names that arrays of an .npz file may have, by what they hold."""
KNOWN = {name for names in NAMES.values() for name in names}
INPUT = "input "
"""The prefix of the keys of several inputs."""


@dataclass(frozen=True)
class Data:
    """Arrays (possibly still on disk) or image files, with labels if there are any."""

    arrays: dict[str, np.ndarray]
    """Some of inputs, labels, logits, features, one row per example; one of several inputs has `INPUT` and its name."""
    files: tuple[Path, ...] = ()
    classes: tuple[str, ...] = ()
    mode: str = ""
    """The mode in which images are decoded; empty for the mode of the first one."""
    named: dict[str, np.ndarray] = field(default_factory=dict)
    """Every array of an .npz file by its own name, for models with several inputs."""
    numbers: np.ndarray | None = None
    """The row of every example in its file, if these are a part of the rows."""

    def __len__(self) -> int:
        return len(self.files) or len(next(iter(self.arrays.values() or self.named.values())))

    @property
    def has_inputs(self) -> bool:
        """True if there are inputs for a model."""
        return bool(self.files or self.inputs or ("logits" not in self.arrays and self.named))

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The arrays of inputs, by their keys in `arrays`."""
        return {key: array for key, array in self.arrays.items() if key == "inputs" or key.startswith(INPUT)}

    @property
    def labels(self) -> np.ndarray | None:
        """The labels, if there are any."""
        return self.arrays.get("labels")

    def sample(self, size: int, seed: int = 0) -> Data:
        """Draw at most `size` examples at random; they keep their order."""
        if size >= len(self):
            return self
        return self.take(np.sort(np.random.default_rng(seed).choice(len(self), size, replace=False)))

    def take(self, rows: np.ndarray) -> Data:
        """Return some rows, read into memory except for images."""
        files = tuple(self.files[row] for row in rows) if self.files else ()
        mode = self.mode or (image_mode(self.files[0]) if self.files else "")
        arrays = {key: value[rows] for key, value in self.arrays.items()}
        numbers = rows if self.numbers is None else self.numbers[rows]
        return replace(self, arrays=arrays, files=files, named={}, numbers=numbers, mode=mode)

    def read(self, rows: slice | np.ndarray) -> dict[str, np.ndarray]:
        """Return the arrays of some rows, in memory and with decoded images."""
        part = {key: np.asarray(value[rows]) for key, value in self.arrays.items()}
        if self.files:
            files = tuple(self.files[row] for row in np.arange(len(self))[rows])
            part["inputs"] = read_images(files, self.mode or image_mode(self.files[0]))
        return part

    def images(self, rows: Sequence[int]) -> np.ndarray:
        """Return some images: the first input with four dimensions."""
        arrays = self.read(np.asarray(rows))
        inputs = [array for key, array in arrays.items() if key == "inputs" or key.startswith(INPUT)]
        return next((array for array in inputs if array.ndim == 4), inputs[0])

    def bound(self, inputs: Sequence[InputSpec]) -> Data:
        """Return the data with the inputs that a model takes, found by their names in an .npz.

        A model with one input takes `inputs` (or another name in `NAMES`), whatever its own input is called. Arrays
        with the names of other inputs are added, and always an `attention_mask`.
        """
        if not self.has_inputs:
            return replace(self, named={})
        names = [one.name for one in inputs]
        others = {name: a for name, a in self.named.items() if name in (MASK, *names) and name not in KNOWN}
        alone = bool(self.files) or "inputs" in self.arrays
        if alone and not others:
            return replace(self, named={})
        if self.files:
            raise Problem("data", "a folder of images has one input", hint="give an .npz with several")
        first = {next((name for name in names if name not in others), "inputs"): self.arrays["inputs"]} if alone else {}
        declared = {one.name: self.named[one.name] for one in inputs if not alone and one.name in self.named}
        chosen = {**first, **declared, **others}
        missing = [one.name for one in inputs if one.dtype is not None and one.name not in chosen]
        if missing or not set(chosen) - {MASK}:
            raise Problem(
                "data", f"it holds {', '.join((*self.arrays, *self.named)) or 'nothing'}, and the model takes "
                f"{', '.join(map(str, inputs)) or 'inputs without names'}",
                hint=f"give {listed('inputs')}, or an array with the name of each input",
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
    """Opened data as batches in the types that a model takes.

    Bytes are scaled to [0, 1] unless the model declares integers or they are token ids. The channels of images come
    first, or last if only that fits the model.

    Args:
        data: What `Data.bound` returned.
        inputs: The inputs of the model.
        batch_size: Rows per batch.
        ids: True if rows of bytes are token ids instead of the numbers of a table.
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
        """Return one input in the layout and the range of values that the model takes."""
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
        if small:  # which only ids can be, and an embedding takes no other type
            return values.astype(np.int64)
        return values.astype(np.float32) if values.dtype == np.float64 else values


def open_data(path: Path, labels: Path | None = None, *, named: bool = False, several: bool = False) -> Data:
    """Open an `.npz`, an `.npy` or a folder of images. Pickled objects are refused.

    Args:
        path: The file or folder.
        labels: An `.npy` with labels, if the data has none.
        named: Accept inputs under other names in an `.npz`, for a model with several inputs.
        several: Accept several labels per example, as for pixels.
    """
    if path.is_dir():
        files, classes, names = list_images(path)
        data = Data({} if classes is None else {"labels": classes}, files, names)
    elif ":" in path.name or path.suffix in (".pt2", ".onnx"):
        raise Problem("data", f"{path} is a model", hint="give the model before the data")
    elif not path.is_file():
        raise Problem("data", f"there is no file or folder {path}")
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
            hint="the scorer was fitted to one class per example",
        )  # fmt: skip
    return data


def listed(part: str) -> str:
    """Return the accepted names of an array, such as "labels (or y, ...)"."""
    first, *others = NAMES[part]
    return f"{first} (or {', '.join(others)})"


def no_labels(path: Path) -> Problem:
    """Return the problem of data without labels, with the accepted and the found names of arrays."""
    found = f" only {', '.join(Archive(path).files)}" if path.suffix == ".npz" else ""
    hint = "labels are the names of class subfolders" if path.is_dir() else f"name them {listed('labels')}"
    return Problem("data", f"{path} has no labels{',' if found else ''}{found}", hint=hint)


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
    read = read_arrays(path, None if named else KNOWN)
    own = {part: next((name for name in names if name in read), "") for part, names in NAMES.items()}
    found = {part: read[name] for part, name in own.items() if name}
    others = {name: array for name, array in read.items() if named and name != own["labels"]}
    if set(found) <= {"labels"} and not others:
        raise Problem(
            "data",
            f"{path} holds {', '.join(Archive(path).files) or 'nothing'}",
            hint=f"name the arrays {listed('inputs')}, or logits, and {listed('labels')}",
        )
    for part, array in found.items():
        if array.ndim == 0:
            raise Problem("data", f"{part} in {path} is a single number", hint="give one row per example")
    return Data(found, named={name: array for name, array in others.items() if array.ndim})
