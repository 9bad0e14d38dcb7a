"""Find the logits in what a torch model returns, and collect them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from qipf.models.labels import SUPPORTED


class Rows:
    """Rows appended batch by batch to one buffer, which is allocated once where the number of rows is known."""

    def __init__(self, expected: int | None, device: torch.device) -> None:
        self.expected, self.device = expected or 0, device
        self.buffer: torch.Tensor | None = None
        self.count = 0

    def append(self, values: torch.Tensor) -> None:
        """Append a copy of `values` to the rows so far."""
        stop = self.count + values.shape[0]
        if self.buffer is None:
            size = (max(self.expected, stop), *values.shape[1:])
            self.buffer = values.new_empty(size, device=self.device)
        if self.buffer.shape[1:] != values.shape[1:]:
            expected, got = tuple(self.buffer.shape[1:]), tuple(values.shape[1:])
            raise ValueError(f"expected rows of shape {expected}, as in the batches before, got {got}")
        if stop > self.buffer.shape[0]:
            larger = self.buffer.new_empty((max(2 * self.buffer.shape[0], stop), *values.shape[1:]))
            larger[: self.count] = self.buffer[: self.count]
            self.buffer = larger
        self.buffer[self.count : stop] = values
        self.count = stop

    def finish(self) -> torch.Tensor:
        """Return the rows, in memory of exactly their size."""
        if self.buffer is None:
            raise ValueError("no rows were appended")
        full = self.buffer.shape[0] == self.count
        return self.buffer if full else self.buffer[: self.count].clone()


def find_logits(result: Any, rows: int | None, number: int) -> torch.Tensor:
    """Return the (N, C) logits in what a model returned, in float32 or wider."""
    values = find_values(result)
    shape = tuple(values.shape)
    if values.ndim == 1:
        values = values[:, None]
    elif values.ndim > 2 and all(size == 1 for size in shape[2:]):
        values = values.flatten(1)
    if values.ndim != 2:
        found = f"the model returned {str(values.dtype).removeprefix('torch.')} of shape {shape}"
        raise ValueError(f"{found}, expected one row of logits per input, (N, C); {SUPPORTED}")
    if rows is not None and values.shape[0] != rows:
        raise ValueError(f"batch {number}: the model returned {values.shape[0]} rows for {rows} inputs")
    return values.float() if values.element_size() < 4 else values


def find_values(result: Any) -> torch.Tensor:
    """Return the logits in what a model returned, in the shape and type in which they are.

    Raises:
        TypeError: There are no floating-point logits in it.
    """
    values = _search(result)
    if values is None:
        held = f" with keys {sorted(map(str, result))}" if isinstance(result, Mapping) else ""
        raise TypeError(
            f"the model returned {type(result).__name__}{held}: expected a tensor, "
            "a tuple that starts with one, a dict with 'logits' or an object with .logits"
        )
    if not values.is_floating_point():
        raise TypeError(f"the model returned {values.dtype} values: expected floating-point logits, not classes")
    return values


def _search(result: Any) -> torch.Tensor | None:
    if isinstance(result, torch.Tensor):
        return result
    if getattr(result, "logits", None) is not None:
        return _search(result.logits)
    if isinstance(result, Mapping):
        named = [result[key] for key in ("logits", "output", "outputs", "out") if key in result]
        tensors = named or [value for value in result.values() if isinstance(value, torch.Tensor)]
        return _search(tensors[0]) if named or len(tensors) == 1 else None
    if isinstance(result, tuple | list) and result:
        return _search(result[0])
    return None
