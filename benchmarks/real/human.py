"""Does a score follow people's doubt? Rank correlations with the entropy of the labels of CIFAR-10H."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

FILE = "cifar10h-probs.npy"
DIGEST = "436ae98620e00073f9d08585ac870573b588853e7af9f54eb1647408114af77d"


def doubt(folder: Path) -> np.ndarray:
    """The entropy of the labels that people gave each of the 10,000 test images, in nats.

    Raises:
        ValueError: the file is not the published one.
    """
    path = folder / FILE
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != DIGEST:
        raise ValueError(f"{path}: SHA-256 is {found}, expected {DIGEST}; get the file again")
    shares = np.load(path, allow_pickle=False)
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(1)


def rank_correlation(scores: np.ndarray, human: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Spearman's correlation, and replicates with (R, N) weights of the images, whose ranks stay as they are."""
    a, b = rankdata(scores), rankdata(human)
    every = np.concatenate([np.ones((1, len(a))), weights]).astype(np.float64)
    every /= every.sum(1, keepdims=True)
    x, y = a - (every @ a)[:, None], b - (every @ b)[:, None]
    found = (every * x * y).sum(1) / np.sqrt((every * x * x).sum(1) * (every * y * y).sum(1))
    return float(found[0]), found[1:]
