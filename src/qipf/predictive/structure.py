"""Trace the layers of a network in execution order, extract its trunk, and apply dropout to attention weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from qipf.runners.recorder import untouched
from qipf.training import device_of

ATTENTION: Any = functional.multi_head_attention_forward
"""The function that `torch.nn.MultiheadAttention` calls."""
FUSED: Any = functional.scaled_dot_product_attention
"""The function that user-defined attention modules call, usually with a dropout rate of 0 in evaluation mode."""

_SIGNATURE = inspect.signature(ATTENTION)
_EXTRA = ("bias_k", "bias_v", "static_k", "static_v")

Kind = Literal["convolution", "dense", "block end", "dropout", "attention dropout", "unknown dropout"]


@dataclass(frozen=True)
class Step:
    """One event of a forward pass.

    Attributes:
        kind: The event. "block end" is the end of a user-defined block of convolutions; "unknown dropout" is attention
            dropout that cannot be enabled, because its rate is passed only during training or there are extra keys or
            values.
        name: The name of the module; empty for "dropout", which may be a function.
        reduced: True for a convolution whose input is smaller than the output of the previous convolution, because of
            pooling.
    """

    kind: Kind
    name: str
    reduced: bool = False


def trace(network: nn.Module, example: Tensor) -> list[Step]:
    """Run `network` on `example` and list its convolutions, dense layers, block ends and dropout calls in order."""
    recorder = _Recorder(network)
    try:
        with untouched(network, eager=True), recorder:
            network(example.to(device_of(network)))
    finally:
        for handle in recorder.handles:
            handle.remove()
    return recorder.steps


def last(steps: list[Step], kind: Kind) -> str | None:
    """Return the name of the last layer of the given kind, or None."""
    return next((step.name for step in reversed(steps) if step.kind == kind), None)


def replace(network: nn.Module, name: str, new: nn.Module) -> None:
    """Replace the module `name` with `new` wherever it is registered."""
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
"""The functions that torch.nn modules call to apply dropout, mapped to the kind of dropout."""


class _Recorder(torch.overrides.TorchFunctionMode):
    """Record layers with forward hooks, and dropout by intercepting the functions that apply it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.handles = []
        self._size: torch.Size | None = None  # spatial size of the last convolution's output
        self._inside: list[str] = []  # the modules that are running
        self._modules = dict(network.named_modules())
        self._blocks = _blocks(network)
        for name, module in self._modules.items():
            self.handles.append(module.register_forward_pre_hook(partial(self._enter, name)))
            self.handles.append(module.register_forward_hook(partial(self._leave, name)))

    def _enter(self, name: str, module: nn.Module, inputs: Any) -> None:
        self._inside.append(name)

    def _leave(self, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        self._inside.pop()
        if isinstance(module, _ConvNd):
            before, size = self._size, inputs[0].shape[2:]
            smaller = before is not None and any(a < b for a, b in zip(size, before, strict=False))
            self.steps.append(Step("convolution", name, reduced=smaller))
            self._size = output.shape[2:]
        elif isinstance(module, nn.Linear):
            self.steps.append(Step("dense", name))
        elif module in self._blocks:
            self.steps.append(Step("block end", name))

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
    """Return the innermost user-defined modules with two or more convolutions, such as residual blocks."""

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


def attention_rate(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Return the training dropout rate of `MultiheadAttention` from the arguments of a call to `ATTENTION`."""
    return float(_SIGNATURE.bind(*args, **kwargs).arguments["dropout_p"])


def can_drop(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if `attend` supports this call to `ATTENTION` (without extra keys or values)."""
    given = _SIGNATURE.bind(*args, **kwargs).arguments
    return not given.get("add_zero_attn") and all(given.get(name) is None for name in _EXTRA)


def attend(args: tuple[Any, ...], kwargs: dict[str, Any], drop: Callable[[Tensor], Tensor]) -> tuple[Tensor, Any]:
    """Compute `ATTENTION` with `drop` applied to the attention weights (N, heads, targets, sources)."""
    given = _SIGNATURE.bind(*args, **kwargs)
    given.apply_defaults()
    wanted = given.arguments
    asked = {**wanted, "training": False, "need_weights": True, "average_attn_weights": False}
    _, weights = ATTENTION(**asked)
    batched = wanted["query"].ndim == 3
    value = wanted["value"] if batched else wanted["value"].unsqueeze(1)
    weights = drop(weights if batched else weights.unsqueeze(0))
    bias = wanted["in_proj_bias"]
    projection = wanted["v_proj_weight"] if wanted["use_separate_proj_weight"] else wanted["in_proj_weight"].chunk(3)[2]
    projected = functional.linear(value, projection, None if bias is None else bias.chunk(3)[2])
    sources, rows, width = projected.shape
    heads = projected.view(sources, rows, wanted["num_heads"], -1).permute(1, 2, 0, 3)
    joined = (weights @ heads).permute(2, 0, 1, 3).reshape(-1, rows, width)
    output = functional.linear(joined, wanted["out_proj_weight"], wanted["out_proj_bias"])
    shown = weights.mean(1) if wanted["average_attn_weights"] else weights
    if not batched:
        output, shown = output.squeeze(1), shown.squeeze(0)
    return output, shown if wanted["need_weights"] else None


def own_rate(module: nn.Module) -> bool:
    """Return True if an attribute or submodule whose name contains "drop" has a positive rate."""
    parts = {**vars(module), **dict(module.named_children())}
    rates = [getattr(part, "p", part) for name, part in parts.items() if "drop" in name.lower()]
    return any(isinstance(rate, float) and rate > 0 for rate in rates)


def fused_rate(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Return the dropout rate from the arguments of a call to `FUSED`."""
    rate = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
    return float(rate) if not isinstance(rate, torch.Tensor) else float(rate.item())


class _Found(Exception):
    """Stop a forward pass at the head; `features` is the input of the head."""

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.features = features


def trunk_of(network: nn.Module, head: nn.Module, example: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return the trunk, which computes the input of `head`, or None if head(trunk(x)) is not the network's output."""

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
        raise RuntimeError("the head did not run")

    with torch.no_grad():
        x = example.to(device_of(network))
        outputs = network(x)
        features = trunk(x)
        same = features.shape[:1] == x.shape[:1] and torch.equal(head(features), outputs)
    return trunk if same else None
