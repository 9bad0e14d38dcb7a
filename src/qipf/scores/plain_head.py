"""Training the head of a probe with NumPy alone, where PyTorch is not installed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from qipf._common.progress import track
from qipf._common.schedule import one_cycle
from qipf.arrays import Array

DECAY = 0.01
BETAS = (0.9, 0.999)
EPSILON = 1e-8
ROWS_AT_ONCE = 8192
"""Rows that are converted to double precision together."""


class ProbeHead(NamedTuple):
    """The weights of `max(x @ inner + inner_bias, 0) @ outer + outer_bias`, in single precision."""

    inner: Array
    inner_bias: Array
    outer: Array
    outer_bias: Array


def train_plain_head(
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    *,
    hidden: int,
    epochs: int,
    dropout: float,
    input_dropout: float,
    learning_rate: float,
    batch: int,
    seed: int,
    progress: bool,
) -> ProbeHead:
    """The same training as with PyTorch, of other random numbers: AdamW, one-cycle schedule, cross-entropy.

    Args:
        features: (N, D), finite.
        labels: (N,) classes from 0 to `classes - 1`.
        classes: how many classes there are.
        hidden: hidden units.
        epochs: passes over the rows.
        dropout: share of the hidden units left out in each step.
        input_dropout: share of the features left out in each step.
        learning_rate: the peak of the schedule.
        batch: rows per step.
        seed: of the initial weights, the order and dropout.
        progress: show a progress bar.
    """
    rng = np.random.default_rng(seed)
    mean, scale = _moments(features)
    width = features.shape[1]
    weights = ProbeHead(
        rng.normal(0, (2 / width) ** 0.5, (width, hidden)).astype(np.float32),
        np.zeros(hidden, np.float32),
        rng.normal(0, hidden**-0.5, (hidden, classes)).astype(np.float32),
        np.zeros(classes, np.float32),
    )
    moments = [[np.zeros_like(part) for part in weights] for _ in BETAS]
    per_epoch = -(-len(features) // batch)
    order = np.arange(len(features))
    for step in track(range(epochs * per_epoch), "training", show=progress):
        place = step % per_epoch
        if place == 0:
            order = rng.permutation(len(features))
        chosen = order[place * batch : (place + 1) * batch]
        rows = (features[chosen].astype(np.float32) - mean) / scale
        kept = [_kept((len(rows), size), share, rng) for size, share in ((width, input_dropout), (hidden, dropout))]
        gradients = gradient(weights, rows, labels[chosen], kept)
        adam_step(weights, gradients, moments, step + 1, one_cycle(step, epochs * per_epoch, learning_rate))
    inner = weights.inner.astype(np.float64) / scale[:, None]
    bias = weights.inner_bias - mean.astype(np.float64) @ inner
    return ProbeHead(inner.astype(np.float32), bias.astype(np.float32), weights.outer, weights.outer_bias)


def gradient(
    weights: ProbeHead, rows: np.ndarray, labels: np.ndarray, kept: list[np.ndarray | None]
) -> tuple[np.ndarray, ...]:
    """The gradient of the mean cross-entropy; `kept` has the factors of dropout of the inputs and the hidden units."""
    rows = rows if kept[0] is None else rows * kept[0]
    before = rows @ weights.inner + weights.inner_bias
    active = np.maximum(before, 0)
    active = active if kept[1] is None else active * kept[1]
    logits = active @ weights.outer + weights.outer_bias
    error = special.softmax(logits, axis=1)
    error[np.arange(len(rows)), labels] -= 1
    error /= len(rows)
    back = error @ weights.outer.T
    back = np.where(before > 0, back if kept[1] is None else back * kept[1], 0)
    return rows.T @ back, back.sum(axis=0), active.T @ error, error.sum(axis=0)


def adam_step(
    weights: ProbeHead, gradients: tuple[np.ndarray, ...], moments: list[list[np.ndarray]], step: int, rate: float
) -> None:
    """Change the weights and the moments in place: one step of AdamW, whose decay acts on matrices alone."""
    for part, slope, first, second in zip(weights, gradients, *moments, strict=True):
        if part.ndim > 1:
            part *= 1 - rate * DECAY
        first += (1 - BETAS[0]) * (slope - first)
        second += (1 - BETAS[1]) * (slope**2 - second)
        size = np.sqrt(second / (1 - BETAS[1] ** step)) + EPSILON
        part -= (rate / (1 - BETAS[0] ** step) * first / size).astype(part.dtype)


def _kept(shape: tuple[int, int], share: float, rng: np.random.Generator) -> np.ndarray | None:
    if share == 0:
        return None
    return (rng.random(shape, dtype=np.float32) >= share).astype(np.float32) / np.float32(1 - share)


def _moments(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and scale of every column; the scale of a column that hardly varies is kept away from zero."""
    parts = [features[start : start + ROWS_AT_ONCE] for start in range(0, len(features), ROWS_AT_ONCE)]
    mean = np.sum([part.sum(axis=0, dtype=np.float64) for part in parts], axis=0) / len(features)
    deviation = np.sqrt(np.sum([((part - mean) ** 2).sum(axis=0) for part in parts], axis=0) / len(features))
    typical = float(deviation.mean())
    floor = 1e-3 * typical if typical > 0 else 1.0
    return mean.astype(np.float32), (deviation + floor).astype(np.float32)
