"""Shims, until the last caller has moved."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qipf.runners.onnx import OnnxRunner
from qipf.runners.onnx_graph import LogitsAt
from qipf.runners.onnx_graph import in_rows as in_rows


def find_logits(model: OnnxRunner, feeds: Mapping[str, np.ndarray], show: bool) -> LogitsAt:
    """Return where the logits are."""
    found = model._find_logits(feeds)
    model._tell(show, False)
    return found


def find_head(model: OnnxRunner, at: LogitsAt, feeds: Mapping[str, np.ndarray], show: bool) -> str | None:
    """Return the tensor that enters the layer behind the logits."""
    found = model._find_head(at, feeds, False)
    model._tell(show, True)
    return found
