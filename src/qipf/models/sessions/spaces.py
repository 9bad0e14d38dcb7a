"""A shim, until the last caller has moved."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qipf.data.batches import Batch
from qipf.runners.onnx import OnnxRunner


def find_reading(model: OnnxRunner, feeds: Mapping[str, np.ndarray], logits: str, classes: int) -> str:
    """Return what a probe reads by default."""
    rows = max(len(values) for values in feeds.values() if values.ndim)
    return str(model.best_reading(Batch((), feeds, None, None, rows, 0, range(rows))))
