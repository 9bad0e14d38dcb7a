"""Splitting a network before its last dense layer, for methods that are random only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from qipf.training import device_of


class _Found(Exception):
    """Carries the input of the head out of a forward pass that need not go on."""

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.features = features


def trunk_of(network: nn.Module, head: nn.Module, example: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return the network up to the input of `head`, or None where head(trunk(x)) is not the network's output."""

    def stop(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        raise _Found(inputs[0])

    def trunk(x: Tensor) -> Tensor:
        handle = head.register_forward_pre_hook(stop)
        try:
            network(x)
        except _Found as found:
            return found.features
        finally:
            handle.remove()
        raise RuntimeError("the layer to split at did not run")

    with torch.no_grad():
        x = example.to(device_of(network))
        outputs = network(x)
        features = trunk(x)
        same = features.shape[:1] == x.shape[:1] and torch.equal(head(features), outputs)
    return trunk if same else None
