"""The two file formats the image sets come in, read from bytes. Nothing here touches a disk or unpickles."""

from __future__ import annotations

import math

import numpy as np

_UNSIGNED_BYTE = 0x08
_CIFAR_RECORD = 1 + 3 * 32 * 32


def parse_idx(data: bytes, name: str) -> np.ndarray:
    """The uint8 array of an idx file: two zero bytes, type, number of dimensions, dimensions, values.

    Raises:
        ValueError: The bytes are not an idx file of unsigned bytes, or there are too few or too many of them.
    """
    if len(data) < 4 or data[:2] != b"\0\0":
        raise ValueError(f"{name}: not an idx file, it starts with {data[:4].hex() or 'nothing'} instead of 0000")
    if data[2] != _UNSIGNED_BYTE:
        raise ValueError(f"{name}: idx type 0x{data[2]:02x}, expected 0x08 (unsigned bytes)")
    start = 4 + 4 * data[3]
    if data[3] == 0 or len(data) < start:
        raise ValueError(f"{name}: the idx header is cut short or names no dimension")
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    expected = math.prod(shape)
    if len(data) - start != expected:
        kind = "truncated" if len(data) - start < expected else "too long"
        raise ValueError(f"{name}: {kind}, {len(data) - start} values for shape {shape}, expected {expected}")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def parse_cifar(data: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images `(N, 3, 32, 32)` and labels `(N,)`, both uint8, of one binary batch of CIFAR-10.

    Raises:
        ValueError: The bytes are not whole records, or a label is above 9.
    """
    if not data or len(data) % _CIFAR_RECORD:
        raise ValueError(
            f"{name}: {len(data)} bytes are not a whole number of {_CIFAR_RECORD}-byte records; truncated?"
        )
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
    labels = records[:, 0]
    if labels.max() > 9:
        raise ValueError(f"{name}: label {labels.max()} found, expected 0 to 9; this is not a batch of CIFAR-10")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels
