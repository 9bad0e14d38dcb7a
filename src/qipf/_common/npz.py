"""Read an `.npz` that may come from anywhere: no pickled objects, no code, and no more memory than allowed."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Self

import numpy as np

from qipf._common.budget import Budget, budget

LONGEST_LISTING = 2**24
"""Bytes that the list of members may take; each of its bytes takes about ten in memory."""
SIZE = 5
"""Where zipfile's record of the listing has its size."""
CHUNK = 2**20


class DamagedArchiveError(ValueError, zipfile.BadZipFile):
    """The file is damaged, or not an archive of arrays."""


def load_npz(path: Path) -> Archive:
    """Open an archive; its arrays are read when they are asked for.

    Raises:
        ValueError: the file is damaged, is not an archive, or decodes to more memory than it may.
    """
    return Archive(path)


class Archive:
    """The arrays of an `.npz` by name. All that are read together stay within the memory that the file may take.

    A compressed file may take `budget()`; one that is not compressed may take as much as it has on the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._budget = Budget(path, max(budget(), path.stat().st_size))
        try:
            with path.open("rb") as file:
                end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
            if end and end[SIZE] > LONGEST_LISTING:
                raise zipfile.BadZipFile("it lists more members than an archive of arrays has")  # noqa: TRY301
            self._zip = zipfile.ZipFile(path)
        except OSError:
            raise
        except Exception as error:  # zipfile raises whatever it meets in a damaged listing
            raise DamagedArchiveError(f"it is not a zip archive, or a damaged one ({error})") from None
        self.files = [name.removesuffix(".npy") for name in self._zip.namelist()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._zip.close()

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._read(self._zip.namelist()[self.files.index(name)])
        except (OSError, MemoryError):
            raise
        except UnicodeError as error:  # a ValueError that cannot be made from a message
            raise DamagedArchiveError(f"{name}: it is damaged ({error})") from None
        except ValueError as error:
            raise type(error)(str(error) if str(self._path) in str(error) else f"{name}: {error}") from None
        except Exception as error:  # zlib.error, struct.error, tokenize.TokenError, SyntaxError, ...
            raise DamagedArchiveError(f"{name}: it is damaged ({type(error).__name__}: {error})") from None

    def _read(self, member: str) -> np.ndarray:
        about = self._zip.getinfo(member)
        if about.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or about.flag_bits & 1:
            raise DamagedArchiveError("it is encrypted, or compressed in a way that NumPy does not write")
        with self._zip.open(about) as stream:
            version = np.lib.format.read_magic(stream)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            if version not in read_header:
                raise DamagedArchiveError(f"format {version} of NumPy's arrays is not one for numbers")
            shape, by_columns, dtype = read_header[version](stream)
            if dtype.itemsize == 0 or min(shape, default=0) < 0:
                raise DamagedArchiveError(f"it claims the shape {shape} and the type {dtype}, which hold nothing")
            if dtype.hasobject:
                raise ValueError("it holds pickled Python objects, which only code could read")
            size = math.prod(shape) * dtype.itemsize
            self._budget.spend(size)
            values = np.empty(size, np.uint8)
            filled = 0
            while filled < size and (part := stream.read(min(CHUNK, size - filled))):
                values[filled : filled + len(part)] = np.frombuffer(part, np.uint8)
                filled += len(part)
            if filled < size or stream.read(1):
                raise DamagedArchiveError(f"it claims {size} bytes and has {'fewer' if filled < size else 'more'}")
        return values.view(dtype).reshape(shape, order="F" if by_columns else "C")
