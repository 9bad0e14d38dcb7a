"""Re-exports, until the last caller has moved."""

from __future__ import annotations

import os
from typing import Any

from qipf._common.errors import Problem
from qipf.runners.onnx import OnnxRunner as OnnxModel
from qipf.runners.onnx import is_session as is_session

__all__ = ["OnnxModel", "as_onnx", "check_no_device", "is_session"]


def as_onnx(model: Any) -> OnnxModel | None:
    """Return the ONNX model that this is; None if it is something else."""
    if isinstance(model, OnnxModel):
        return model
    return OnnxModel(model) if is_session(model) or isinstance(model, str | os.PathLike) else None


def check_no_device(device: Any) -> None:
    """Raise if a device of torch was named for an ONNX model."""
    if device is not None:
        raise Problem(
            "device", f"an ONNX model runs where its session does, not on {str(device)!r}",
            hint="make the session with providers=['CUDAExecutionProvider'], or leave device out",
        )  # fmt: skip
