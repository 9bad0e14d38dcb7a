"""Deep ensemble: networks trained from different initial weights (Lakshminarayanan et al. 2017; appendix F.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from qipf.models.split import Split
from qipf.predictive._fitting import EPOCHS, build
from qipf.predictive.base import ModelOrFactory, Network, Predictive
from qipf.predictive.iterates import unstack
from qipf.predictive.randomness import derive
from qipf.predictive.structure import has_batch_norm, snapshot
from qipf.training import negative_log_likelihood, train


class DeepEnsemble(Predictive):
    """Networks with their own initial weights and their own order of the data; pass k is member k.

    They are trained one after another, or all at once by `torch.func.vmap`: the same mathematics, since Adam and SGD
    treat every weight alone and the gradient of the summed losses is that of each. The members' data are
    permuted beforehand, each its own way, so that one stream of batches serves all of them.
    """

    name: ClassVar[str] = "ensemble"

    def __init__(self, members: int = 10, *, vectorised: bool | None = None, **training: Any) -> None:
        """Set up the method.

        Args:
            members: Number of networks, and of passes.
            vectorised: Train all at once. By default where that was measured to be faster: networks without batch-norm
                on a GPU (ten LeNets 4.7 times, an MLP 5 times), without convolutions on the CPU (2 to 3.4 times).
            training: Settings of `qipf.training.train`. A checkpoint's name gets the member's number behind it.
        """
        if members < 1:
            raise ValueError(f"members: expected at least 1, got {members}")
        self._one_by_one = training.get("augment", "none") != "none" or training.get("checkpoint") is not None
        if vectorised and self._one_by_one:
            raise ValueError(
                "vectorised: augmentation and checkpoints work on one network at a time; set vectorised=False"
            )
        self.passes, self.vectorised = members, vectorised
        self.training = {"epochs": EPOCHS, "loss": negative_log_likelihood, **training}

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        if isinstance(model_or_factory, nn.Module):
            raise TypeError(
                "model_or_factory: an ensemble needs a function that builds a new network with other initial weights "
                "each time, got a network; pass lambda: YourNetwork(...)"
            )
        nets = [build(model_or_factory, derive(seed, k), device) for k in range(self.passes)]
        orders = [_permutation(len(data.inputs), derive(seed, "order", k)) for k in range(self.passes)]
        settings = {"seed": derive(seed, "batches"), "device": device, "progress": progress, **self.training}
        if self.vectorised if self.vectorised is not None else self._vectorise(nets[0], device):
            stacked = _Stacked(nets, data, torch.stack(orders), settings.pop("loss"))
            places = torch.arange(len(data.inputs))
            # float targets: to the training loop this is a regression, whose accuracy it does not count
            train(stacked, Split(places, places.double()), loss=stacked.loss, **settings)
            self._members = stacked.members()
        else:
            checkpoint = settings.pop("checkpoint", None)
            for k, (net, order) in enumerate(zip(nets, orders, strict=True)):
                file = None if checkpoint is None else f"{checkpoint}.{k}"
                train(net, Split(data.inputs[order], data.targets[order]), checkpoint=file, **settings)
            self._members = [snapshot(net) for net in nets]
        return nets[0]

    def _vectorise(self, net: nn.Module, device: torch.device) -> bool:
        if self.passes == 1 or self._one_by_one:
            return False
        if device.type == "cuda":
            return not has_batch_norm(net)
        return not any(parameter.ndim > 2 for parameter in net.parameters())

    def _passes(self, n: int | None) -> int:
        n = super()._passes(n)
        if n > len(self._members):
            raise ValueError(f"n: {n} passes were asked for, but the ensemble has {len(self._members)} members")
        return n

    def _network(self, k: int, seed: int) -> Network:
        del seed
        net, member = self._ready(), self._members[k]
        return lambda x: functional_call(net, member, (x,))

    def _state(self) -> dict[str, Tensor]:
        return {f"members.{name}": torch.stack([member[name] for member in self._members]) for name in self._members[0]}

    def _load_state(self, net: nn.Module, state: Mapping[str, Tensor], data: Split | None) -> nn.Module:
        del data
        self._members = unstack(state, "members.", net)
        return net


class _Stacked(nn.Module):
    """All members as one network: a batch of places in the data -> the members' outputs (M, B, C)."""

    def __init__(self, nets: list[nn.Module], data: Split, orders: Tensor, loss: Any) -> None:
        super().__init__()
        self._count, self._loss = len(nets), loss
        self._skeleton = [nets[0]]  # in a list, so that its parameters are not ours
        device = next(nets[0].parameters()).device
        self._data = data.inputs.to(device), data.targets.to(device)
        self._orders = orders.to(device)
        self._names = dict(nets[0].named_parameters())
        # vectors stay vectors, since the optimiser decays weights by their number of axes
        stacked = {name: torch.stack([net.get_parameter(name).detach() for net in nets]) for name in self._names}
        self.weights = nn.ParameterList(
            nn.Parameter(values.flatten() if values.ndim <= 2 else values, self._names[name].requires_grad)
            for name, values in stacked.items()
        )
        self._statistics = {
            name: torch.stack([net.get_buffer(name) for net in nets]) for name, _ in nets[0].named_buffers()
        }

    def _parameters_by_name(self) -> dict[str, Tensor]:
        shapes = [(self._count, *parameter.shape) for parameter in self._names.values()]
        return {name: values.view(shape) for name, values, shape in zip(self._names, self.weights, shapes, strict=True)}

    def forward(self, places: Tensor) -> Tensor:
        net = self._skeleton[0].train(self.training)

        def member(weights: dict[str, Tensor], statistics: dict[str, Tensor], x: Tensor) -> Tensor:
            return functional_call(net, {**weights, **statistics}, (x,))

        x = self._data[0][self._orders[:, places]]
        run = vmap(member, randomness="different")
        if not self._statistics:
            return run(self._parameters_by_name(), self._statistics, x)
        with torch.autocast(x.device.type, enabled=False):  # vmap's batch-norm does not take mixed precision
            return run(self._parameters_by_name(), self._statistics, x)

    def loss(self, outputs: Tensor, places: Tensor) -> Tensor:
        """The sum of the members' losses, so that each member's gradient is its own."""
        targets = self._data[1][self._orders[:, places.long()]]
        return vmap(self._loss)(outputs, targets).sum()

    def members(self) -> list[dict[str, Tensor]]:
        """A snapshot of each member."""
        stacked = {**self._parameters_by_name(), **self._statistics}
        return [{name: values[k].detach().clone() for name, values in stacked.items()} for k in range(self._count)]


def _permutation(length: int, seed: int) -> Tensor:
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))
