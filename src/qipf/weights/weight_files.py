"""Read arrays from safetensors files and from HDF5 files written by Keras 2 or 3, but never from pickles."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.budget import Budget, TooLargeError, budget
from qipf._common.optional import require

_HDF5 = b"\x89HDF\r\n\x1a\n"
_NOT_WEIGHTS = {"optimizer", "optimizer_weights", "metrics", "compile_metrics"}
_CONTAINERS = ("vars", "layers", "_layer_checkpoint_dependencies")
_GZIP, _HARMLESS_FILTERS = 1, {1, 2, 3}  # HDF5 filter ids: gzip, shuffle and fletcher32
_DEEPEST = 100  # maximum number of levels of nested groups
_MOST_NAMES = 2**16  # maximum number of names in an attribute; HDF5 limits attributes to this number of bytes


def read(path: Path) -> dict[str, Any]:
    """Return all arrays in a weight file, keyed by name."""
    if not path.is_file():
        raise FileNotFoundError(f"weight file {path} does not exist")
    with path.open("rb") as file:
        start = file.read(9)
    if start.startswith(_HDF5):
        return _read_hdf5(path)
    if start.startswith(b"PK"):
        raise ValueError(
            f"{path} is a zip archive (a .pt, .pth or .keras file); pass a state dict from "
            "torch.load(..., weights_only=True), or the file model.weights.h5 from the .keras archive"
        )
    if len(start) == 9 and start[8:] == b"{":
        return _read_safetensors(path)
    raise ValueError(f"{path}: expected a safetensors or HDF5 file, got one that starts with {start[:8]!r}")


def _read_safetensors(path: Path) -> dict[str, Any]:
    safetensors = require("safetensors", extra="torch")
    require("torch", extra="torch")  # reads bfloat16, which NumPy lacks
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in sorted(file.keys(), key=_natural)}
    except MemoryError:
        raise
    except Exception as error:  # a damaged header can raise AttributeError and other types
        raise ValueError(f"{path} is damaged or not a safetensors file: {error}") from None


def _read_hdf5(path: Path) -> dict[str, np.ndarray]:
    h5py = require("h5py", extra="bench")
    try:
        with h5py.File(path, "r") as file:
            root = _member(file, "model_weights") if "model_weights" in file else file
            keras2 = "layer_names" in root.attrs or "layer_names0" in root.attrs
            reader = _WeightReader(path)
            return dict(reader.keras2(root) if keras2 else reader.keras3(root, ""))
    except (TooLargeError, MemoryError):
        raise
    except Exception as error:  # h5py may raise any exception for a damaged file
        raise ValueError(f"{path} is damaged or not a Keras weight file: {error}") from None


class _WeightReader:
    """A reader of one HDF5 file that reads every array at most once, within a memory limit."""

    def __init__(self, path: Path) -> None:
        self._budget = Budget(path, max(budget(), path.stat().st_size))
        self._seen: set[int] = set()

    def keras2(self, root: Any) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the weights in the order of the layers, as stored in the attributes of the file."""
        names: set[str] = set()
        for layer in _listed(root, "layer_names"):
            group = _member(root, layer)
            for weight in _listed(group, "weight_names"):
                name = re.sub(r":\d+$", "", weight).replace("/", ".")
                name = f"{layer}.{name}" if name in names or "." not in name else name
                names.add(name)
                yield name, self._values(_member(group, weight))

    def keras3(self, group: Any, name: str, depth: int = 0) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the variables (`.../vars/0`, ...) of the layers, sorted by name because Keras 3 stores no order."""
        self._once(group)
        if depth > _DEEPEST:
            raise OSError(f"groups are nested more than {_DEEPEST} levels deep")
        for key in sorted(group, key=_natural):
            if not name and key in _NOT_WEIGHTS:
                continue
            member = _member(group, key)
            key_name = key.removeprefix("_layer_checkpoint_dependencies\\")  # part of a flat name in Keras 2.12
            inner = name if key in _CONTAINERS else f"{name}.{key_name}".lstrip(".")
            if not hasattr(member, "shape"):
                yield from self.keras3(member, inner, depth + 1)
            elif not _is_statistic(name, key, len(group)):
                yield inner, self._values(member)

    def _once(self, member: Any) -> None:
        """Raise OSError if two links lead to the same member: nested links could multiply the number of members."""
        address = require("h5py", extra="bench").h5o.get_info(member.id).addr
        if address in self._seen:
            raise OSError(f"{member.name} is in the file under two names")
        self._seen.add(address)

    def _values(self, dataset: Any) -> np.ndarray:
        if not hasattr(dataset, "shape") or dataset.shape is None or dataset.dtype.kind not in "fiub":
            raise OSError(f"{dataset.name} is not an array of numbers")
        if dataset.dtype.itemsize > 8:
            raise OSError(f"{dataset.name} contains numbers wider than 64 bits")
        if dataset.external or dataset.is_virtual:
            raise OSError(f"{dataset.name} stores its values in another file")
        self._once(dataset)
        self._budget.spend(dataset.nbytes)
        if dataset.chunks:
            self._check_chunks(dataset)
        return np.asarray(dataset[()])

    def _check_chunks(self, dataset: Any) -> None:
        """Raise OSError if a filter is unsupported or a chunk decompresses to more than the declared chunk size."""
        filters = dataset.id.get_create_plist()
        kinds = [filters.get_filter(i)[0] for i in range(filters.get_nfilters())]
        if not set(kinds) <= _HARMLESS_FILTERS or kinds.count(_GZIP) > 1:
            supported = "gzip (1, at most once), shuffle (2) and fletcher32 (3)"
            raise OSError(f"{dataset.name} has the HDF5 filters {kinds}; only {supported} are supported")
        size = math.prod(dataset.chunks) * dataset.dtype.itemsize
        Budget(self._budget.path).spend(size)
        if _GZIP not in kinds:
            return
        for number in range(dataset.id.get_num_chunks()):
            about = dataset.id.get_chunk_info(number)
            if about.size > self._budget.path.stat().st_size:
                raise OSError(f"a chunk of {dataset.name} declares more bytes than the file has")
            skipped, packed = dataset.id.read_direct_chunk(about.chunk_offset)
            if not skipped & 1 << kinds.index(_GZIP):
                unpacked = zlib.decompressobj().decompress(packed, size + 1)
                if len(unpacked) > size:
                    raise OSError(f"a chunk of {dataset.name} decompresses to more than the chunk size of {size} bytes")


def _listed(group: Any, attribute: str) -> list[str]:
    """Return a list of names stored as an attribute; Keras splits long lists into several numbered attributes."""
    pieces = [attribute] if attribute in group.attrs else []
    while f"{attribute}{len(pieces)}" in group.attrs:
        pieces.append(f"{attribute}{len(pieces)}")
    for piece in pieces:
        about = group.attrs.get_id(piece)
        if math.prod(about.shape or ()) > _MOST_NAMES or about.dtype.itemsize > _MOST_NAMES:
            raise OSError(f"{attribute} has more than {_MOST_NAMES} names, or names of more than {_MOST_NAMES} bytes")
    names = [name for piece in pieces for name in np.asarray(group.attrs[piece]).ravel().tolist()]
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]


def _is_statistic(layer: str, key: str, count: int) -> bool:
    """Return True for the running mean or variance of a batch-norm layer, which are its last two variables."""
    return "batch_norm" in layer.rpartition(".")[2] and key.isdigit() and int(key) >= count - 2


def _member(group: Any, name: str) -> Any:
    """Return a member of an HDF5 group; raise OSError for soft and external links, which can lead to another file."""
    h5py = require("h5py", extra="bench")
    steps = [step for step in name.split("/") if step]
    for step in steps:
        if not isinstance(group.get(step, getlink=True), h5py.HardLink):
            raise OSError(f"{name!r} is missing, or is a link")
        group = group[step]
    return group


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts dense_2 before dense_10."""
    return [(text, int(number or -1)) for text, number in re.findall(r"(\D*)([0-9]{0,18})", name)]
