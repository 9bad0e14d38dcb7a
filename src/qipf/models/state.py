"""Run a torch model and leave it exactly as it was."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module inside DataParallel wrappers, which would split or synchronise what is only read here.

    Raises:
        TypeError: It is not a torch module.
    """
    if not isinstance(model, nn.Module):
        hint = "; call its .module() first" if hasattr(model, "module") else ""
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}{hint}")
    while isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        model = model.module
    return model


def original(model: nn.Module) -> nn.Module:
    """Return the module inside DataParallel and `torch.compile`, whose names have no prefix and whose hooks fire."""
    while (inside := model._modules.get("_orig_mod", unwrap(model))) is not model and inside is not None:
        model = inside
    return model


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return every submodule by name, including those inside compiled parts, under each of its names."""
    return {
        name.replace("_orig_mod.", ""): module
        for name, module in model.named_modules(remove_duplicate=False)
        if name and not name.endswith("_orig_mod")
    }


def input_device(model: nn.Module, device: torch.device | str | None) -> torch.device:
    """Return the device that inputs must go to, checked against where the model is."""
    tensors = [*model.parameters(), *model.buffers()]
    homes = list(dict.fromkeys(tensor.device for tensor in tensors)) or [torch.device("cpu")]
    if any(home.type == "meta" for home in homes):
        raise ValueError("model: parameters are on the meta device and have no values; load them first")
    if device is None:
        return homes[0]
    wanted = as_device("device", device)
    if not tensors:
        return wanted
    for home in homes:
        if wanted.type == home.type and wanted.index in (None, home.index):
            return home
    raise ValueError(f"device: expected {homes[0]}, where the model is, got {str(wanted)!r}; move the model first")


def as_device(name: str, value: torch.device | str) -> torch.device:
    """Return the device that an argument names.

    Raises:
        ValueError: torch knows no such device.
    """
    try:
        return torch.device(value)
    except (RuntimeError, TypeError):
        raise ValueError(f"{name}: expected a device such as 'cpu' or 'cuda:0', got {value!r}") from None


@contextmanager
def untouched(model: nn.Module, *, eager: bool) -> Iterator[None]:
    """Switch to evaluation mode without gradients, and restore the model and all random states at the end.

    Args:
        model: The module to run.
        eager: Run compiled parts uncompiled, because hooks do not fire inside compiled graphs.
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    buffers = [
        (module, name, buffer, buffer.detach().clone(), buffer._version)
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None and not buffer.is_inference()
    ]
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 - the user's, not ours
    try:
        for module in modules:
            module.training = False  # not .eval(): it may be overridden, with effects that cannot be undone
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())  # not inference_mode: caches of the model stay trainable
            if eager and "torch._dynamo" in sys.modules:  # nothing can be compiled before that import
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        for module, name, buffer, value, version in buffers:
            if buffer._version != version:
                with torch.no_grad():
                    buffer.copy_(value)
            if module._buffers.get(name) is not buffer:
                module._buffers[name] = buffer
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
