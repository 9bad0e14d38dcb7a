"""Read untrusted `.npz` and `.npy` files in bounded memory, without unpickling objects."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Self

import numpy as np

from qipf._common.budget import Budget, budget
from qipf._common.errors import Problem

LONGEST_LISTING = 2**20
"""The maximum size of an archive's central directory in bytes, which is enough for ten thousand arrays."""
SIZE = 5
"""The index of the central directory's size in zipfile's end record."""
DAMAGED = "copy the file again"
CODE = "save arrays of numbers instead"


class Archive:
    """The arrays of an `.npz` file, read on demand by name.

    Their total size is limited to `budget()` or the size of the file, whichever is larger.

    Raises:
        Problem: The file is damaged or not an archive, or its arrays exceed the memory limit.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._budget = Budget(path, max(budget(), path.stat().st_size))
        try:
            with path.open("rb") as file:
                end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
            if end and end[SIZE] > LONGEST_LISTING:
                raise zipfile.BadZipFile("it lists too many members")  # noqa: TRY301
            self._zip = zipfile.ZipFile(path)
        except OSError:
            raise
        except Exception as error:  # zipfile may raise any exception for a damaged directory
            raise Problem("data", f"{path} is not a zip archive, or is damaged ({error})", hint=DAMAGED) from None
        self._members = {name.removesuffix(".npy"): name for name in reversed(self._zip.namelist())}
        self.files = list(reversed(self._members))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._zip.close()

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._read(self._members[name])
        except (OSError, MemoryError, Problem):
            raise
        except Exception as error:  # zlib.error, struct.error, tokenize.TokenError, SyntaxError, ...
            why, hint = f"is damaged or not supported ({_told(error)})", f"{DAMAGED}, or create it with numpy.savez"
            raise Problem("data", f"{self._path}: {name} {why}", hint=hint) from None

    def _read(self, member: str) -> np.ndarray:
        about = self._zip.getinfo(member)
        if about.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or about.flag_bits & 1:
            raise zipfile.BadZipFile("it is encrypted, or its compression method is not supported")
        with self._zip.open(about) as stream:
            version = np.lib.format.read_magic(stream)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            if version not in read_header:
                raise ValueError(f"version {version} of the NumPy format is not supported")
            shape, _, dtype = read_header[version](stream)
            if dtype.itemsize == 0 or min(shape, default=0) < 0:
                raise ValueError(f"its header declares an invalid shape or type ({shape}, {dtype})")
            if dtype.hasobject:
                raise Problem("data", f"{self._path}: {member} holds pickled Python objects", hint=CODE)
            self._budget.spend(math.prod(shape) * dtype.itemsize)
            stream.seek(0)
            array = np.lib.format.read_array(stream, allow_pickle=False)
            if stream.read(1):
                raise ValueError("the file contains more bytes than its header declares")
        return native(array)


def read_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of an `.npz` file, keyed by name; `names` selects some of them."""
    with Archive(path) as file:
        return {name: file[name] for name in file.files if names is None or name in names}


def open_npy(path: Path) -> np.ndarray:
    """Memory-map an `.npy` file with one row per example."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise Problem("data", f"there is no file {path}") from None
    except (OSError, MemoryError) as error:
        raise Problem("data", f"{path} cannot be read ({error})") from None
    except Exception as error:  # a damaged header: EOFError, SyntaxError, tokenize.TokenError, ...
        why, hint = f"is damaged or holds Python objects ({_told(error)})", f"{DAMAGED}, or {CODE}"
        raise Problem("data", f"{path} {why}", hint=hint) from None
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise Problem("data", f"{path} is not an array with one row per example")
    return native(array)


def native(array: np.ndarray) -> np.ndarray:
    """Convert an array to the native byte order."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _told(error: Exception) -> str:
    return f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
