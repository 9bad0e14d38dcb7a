"""The recorder of `collect`, until it reads by a runner."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from torch import Tensor, nn

from qipf.runners.features import HEAD, FeatureSpec
from qipf.runners.recorder import Recorder as NewRecorder
from qipf.runners.recorder import find_module as find_module
from qipf.runners.recorder import first_tensor as first_tensor
from qipf.runners.recorder import is_signal as is_one_dimensional

__all__ = ["Recorder", "find_module", "first_tensor", "is_one_dimensional"]


class Recorder:
    """A context manager around the new recorder."""

    def __init__(self, model: nn.Module, features: str | bool | None, layers: tuple[str, ...]) -> None:
        if features is True or not isinstance(features, str | bool | None):
            raise TypeError(f"features: expected a module name, None or False, got {features!r}")
        if not all(isinstance(name, str) for name in layers):
            raise TypeError(f"layers: expected names of modules, got {layers!r}")
        read = {f"layer:{name}": FeatureSpec.parse(name) for name in layers}
        if isinstance(features, str):
            read = {"features": FeatureSpec.parse(features), **read}
        elif features is None:
            read["features"] = HEAD
        self._new, self._head = NewRecorder(model, read), features is None
        self.active = self._new.active

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._stack.enter_context(self._new.attached())
        self._new.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._new.close()
        self._stack.close()

    def take(self, logits: Tensor) -> dict[str, Any]:
        """Return what the last forward pass left."""
        found = self._new.take(logits)
        self._new.open()
        return {**({"features": None} if self._head else {}), **found}
