"""A module whose buffers keep their dtypes, move to the device of the logits, and accept any shape on loading."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn


class PreciseBuffers(nn.Module):
    """A module whose buffers keep their dtypes when `half()` is called, and take their shapes from a state dict."""

    def _follow(self, device: torch.device) -> None:
        """Move the buffers to `device` if necessary, for example if only the model was moved; thread-safe."""
        if any(buffer is not None and buffer.device != device for buffer in self._buffers.values()):
            self.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self.named_buffers())
        super()._apply(partial(_moved, fn), recurse)
        for key, old in before.items():
            new = self._buffers[key]
            if new is not None and new.dtype != old.dtype and new.device.type != "mps":
                self._buffers[key] = old.to(new.device)  # the scorer is not converted to half precision
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        for key, buffer in self.named_buffers():  # tensors from another fit may have other shapes
            if isinstance(found := state_dict.get(prefix + key), Tensor):
                self._buffers[key] = torch.empty_like(found, device=buffer.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _moved(fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """Apply `fn` to a tensor, in single precision if the device has no double precision (Apple's MPS)."""
    try:
        return fn(tensor)
    except TypeError:
        if tensor.dtype != torch.float64:
            raise
        return fn(tensor.float())
