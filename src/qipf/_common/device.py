"""The device that is used where none is named."""

from __future__ import annotations

from qipf._common.optional import require


def usual_device(extra: str = "torch") -> str:
    """A GPU if there is one, otherwise the CPU; `extra` is what installs PyTorch for the caller."""
    return "cuda" if require("torch", extra=extra).cuda.is_available() else "cpu"
