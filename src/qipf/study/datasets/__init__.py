"""Datasets by name, as float tensors: images `(N, c, h, w)` in [0, 1], classes as int64.

digits (bundled with scikit-learn, the default everywhere), mnist, kmnist, fashion-mnist, cifar10, two-moons,
regression.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from qipf.models.split import Split, SplitLike, as_split
from qipf.study.datasets._files import FILES, read
from qipf.study.datasets._parsers import parse_cifar, parse_idx
from qipf.study.datasets._synthetic import (
    SEEN,
    TESTED,
    curve,
    digits,
    regression,
    regression_set,
    two_moons,
    two_moons_set,
)
from qipf.study.datasets._types import Dataset

__all__ = [
    "NAMES", "SEEN", "TESTED", "Dataset", "Split", "SplitLike",
    "as_split", "curve", "load", "parse_cifar", "parse_idx", "regression", "two_moons",
]  # fmt: skip

NAMES = ("digits", "mnist", "kmnist", "fashion-mnist", "cifar10", "two-moons", "regression")


def load(
    name: str = "digits",
    *,
    data: str | os.PathLike[str] | None = None,
    download: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> Dataset:
    """The dataset `name`.

    Args:
        name: One of `NAMES`.
        data: Folder with the files, as `data/mnist/train-images-idx3-ubyte.gz` or without `mnist/`, gzipped
            or not. None for the folder that the environment variable QIPF_DATA names, if it does.
        download: Whether files found neither there nor in the cache are downloaded from the official address.
        seed: For two-moons and regression, which are drawn at random.
        progress: Whether to show a progress bar while downloading.

    Raises:
        FileNotFoundError: Files are missing and `download` is false, or the folder does not exist.
        ValueError: The name is unknown, or a file is not the one it should be.
        OSError: The download failed.
    """
    if name == "digits":
        return digits()
    if name == "two-moons":
        return two_moons_set(seed)
    if name == "regression":
        return regression_set(seed)
    if name not in FILES:
        raise ValueError(f"unknown dataset {name!r}; choose one of {', '.join(NAMES)}")
    folder = data if data is not None else os.environ.get("QIPF_DATA") or None
    files = read(name, None if folder is None else Path(folder), download=download, progress=progress)
    if name == "cifar10":
        batches = [parse_cifar(content, file) for file, content in files.items()]
        train = _split(np.concatenate([b[0] for b in batches[:5]]), np.concatenate([b[1] for b in batches[:5]]))
        return Dataset(name, train, _split(*batches[5]), 10)
    arrays = [parse_idx(content, file) for file, content in files.items()]
    return Dataset(name, _split(arrays[0][:, None], arrays[1]), _split(arrays[2][:, None], arrays[3]), 10)


def _split(images: np.ndarray, labels: np.ndarray) -> Split:
    return Split(torch.from_numpy(images.astype(np.float32)).div_(255), torch.from_numpy(labels.astype(np.int64)))
