"""Build and train the networks of multi-pass methods, and draw random numbers from seeds."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from qipf.training import seeded, train

if TYPE_CHECKING:
    from qipf.training.loop import Split

EPOCHS = 20  # the default number of epochs


def derive(seed: int, *path: int | str) -> int:
    """Derive a 63-bit seed from `seed` and a path; different paths yield independent seeds."""
    text = repr((int(seed), *path)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def normal(shape: torch.Size | tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    """Draw float32 values from the standard normal distribution with a given seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


def build(model_or_factory: nn.Module | Callable[[], nn.Module], seed: int, device: torch.device) -> nn.Module:
    """Return a copy of the given network, or a new network with random weights determined by `seed`."""
    if isinstance(model_or_factory, nn.Module):
        net = copy.deepcopy(model_or_factory).to(device)
        if not any(parameter.requires_grad for parameter in net.parameters()):
            net.requires_grad_()  # a fully frozen network is unfrozen; a partly frozen one is kept as it is
        return net
    with seeded(derive(seed, "weights"), device):
        net = model_or_factory()
    if not isinstance(net, nn.Module):
        found = f"one that returns {type(net).__name__}"
        raise TypeError(f"model_or_factory: expected a function that returns a torch module, got {found}")
    return net.to(device)


def train_own(net: nn.Module, data: Split, *, seed: int, progress: bool, options: Mapping[str, Any]) -> nn.Module:
    """Train and return a network created by `build`."""
    return train(net, data, seed=derive(seed, "order"), progress=progress, **{"epochs": EPOCHS, **options})
