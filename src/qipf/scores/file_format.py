"""The file format: safetensors with a JSON header and a checksum, never pickle. Nothing here knows what a scorer is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf._common.safetensors import read_safetensors

FORMAT = 1
KEY = "qipf"
"""The entry of the safetensors metadata that holds the header."""


def write(path: str | PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Write a header of plain JSON values and arrays to one file; a crash leaves the old file or the new one.

    The format number, the versions of the packages and the checksum are added to the header.
    """
    safetensors = require("safetensors.numpy", extra="torch")
    tensors = {key: np.asarray(value, order="C") for key, value in tensors.items()}
    versions = {package: _version(package) for package in ("qipf", "numpy", "safetensors")}
    full = {"format": FORMAT, **header, "versions": versions}
    full["checksum"] = checksum(full, tensors)
    atomic_write(path, safetensors.save(tensors, metadata={KEY: json.dumps(full)}))


def read(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a file, after the checksum has been compared. Nothing in the file is executed.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is truncated, changed, not written by qipf, or written by a newer version of qipf.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    error_type = require("safetensors", extra="torch").SafetensorError
    try:
        metadata, tensors = read_safetensors(path, "numpy")
    except (error_type, TypeError, ValueError) as error:
        raise ValueError(f"{path}: truncated, or not a file written by qipf ({error})") from None
    try:
        header = json.loads(metadata[KEY])
        written, author, found = int(header["format"]), header["versions"]["qipf"], header["checksum"]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise ValueError(f"{path}: a safetensors file, but not one written by qipf") from None
    if written > FORMAT:
        raise ValueError(
            f"{path}: written in format {written} by qipf {author}, this version reads up to format {FORMAT}; "
            "upgrade qipf"
        )
    try:
        if found != checksum(header, tensors):
            raise ValueError(f"{path}: the checksum does not match, so the file was changed or damaged; write it again")
    except RecursionError:
        raise ValueError(f"{path}: its header is nested too deeply for a file written by qipf") from None
    return header, tensors


def checksum(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the header without its checksum, and of the name, dtype, shape and bytes of every array."""
    signed = {key: value for key, value in header.items() if key != "checksum"}
    digest = hashlib.sha256(json.dumps(signed, sort_keys=True).encode())
    for key in sorted(tensors):
        value = np.asarray(tensors[key], order="C")
        digest.update(f"{key} {value.dtype.str} {value.shape}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """A setting without NumPy: scalars as Python numbers, arrays and tuples as lists, anything else unchanged."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return value


def as_json(values: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """`values` as plain JSON.

    Raises:
        ValueError: a value of `owner` is not plain, for example a function.
    """
    result = {}
    for key, value in values.items():
        try:
            result[key] = json.loads(json.dumps(plain(value), allow_nan=False))
        except (TypeError, ValueError):
            raise ValueError(
                f"{owner}: cannot be saved with {key}={value!r}, because a file holds plain values only and no "
                "functions or objects; use a named option instead, or build the scorer again where you need it"
            ) from None
    return result


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
