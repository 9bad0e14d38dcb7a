"""What the methods share whose passes are networks that the fit has left behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from qipf.predictive.base import Network, Predictive

if TYPE_CHECKING:
    from qipf.models.split import Split


class Snapshots(Predictive):
    """Pass k is network k of those in `_kept`, so the passes do not depend on the seed of `sample`."""

    stored_as: ClassVar[str]
    """What the networks are called in the state and in messages."""
    _kept: list[dict[str, Tensor]]

    def _keep(self, net: nn.Module) -> None:
        self._kept.append(snapshot(net))

    def _passes(self, n: int | None) -> int:
        n = super()._passes(n)
        if n > len(self._kept):
            raise ValueError(f"n: {n} passes were asked for, but there are {len(self._kept)} {self.stored_as}")
        return n

    def _network(self, k: int, seed: int) -> Network:
        del seed
        net, weights = self._ready(), self._kept[k]
        return lambda x: functional_call(net, weights, (x,))

    def _state(self) -> dict[str, Tensor]:
        return {f"{self.stored_as}.{name}": torch.stack([one[name] for one in self._kept]) for name in self._kept[0]}

    def _load_state(self, net: nn.Module, state: Mapping[str, Tensor], data: Split | None) -> nn.Module:
        del data
        stacked: dict[str, Tensor] = {}
        for name, own in snapshot(net).items():
            stacked[name] = state[f"{self.stored_as}.{name}"].to(own.device)
            found, expected = tuple(stacked[name].shape[1:]), tuple(own.shape)
            if found != expected:
                raise ValueError(f"state: {name} has shape {found}, expected {expected}")
        count = len(next(iter(stacked.values())))
        self._kept = [{name: values[k] for name, values in stacked.items()} for k in range(count)]
        return net


def snapshot(network: nn.Module) -> dict[str, Tensor]:
    """Copy all parameters and buffers by name; a tensor with several names (tied weights) has its first one."""
    tensors = [*network.named_parameters(), *network.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in tensors}
