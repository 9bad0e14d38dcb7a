"""The order in which a network runs its layers, found by running it once."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from qipf.predictive.attention import ATTENTION, FUSED, attention_rate, can_drop, fused_rate, own_rate
from qipf.training import device_of

Kind = Literal["convolution", "dense", "block end", "dropout", "attention dropout", "unknown dropout"]


@dataclass(frozen=True)
class Step:
    """One event of a forward pass.

    Attributes:
        kind: What happened. "attention dropout" is that of `torch.nn.MultiheadAttention`, and "unknown dropout" that of
            a module that calls fused attention itself, whose rate it gives in training only.
        name: The name of the module (empty for dropout, which may be a function).
        reduced: For a convolution, whether its input is smaller than the output of the convolution before it, which
            means that pooling ended a convolutional block in between.
    """

    kind: Kind
    name: str
    reduced: bool = False


def has_batch_norm(network: nn.Module) -> bool:
    """Tell whether the network keeps batch-norm statistics."""
    return any(isinstance(module, _BatchNorm) and module.track_running_stats for module in network.modules())


def private_copy(network: nn.Module) -> nn.Module:
    """Copy the network, so that the caller's keeps its mode, hooks and weights."""
    try:
        return copy.deepcopy(network)
    except RuntimeError as error:
        raise ValueError(
            f"the network {type(network).__name__} cannot be copied ({error}); "
            "it may hold tensors that belong to a graph: detach them first"
        ) from None


@contextmanager
def predicting(network: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode without gradients inside the block, and restore every module's own mode after it."""
    was_training = {module: module.training for module in network.modules()}
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in was_training.items():
            module.training = training


def trace(network: nn.Module, example: Tensor) -> list[Step]:
    """Run `network` once on `example` and list its convolutions, dense layers, block ends and dropouts in order."""
    recorder = _Recorder(network)
    try:
        with predicting(network), recorder:
            network(example.to(device_of(network)))
    finally:
        for handle in recorder.handles:
            handle.remove()
    return recorder.steps


def last(steps: list[Step], kind: Kind) -> str | None:
    """Return the name of the last layer of that kind, or None."""
    return next((step.name for step in reversed(steps) if step.kind == kind), None)


def replace(network: nn.Module, name: str, new: nn.Module) -> None:
    """Put `new` in the place of the module called `name`, wherever that module is used."""
    old = network.get_submodule(name)
    for parent in list(network.modules()):
        for child_name, child in list(parent.named_children()):
            if child is old:
                setattr(parent, child_name, new)


DROPOUT_FUNCTIONS: dict[Any, str] = {
    nn.functional.dropout: "element",
    nn.functional.dropout1d: "channel",
    nn.functional.dropout2d: "channel",
    nn.functional.dropout3d: "channel",
    nn.functional.alpha_dropout: "alpha",
    nn.functional.feature_alpha_dropout: "channel alpha",
    torch.dropout: "element",
    torch.feature_dropout: "channel",
    torch.alpha_dropout: "alpha",
    torch.feature_alpha_dropout: "channel alpha",
}
"""Every function that applies dropout, and what it drops; the modules of torch.nn call these."""


class _Recorder(torch.overrides.TorchFunctionMode):
    """Records layers through hooks, and dropout through the functions that apply it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.handles = []
        self._size: torch.Size | None = None  # spatial size of the last convolution's output
        self._inside: list[str] = []  # the modules that are running
        self._modules = dict(network.named_modules())
        blocks = _blocks(network)
        for name, module in self._modules.items():
            self.handles.append(module.register_forward_pre_hook(self._on_start(name)))
            if isinstance(module, _ConvNd):
                self.handles.append(module.register_forward_hook(self._on_convolution(name)))
            elif isinstance(module, nn.Linear):
                self.handles.append(module.register_forward_hook(self._on_end("dense", name)))
            elif module in blocks:
                self.handles.append(module.register_forward_hook(self._on_end("block end", name)))
            self.handles.append(module.register_forward_hook(self._on_leave))

    def _on_start(self, name: str):
        return lambda module, inputs: self._inside.append(name)

    def _on_leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._inside.pop()

    def _on_convolution(self, name: str):
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            del module
            before, size = self._size, inputs[0].shape[2:]
            smaller = before is not None and any(a < b for a, b in zip(size, before, strict=False))
            self.steps.append(Step("convolution", name, reduced=smaller))
            self._size = output.shape[2:]

        return hook

    def _on_end(self, kind: Kind, name: str):
        return lambda module, inputs, output: self.steps.append(Step(kind, name))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, self._inside[-1] if self._inside else ""
        if func in DROPOUT_FUNCTIONS:
            self.steps.append(Step("dropout", ""))
        elif func is ATTENTION and attention_rate(args, kwargs) > 0:
            self.steps.append(Step("attention dropout" if can_drop(args, kwargs) else "unknown dropout", name))
        elif func is FUSED and fused_rate(args, kwargs) == 0 and own_rate(self._modules[name]):
            self.steps.append(Step("unknown dropout", name))
        return func(*args, **kwargs)


def _blocks(network: nn.Module) -> set[nn.Module]:
    """Find the innermost modules of the user's own classes with two or more convolutions, such as residual blocks."""

    def convolutions(module: nn.Module) -> int:
        return sum(isinstance(child, _ConvNd) for child in module.modules())

    candidates = {
        module
        for module in network.modules()
        if module is not network and not isinstance(module, nn.Sequential | nn.ModuleList) and convolutions(module) > 1
    }
    return {
        module
        for module in candidates
        if not any(inner in candidates for inner in module.modules() if inner is not module)
    }
