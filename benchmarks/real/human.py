"""Does a score follow people's doubt? Rank correlations with the entropy of the labels of CIFAR-10H."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from qipf.study import datasets


def doubt(folder: Path | None, *, download: bool = False) -> np.ndarray:
    """The entropy of the labels that people gave each of the 10,000 test images, in nats."""
    (content,) = datasets.files("cifar10h", data=folder, download=download).values()
    shares = np.load(io.BytesIO(content), allow_pickle=False)
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(1)


def rank_correlation(scores: np.ndarray, human: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Spearman's correlation, and replicates with (R, N) weights of the images, whose ranks stay as they are."""
    a, b = rankdata(scores), rankdata(human)
    every = np.concatenate([np.ones((1, len(a))), weights]).astype(np.float64)
    every /= every.sum(1, keepdims=True)
    x, y = a - (every @ a)[:, None], b - (every @ b)[:, None]
    found = (every * x * y).sum(1) / np.sqrt((every * x * x).sum(1) * (every * y * y).sum(1))
    return float(found[0]), found[1:]
