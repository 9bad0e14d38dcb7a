"""A module whose buffers keep their precision and may change their size with a state dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn


class PreciseBuffers(nn.Module):
    """Buffers stay in double precision in a model of half precision, and load from another fit of other sizes."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for key, old in before.items():
            new = self._buffers[key]
            if new is not None and new.dtype != old.dtype:
                self._buffers[key] = old.to(new.device)
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        for key, buffer in self.named_buffers(recurse=False):
            if isinstance(found := state_dict.get(prefix + key), Tensor):
                self._buffers[key] = torch.empty_like(found, device=buffer.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
