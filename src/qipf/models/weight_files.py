"""Read the arrays of weight files: safetensors, and HDF5 as Keras 2 and Keras 3 write it. Never pickle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.optional import require

_HDF5 = b"\x89HDF\r\n\x1a\n"
_NOT_WEIGHTS = {"optimizer", "optimizer_weights", "metrics", "compile_metrics"}
_CONTAINERS = ("vars", "layers", "_layer_checkpoint_dependencies")
_MOST_COMPRESSION = 100  # real weights hardly compress; a file that claims more is made to fill the memory


def read(path: Path) -> dict[str, Any]:
    """Every array in a weight file, by name.

    Raises:
        ValueError: the file is damaged, hostile or of another kind.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no weight file {path}")
    with path.open("rb") as file:
        start = file.read(9)
    if start.startswith(_HDF5):
        return _read_hdf5(path)
    if start.startswith(b"PK"):
        raise ValueError(
            f"{path} is a zip archive (a .pt, .pth or .keras file): pass a state dict from "
            "torch.load(..., weights_only=True), or the model.weights.h5 in the .keras archive"
        )
    if len(start) == 9 and start[8:] == b"{":
        return _read_safetensors(path)
    raise ValueError(f"{path} is neither a safetensors nor an HDF5 file; its first bytes are {start[:8]!r}")


def _read_safetensors(path: Path) -> dict[str, Any]:
    safetensors = require("safetensors", extra="torch")
    require("torch", extra="torch")  # reads bfloat16, which NumPy lacks
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in sorted(file.keys(), key=_natural)}
    except (safetensors.SafetensorError, OSError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged or no safetensors file: {error}") from None


def _read_hdf5(path: Path) -> dict[str, np.ndarray]:
    h5py = require("h5py", extra="bench")
    try:
        with h5py.File(path, "r") as file:
            root = _member(file, "model_weights") if "model_weights" in file else file
            keras2 = "layer_names" in root.attrs or "layer_names0" in root.attrs
            return dict(_keras2(root) if keras2 else _keras3(root, ""))
    except (OSError, KeyError, RuntimeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged or no Keras weight file: {error}") from None


def _keras2(root: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Layers in the order of the model, as the attributes of the file list them."""
    names: set[str] = set()
    for layer in _listed(root, "layer_names"):
        group = _member(root, layer)
        for weight in _listed(group, "weight_names"):
            name = re.sub(r":\d+$", "", weight).replace("/", ".")
            name = f"{layer}.{name}" if name in names or "." not in name else name
            names.add(name)
            yield name, _values(_member(group, weight))


def _listed(group: Any, attribute: str) -> list[str]:
    """A list of names among the attributes; Keras cuts one that is too long into numbered pieces."""
    pieces = [attribute] if attribute in group.attrs else []
    while f"{attribute}{len(pieces)}" in group.attrs:
        pieces.append(f"{attribute}{len(pieces)}")
    names = [name for piece in pieces for name in np.asarray(group.attrs[piece]).ravel().tolist()]
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]


def _keras3(group: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """Variables `.../vars/0, 1, ..` of layers sorted by name: Keras 3 does not store their order."""
    for key in sorted(group, key=_natural):
        if not name and key in _NOT_WEIGHTS:
            continue
        member = _member(group, key)
        key_name = key.removeprefix("_layer_checkpoint_dependencies\\")  # one flat name, as Keras 2.12 has it
        inner = name if key in _CONTAINERS else f"{name}.{key_name}".lstrip(".")
        if hasattr(member, "shape"):
            if _is_statistic(name, key, len(group)):
                continue
            yield inner, _values(member)
        else:
            yield from _keras3(member, inner)


def _is_statistic(layer: str, key: str, count: int) -> bool:
    """A batch norm's variables end with its running mean and variance."""
    return "batch_norm" in layer.rpartition(".")[2] and key.isdigit() and int(key) >= count - 2


def _member(group: Any, name: str) -> Any:
    """A member of an HDF5 group that lies in the same file."""
    h5py = require("h5py", extra="bench")
    steps = [step for step in name.split("/") if step]
    for step in steps:
        if not isinstance(group.get(step, getlink=True), h5py.HardLink):
            raise OSError(f"{name!r} is a link to somewhere else")
        group = group[step]
    return group


def _values(dataset: Any) -> np.ndarray:
    if not hasattr(dataset, "shape") or dataset.dtype.kind not in "fiub":
        raise OSError(f"{dataset.name} is no array of numbers")
    if dataset.external or dataset.is_virtual:
        raise OSError(f"{dataset.name} keeps its values in another file")
    if dataset.nbytes > _MOST_COMPRESSION * dataset.id.get_storage_size():
        raise OSError(f"{dataset.name} claims {dataset.nbytes} bytes, more than the file can hold")
    return np.asarray(dataset[()])


def _natural(name: str) -> list[tuple[str, int]]:
    """Sorts dense_2 before dense_10."""
    return [(text, int(number or -1)) for text, number in re.findall(r"(\D*)([0-9]*)", name)]
