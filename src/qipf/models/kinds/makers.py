"""Which layer of a network makes its logits, where several layers could, as in networks with an auxiliary head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from qipf.models.features import first_tensor

NEAR = 0.2
"""The largest difference between logits and the enlarged output of the layer that makes them, in standard deviations
of the logits: how images are enlarged is known up to details."""
WAYS: tuple[dict[str, Any], ...] = (
    {"mode": "nearest"},
    {"mode": "bilinear", "align_corners": False},
    {"mode": "bilinear", "align_corners": True},
    {"mode": "bicubic", "align_corners": False},
)
"""How networks enlarge their logits to the size of the image."""


def could_make(model: nn.Module, kind: type[nn.Module], channels: int) -> list[nn.Module]:
    """Return the layers of this type that have as many outputs as there are logits per pixel."""
    return [module for module in model.modules() if isinstance(module, kind) and _outputs(module) == channels]


def find_maker(model: nn.Module, could: list[nn.Module], run: Callable[[], Tensor]) -> nn.Module | None:
    """Return the layer whose output, perhaps enlarged, is the logits (N, C, H, W); None if none of them was called.

    Args:
        model: The network.
        could: What `could_make` returned.
        run: Runs the network on a little data and returns its logits.

    Raises:
        ValueError: It cannot be told which of them makes the logits.
    """
    names = {module: name for name, module in model.named_modules()}
    seen = _Seen(names, could)
    try:
        logits = run().float()
    finally:
        seen.close()
    apart = {module: _difference(output, logits) for module, output in seen.outputs.items()}
    order = sorted(apart, key=lambda module: apart[module])
    if not order:
        return None
    if apart[order[0]] > NEAR or (len(order) > 1 and apart[order[1]] < 2 * apart[order[0]]):
        told = ", ".join(names[module] for module in seen.outputs)
        before = next((f", for example features={name!r}" for name in seen.before.values()), "")
        raise ValueError(
            f"features: it cannot be told which layer makes the logits; as many outputs as there are logits per pixel, "
            f"{logits.shape[1]}, have {told}; name the module whose output enters the right one{before}"
        )
    return order[0]


def _outputs(module: nn.Module) -> int:
    weight = getattr(module, "weight", None)
    return weight.shape[0] if isinstance(weight, Tensor) else 0


class _Seen:
    """The outputs of some layers in one pass, and the names of the modules whose outputs enter them."""

    def __init__(self, names: dict[nn.Module, str], layers: list[nn.Module]) -> None:
        self.outputs: dict[nn.Module, Tensor] = {}
        self.before: dict[nn.Module, str] = {}
        self._names, self._layers = names, layers
        self._previous: tuple[str, Any] = ("", None)
        self._handles = [
            module.register_forward_hook(self._keep) for module in names if next(module.children(), None) is None
        ]

    def close(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()

    def _keep(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        found = first_tensor(output)
        if found is None:
            return
        if module in self._layers:
            self.outputs[module] = found.detach()
            if first_tensor(inputs) is self._previous[1]:
                self.before[module] = self._previous[0]
        self._previous = (self._names[module], found)


def _difference(output: Tensor, logits: Tensor) -> float:
    """How far an output, enlarged, is from the logits, in standard deviations of the logits."""
    if output.ndim != 4 or output.shape[:2] != logits.shape[:2]:
        return float("inf")
    size = logits.shape[2:]
    scaled = (nn.functional.interpolate(output.float(), size=size, **way) for way in WAYS)
    tried = (output.float(),) if output.shape == logits.shape else scaled
    spread = float(logits.std().clamp(min=torch.finfo(torch.float32).tiny))
    return min(float((one - logits).square().mean().sqrt()) / spread for one in tried)
