"""Stand-in."""

from __future__ import annotations

from typing import Any

from qipf.runners.runner import Runner


def open_model(model: Any, *, output: str | None = None, providers: Any = None, device: Any = None) -> Runner:
    """Return the runner of a model."""
    from qipf.runners.torch import TorchRunner

    return model if isinstance(model, Runner) else TorchRunner(model, device)
