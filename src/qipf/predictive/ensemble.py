"""Deep ensembles of networks trained from different initialisations (Lakshminarayanan et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from qipf._common.errors import check_whole
from qipf.predictive._fitting import build, derive, train_own
from qipf.predictive.method import ModelOrFactory, Network, Predictive

if TYPE_CHECKING:
    from qipf.training.loop import Split


class Snapshots(Predictive):
    """Base class for methods in which pass k runs the k-th stored network, regardless of the seed."""

    stored_as: ClassVar[str]
    """The name of the stored networks in the state and in messages."""
    _kept: list[dict[str, Tensor]]

    def _passes(self, n: int | None) -> int:
        n = super()._passes(n)
        if n > len(self._kept):
            count = len(self._kept)
            raise ValueError(f"n: expected at most {count}, got {n}; there are {count} {self.stored_as}")
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
                raise ValueError(f"state: expected shape {expected} for {name!r}, got {found}")
        count = len(next(iter(stacked.values())))
        self._kept = [{name: values[k] for name, values in stacked.items()} for k in range(count)]
        return net


class DeepEnsemble(Snapshots):
    """Networks with different initial weights and data orders (appendix F.3 of the paper); pass k runs member k."""

    name: ClassVar[str] = "ensemble"
    stored_as: ClassVar[str] = "members"

    def __init__(self, members: int = 10, **training: Any) -> None:
        """Set up the method.

        Args:
            members: The number of networks, which is also the number of passes.
            training: Keyword arguments for `qipf.training.train`; the member's index is appended to `checkpoint`.
        """
        check_whole("members", members, 1)
        self.passes, self.training = members, training

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        if isinstance(model_or_factory, nn.Module):
            raise TypeError(
                "model_or_factory: expected a function that builds a new network with random initial weights, "
                "got a network; pass lambda: YourNetwork(...)"
            )
        checkpoint = self.training.get("checkpoint")
        nets = []
        for k in range(self.passes):
            options = self.training | ({} if checkpoint is None else {"checkpoint": f"{checkpoint}.{k}"})
            net = build(model_or_factory, derive(seed, k), device)
            nets.append(train_own(net, data, seed=derive(seed, k), progress=progress, options=options))
        self._kept = [snapshot(net) for net in nets]
        return nets[0]


def snapshot(network: nn.Module) -> dict[str, Tensor]:
    """Return copies of all parameters and buffers, keyed by name."""
    tensors = [*network.named_parameters(), *network.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in tensors}
