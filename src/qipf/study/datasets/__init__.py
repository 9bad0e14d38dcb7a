"""Load datasets by name as tensors.

Inputs are float32, and images have shape `(N, c, h, w)` and values in [0, 1]. Class labels are int64, and regression
targets are float32.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from qipf.study.datasets._files import read
from qipf.study.datasets._sets import SEEN, TESTED, Dataset, curve, digits, regression, two_moons
from qipf.training.loop import Split

__all__ = ["NAMES", "SEEN", "TESTED", "Dataset", "Split", "curve", "load", "parse_idx", "regression", "two_moons"]

NAMES = ("digits", "mnist", "kmnist", "fashion-mnist", "cifar10", "two-moons", "regression")


def load(
    name: str = "digits",
    *,
    data: str | os.PathLike[str] | None = None,
    download: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> Dataset:
    """Load a dataset.

    Args:
        name: One of `NAMES`; "digits" is bundled with scikit-learn, and "two-moons" and "regression" are generated.
        data: Folder with the files, directly or in a subfolder named after the dataset; defaults to the
            environment variable QIPF_DATA. Files may be gzipped.
        download: Download files missing from the folder and the cache.
        seed: Random seed for generated datasets.
        progress: Show a progress bar while downloading.

    Raises:
        FileNotFoundError: The folder does not exist, or a file is missing and `download` is False.
        ValueError: A file has the wrong content.
        OSError: The download failed.
    """
    if name == "digits":
        return digits()
    if name == "two-moons":
        return Dataset(name, two_moons(seed=2 * seed), two_moons(seed=2 * seed + 1), 2)
    if name == "regression":
        x = np.linspace(*TESTED, 451)
        test = Split(torch.from_numpy(x[:, None]).float(), torch.from_numpy(curve(x)).float())
        return Dataset(name, regression(seed=seed), test, 1)
    if name not in NAMES:
        raise ValueError(f"unknown dataset {name!r}; choose one of {', '.join(NAMES)}")
    chosen = data if data is not None else os.environ.get("QIPF_DATA") or None
    found = read(name, None if chosen is None else Path(chosen), download=download, progress=progress)
    if name == "cifar10":
        *train, test = (np.frombuffer(content, np.uint8).reshape(-1, 3073) for content in found.values())
        train, test = (_split(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]) for rows in (np.concatenate(train), test))
    else:
        arrays = [parse_idx(content) for content in found.values()]
        train, test = (_split(arrays[i][:, None], arrays[i + 1]) for i in (0, 2))
    return Dataset(name, train, test, 10)


def parse_idx(data: bytes) -> np.ndarray:
    """Parse an IDX file of unsigned bytes."""
    # two zero bytes, data type, number of dimensions, dimensions, values
    start = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _split(images: np.ndarray, labels: np.ndarray) -> Split:
    return Split(torch.from_numpy(images.astype(np.float32)).div_(255), torch.from_numpy(labels.astype(np.int64)))
