"""MC dropout: run a trained network several times with dropout enabled (Gal and Ghahramani 2016)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from qipf._common.errors import check_choice, check_probability, check_whole
from qipf.predictive import masks
from qipf.predictive._fitting import build, derive, train_own
from qipf.predictive.method import ModelOrFactory, Network, Predictive
from qipf.predictive.structure import trace, trunk_of

if TYPE_CHECKING:
    from qipf.training.loop import Split


class MCDropout(Predictive):
    """Dropout after each convolutional block and before each dense layer, enabled during prediction.

    p_k(y | x) = softmax(f(x; m_k)), with masks m_k ~ Bernoulli(1 - rate) / (1 - rate) drawn for every pass (appendix
    F.2 of the paper). The dropout layers are inserted into a copy of the network. The network's own dropout is also
    enabled: dropout modules and functions, and attention dropout in `torch.nn.MultiheadAttention`. Attention dropout
    stays disabled, with a warning, in modules that call `scaled_dot_product_attention` directly and in
    `MultiheadAttention` with extra keys and values (such as `add_bias_kv`). All other layers run in evaluation mode.
    """

    name: ClassVar[str] = "mc-dropout"

    def __init__(self, rate: float = 0.1, *, passes: int = 100, own_rates: bool = False, **training: Any) -> None:
        """Set up the method.

        Args:
            rate: The dropout rate; the paper uses 0.1 for LeNet and 0.2 for VGG-3.
            passes: The number of passes.
            own_rates: Keep the rates of the network's own dropout instead of replacing them with `rate`.
            training: Keyword arguments for `qipf.training.train`, used if `fit` is given a factory; the network is then
                trained with the dropout layers.
        """
        check_probability("rate", rate)
        check_whole("passes", passes, 1)
        self.rate, self.passes, self.own_rates, self.training = rate, passes, own_rates, training
        self._own_dropout = True

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        net = build(model_or_factory, seed, device)
        if not isinstance(model_or_factory, nn.Module):
            where = self._find_places(net) if self._own_dropout else []
            with masks.inserted(net, where, lambda values: functional.dropout(values, self.rate, net.training)):
                train_own(net, data, seed=seed, progress=progress, options=self.training)
        return net

    def _prepare(self, net: nn.Module) -> None:
        self._places = self._find_places(net)
        self._shapes: dict[torch.Size, list[torch.Size]] = {}

    def _find_places(self, net: nn.Module) -> list[masks.Place]:
        steps = trace(net, self._example)
        found = masks.places(steps)
        unknown = sorted({step.name for step in steps if step.kind == "unknown dropout"})
        if unknown:
            shown = ", ".join(map(repr, unknown[:3])) + (", ..." if len(unknown) > 3 else "")
            warnings.warn(
                f"{self.name}: attention dropout stays disabled in {shown}; it is supported only in "
                "nn.MultiheadAttention without extra keys and values, or as nn.Dropout",
                stacklevel=4,
            )
        if not found and not any(step.kind in ("dropout", "attention dropout") for step in steps):
            raise ValueError(
                "model_or_factory: expected a network with dropout or with layers to which it can be added"
            )
        return found

    def _network(self, k: int, seed: int) -> Network:
        net, key = self._ready(), derive(seed, self.name, k)
        rate = None if self.own_rates else self.rate

        def forward(x: Tensor) -> Tensor:
            mode = masks.Masks(key, self._shapes_for(net, x), rate=rate, own=self._own_dropout)
            with mode, masks.inserted(net, self._places, lambda values: mode.drop(values, self.rate)):
                return net(x)

        return forward

    def _shapes_for(self, net: nn.Module, x: Tensor) -> list[torch.Size]:
        """Return the shapes of the tensors to which dropout is applied for one example, cached by input shape."""
        shape = x.shape[1:]
        if len(x) and shape not in self._shapes:
            self._shapes[shape] = masks.shapes_of_one(net, self._places, x, own=self._own_dropout)
        return self._shapes.get(shape, [])


class MCDropoutLastLayer(MCDropout):
    """One dropout layer before one of the last two dense layers; the network's own dropout stays disabled.

    If the dropout layer precedes the last dense layer, as in the paper (appendix F.2) and in Riquelme et al. 2018, and
    the network returns the output of that dense layer, the earlier layers are evaluated once for all passes.
    """

    name: ClassVar[str] = "mc-dropout-ll"

    def __init__(
        self,
        rate: float = 0.2,
        *,
        passes: int = 100,
        before: Literal["second-to-last", "last"] = "second-to-last",
        **training: Any,
    ) -> None:
        """Set up the method.

        Args:
            rate: The dropout rate; the paper uses 0.2 for every network.
            passes: The number of passes.
            before: The dense layer that the dropout layer precedes. "second-to-last" is the setting of the authors'
                code; the last dense layer is used instead if it is the only one, or if the second-to-last reads the raw
                input. "last" is the setting of the paper.
            training: Keyword arguments for `qipf.training.train`, used if `fit` is given a factory; the network is then
                trained without the dropout layer.
        """
        check_choice("before", before, ("second-to-last", "last"))
        super().__init__(rate, passes=passes, **training)
        self.before = before
        self._own_dropout = False

    def _find_places(self, net: nn.Module) -> list[masks.Place]:
        layers = [step for step in trace(net, self._example) if step.kind in ("dense", "convolution")]
        dense = [place for place, step in enumerate(layers) if step.kind == "dense"]
        if not dense:
            raise ValueError("model_or_factory: expected a network with a dense layer (torch.nn.Linear), got none")
        second = self.before == "second-to-last" and len(dense) > 1 and dense[-2] > 0
        return [masks.Place(layers[dense[-2 if second else -1]].name, "input")]

    def _prepare(self, net: nn.Module) -> None:
        super()._prepare(net)
        self._trunk = trunk_of(net, net.get_submodule(self._places[0].name), self._example)

    def _network(self, k: int, seed: int) -> Network:
        if self._trunk is None:
            return super()._network(k, seed)
        head, key = self._ready().get_submodule(self._places[0].name), derive(seed, self.name, k)
        return lambda x: head(masks.Masks(key, [x[:1].shape], rate=None).drop(x, self.rate))
