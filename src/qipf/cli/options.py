"""Options shared by several commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Output = Annotated[Path, Parameter(name=["--output", "-o"])]
OptionalOutput = Annotated[Path | None, Parameter(name=["--output", "-o"])]


@Parameter(name="*")
@dataclass(frozen=True)
class ModelOptions:
    """Options of the commands that run a model.

    Args:
        weights: A .safetensors checkpoint for a model given as module:callable.
        labels: An .npy file of labels, with one row per example, if DATA has no labels.
        labels_from: The label of the first class, usually 0 or 1.
        device: The device of the model, such as cuda.
        batch_size: Examples per forward pass.
    """

    weights: Path | None = None
    labels: Path | None = None
    labels_from: int = 0
    device: str | None = None
    batch_size: int = 500
