"""MC dropout: a trained network, run many times with dropout left on (Gal and Ghahramani 2016; appendix F.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from qipf.predictive import masks
from qipf.predictive._fitting import train_new
from qipf.predictive.base import ModelOrFactory, Network, Predictive
from qipf.predictive.heads import trunk_of
from qipf.predictive.randomness import derive
from qipf.predictive.structure import last, private_copy, trace

if TYPE_CHECKING:
    from qipf.models.split import Split

RATES = {"lenet": 0.1, "vgg3": 0.2}
"""The rates that the paper found best for MC dropout (appendix F.2); 0.2 for the last layer of every network."""


class MCDropout(Predictive):
    """Dropout after each convolutional block and before each dense layer, on while predicting.

    p_k(y | x) = softmax(f(x; m_k)), with masks m_k ~ Bernoulli(1 - rate) / (1 - rate) drawn anew for every input and
    pass. The layers are put into a copy of any network (see `masks.places`); dropout that the network has already, as a
    module or as a function, is on as well; batch-norm and everything else predicts as usual.
    """

    name: ClassVar[str] = "mc-dropout"

    def __init__(self, rate: float = 0.1, *, passes: int = 100, own_rates: bool = False, **training: Any) -> None:
        """Set up the method.

        Args:
            rate: Share of the values dropped; the paper takes 0.1 for LeNet, 0.2 for VGG-3.
            passes: Number of passes.
            own_rates: Keep the rates of the network's own dropout instead of `rate`.
            training: Settings of `qipf.training.train`, used where `fit` is given a factory: the network is then
                trained with the dropout layers in place.
        """
        _check(rate, passes)
        self.rate, self.passes, self.own_rates, self.training = rate, passes, own_rates, training

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        if isinstance(model_or_factory, nn.Module):
            net = private_copy(model_or_factory).to(device).eval()
            self._places = self._find_places(net)
            return net

        def dropping(net: nn.Module) -> AbstractContextManager[None]:
            self._places = self._find_places(net)
            return masks.inserted(net, self._places, lambda x: functional.dropout(x, self.rate, net.training))

        return train_new(
            model_or_factory,
            data,
            seed=seed,
            device=device,
            progress=progress,
            options=self.training,
            during=dropping,
        )

    def _find_places(self, net: nn.Module) -> list[masks.Place]:
        steps = trace(net, self._example)
        found = masks.places(steps)
        if not found and not any(step.kind == "dropout" for step in steps):
            raise ValueError(
                "the network has no place for dropout: no dense layer after another layer, no convolutional block "
                "before another convolution, and no dropout of its own"
            )
        self._batched = masks.batched(net, found, self._example)
        return found

    def _network(self, k: int, seed: int) -> Network:
        net, where, key = self._ready(), self._places, derive(seed, self.name, k)

        def forward(x: Tensor, start: int) -> Tensor:
            rate = None if self.own_rates else self.rate
            mode = masks.Masks(key, start, len(x), rate=rate, where=self._batched)
            with mode, masks.inserted(net, where, lambda values: mode.drop(values, self.rate)):
                return net(x)

        return forward

    def _load_state(self, net: nn.Module, state: Mapping[str, Tensor], data: Split | None) -> nn.Module:
        net = super()._load_state(net, state, data)
        self._places = self._find_places(net)
        return net


class MCDropoutLastLayer(Predictive):
    """One dropout layer, before the last dense layer (appendix F.2); all that comes before is computed once.

    The network's own dropout stays off.
    """

    name: ClassVar[str] = "mc-dropout-ll"

    def __init__(self, rate: float = 0.2, *, passes: int = 100, **training: Any) -> None:
        """Set up the method.

        Args:
            rate: Share of the values dropped; the paper takes 0.2 for every network.
            passes: Number of passes.
            training: Settings of `qipf.training.train`, used where `fit` is given a factory.
        """
        _check(rate, passes)
        self.rate, self.passes, self.training = rate, passes, training

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        if isinstance(model_or_factory, nn.Module):
            net = private_copy(model_or_factory).to(device).eval()
        else:
            net = train_new(
                model_or_factory, data, seed=seed, device=device, progress=progress, options=self.training
            ).eval()
        self._find_head(net)
        return net

    def _find_head(self, net: nn.Module) -> None:
        name = last(trace(net, self._example), "dense")
        if name is None:
            raise ValueError("the network has no dense layer (torch.nn.Linear) to put dropout in front of")
        self._head_name = name
        self._fast_trunk = trunk_of(net, net.get_submodule(name), self._example)
        self._batched = None  # the trunk gives one row for each example
        if self._fast_trunk is None:
            self._batched = masks.batched(net, [masks.Place(name, "input")], self._example, on=False)

    def _trunk(self) -> Callable[[Tensor], Tensor] | None:
        return self._fast_trunk

    def _network(self, k: int, seed: int) -> Network:
        net, key = self._ready(), derive(seed, self.name, k)
        head, where = net.get_submodule(self._head_name), [masks.Place(self._head_name, "input")]

        def forward(x: Tensor, start: int) -> Tensor:
            mode = masks.Masks(key, start, len(x), rate=None, on=False, where=self._batched)
            if self._fast_trunk is not None:
                return head(mode.drop(x, self.rate))
            with mode, masks.inserted(net, where, lambda values: mode.drop(values, self.rate)):
                return net(x)

        return forward

    def _load_state(self, net: nn.Module, state: Mapping[str, Tensor], data: Split | None) -> nn.Module:
        net = super()._load_state(net, state, data).eval()
        self._find_head(net)
        return net


def _check(rate: float, passes: int) -> None:
    if not 0 < rate < 1:
        raise ValueError(f"rate: expected a share between 0 and 1, got {rate}")
    if passes < 1:
        raise ValueError(f"passes: expected at least 1, got {passes}")
