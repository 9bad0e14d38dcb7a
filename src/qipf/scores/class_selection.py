"""What class fields choose from their references: a bandwidth and a sample of a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from qipf.arrays import to_numpy
from qipf.scores.kernel_sums import log_fields, pack
from qipf.scores.reference import log_loss

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs

BANDWIDTHS = (0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8)
"""Candidates, in units of the root mean square length of the samples (which is 1 for unit-length features)."""
_LEFT_OUT, _KEPT = 1500, 6000


def choose_bandwidth(samples: np.ndarray, labels: np.ndarray, classes: int) -> float:
    r"""The bandwidth under which samples that were left out have the most likely labels.

    .. math::  s = \arg\min_s -\sum_i \log \frac{\psi_{y_i}(w_i)}{\sum_c \psi_c(w_i)}

    It reads the references and their labels, and no other inputs.
    """
    order = np.random.default_rng(0).permutation(len(samples))
    split = min(_LEFT_OUT, max(1, len(samples) // 5))
    left_out, kept = order[:split], order[split : split + _KEPT]
    if len(kept) == 0:
        raise ValueError('bandwidth: "cv" needs at least two references; give a number instead')
    scale = float(np.sqrt(np.mean(np.einsum("ij,ij->i", samples[kept], samples[kept]))))
    scale = scale if scale > 0 else 1.0
    packed = pack(samples[kept], labels[kept], classes)
    losses = [
        log_loss(log_fields(samples[left_out], packed, bandwidth * scale), labels[left_out]) for bandwidth in BANDWIDTHS
    ]
    return BANDWIDTHS[int(np.argmin(losses))] * scale


def reservoir(batches: Iterable[Outputs], size: int, seed: int) -> Outputs:
    """A uniform sample of `size` rows of a stream of outputs, in bounded memory (Vitter's algorithm R)."""
    from qipf.tasks.outputs import Outputs

    rng = np.random.default_rng(seed)
    kept: dict[str, np.ndarray] = {}
    seen = 0
    for batch in batches:
        columns = _columns(batch)
        count = len(batch)
        if not kept:
            kept = {name: np.empty((size, *values.shape[1:]), values.dtype) for name, values in columns.items()}
        if columns.keys() != kept.keys():
            raise ValueError(f"batches: expected {', '.join(kept)} in every batch, got {', '.join(columns)}")
        numbers = np.arange(seen, seen + count)
        places = np.where(numbers < size, numbers, rng.integers(0, numbers + 1))
        rows = np.flatnonzero(places < size)
        for name, values in columns.items():
            kept[name][places[rows]] = values[rows]  # of several rows for one place, the last one counts
        seen += count
    if seen == 0:
        raise ValueError("batches: got no rows, expected at least one; an iterator that was read before is empty")
    found = {name: values[: min(size, seen)] for name, values in kept.items()}
    return Outputs(
        found.pop("logits"),
        found.pop("features", None),
        found.pop("labels", None),
        {name.removeprefix("layer:"): values for name, values in found.items()},
    )


def _columns(batch: Outputs) -> dict[str, np.ndarray]:
    columns = {"logits": batch.logits, "features": batch.features, "labels": batch.labels}
    columns |= {f"layer:{name}": values for name, values in batch.layers.items()}
    return {name: to_numpy(values) for name, values in columns.items() if values is not None}
