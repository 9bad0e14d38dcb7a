"""Stochastic variational inference: Gaussian weights trained on the evidence lower bound (appendix F.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from qipf.predictive._fitting import train_new
from qipf.predictive.base import ModelOrFactory, Network, Predictive
from qipf.predictive.flipout import Flipout
from qipf.predictive.heads import trunk_of
from qipf.predictive.randomness import derive, normal
from qipf.predictive.structure import last, replace, trace
from qipf.training import negative_log_likelihood

if TYPE_CHECKING:
    from qipf.models.split import Split


class SVI(Predictive):
    """Mean-field Gaussian weights in every dense layer and the last convolution, trained with Flipout.

    Minimises the negative evidence lower bound per example,

        -mean_i log p(y_i | x_i, w) + KL(q || prior) / N,    w ~ q,

    by the optimiser of `qipf.training.train`. Classes have the categorical likelihood; regression has
    N(f(x), noise^2). One pass draws one set of weights from q for all inputs: for each input that is the same
    distribution as Flipout's, at half the cost.
    """

    name: ClassVar[str] = "svi"

    def __init__(
        self,
        *,
        passes: int = 100,
        epochs: int = 100,
        prior_std: float = 1.0,
        initial_std: float = 0.05,
        noise: float = 1.0,
        **training: Any,
    ) -> None:
        """Set up the method.

        Args:
            passes: Number of passes.
            epochs: Number of epochs; the paper takes 100.
            prior_std: Standard deviation of the weights' prior N(0, prior_std^2).
            initial_std: Where the weights' standard deviations start.
            noise: Standard deviation of the targets of a regression.
            training: Other settings of `qipf.training.train`.
        """
        for setting, value in (("prior_std", prior_std), ("initial_std", initial_std), ("noise", noise)):
            if not value > 0:
                raise ValueError(f"{setting}: expected a positive number, got {value}")
        self.passes, self.prior_std, self.initial_std, self.noise = passes, prior_std, initial_std, noise
        self.training = {"epochs": epochs, **training}

    def _layers(self, net: nn.Module) -> list[str]:
        """The layers to make random: every dense layer and the last convolution."""
        steps = trace(net, self._example)
        dense = [step.name for step in steps if step.kind == "dense"]
        convolution = last(steps, "convolution")
        return list(dict.fromkeys(dense + ([convolution] if convolution else [])))

    def _randomise(self, net: nn.Module) -> nn.Module:
        names = self._layers(net)
        if not names:
            raise ValueError("the network has no dense layer and no convolution to give random weights")
        for name in names:
            layer: Any = net.get_submodule(name)
            random = Flipout(layer, self.initial_std)
            if layer is net:
                return random
            replace(net, name, random)
        return net

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        def loss(net: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
            return self._negative_log_likelihood(outputs, targets) + self.kl(net) / len(data.inputs)

        net = train_new(
            model_or_factory,
            data,
            seed=seed,
            device=device,
            progress=progress,
            options=self.training,
            prepare=self._randomise,
            loss=loss,
        )
        self._prepare(net)
        return net

    def kl(self, net: nn.Module | None = None) -> Tensor:
        """KL divergence of the weights' distribution from their prior, summed over all weights."""
        layers = [module for module in (net or self._ready()).modules() if isinstance(module, Flipout)]
        return torch.stack([layer.kl(self.prior_std) for layer in layers]).sum()

    def _negative_log_likelihood(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean over the batch, sum over the outputs of a regression, up to a constant."""
        mean = negative_log_likelihood(outputs, targets)
        return mean if self._classes else mean * targets[0].numel() / (2 * self.noise**2)

    def _prepare(self, net: nn.Module) -> None:
        """Get ready to draw passes from the trained network."""

    def _network(self, k: int, seed: int) -> Network:
        net, key = self._ready(), derive(seed, self.name, k)
        layers = {name: module for name, module in net.named_modules() if isinstance(module, Flipout)}
        noise = {name: normal(layer.rho.shape, derive(key, name), layer.rho.device) for name, layer in layers.items()}

        def forward(x: Tensor) -> Tensor:
            try:
                for name, layer in layers.items():
                    layer.noise = noise[name]
                return self._run(net, x)
            finally:
                for layer in layers.values():
                    layer.noise = None

        return forward

    def _run(self, net: nn.Module, x: Tensor) -> Tensor:
        return net(x)

    def _load_state(self, net: nn.Module, state: Mapping[str, Tensor], data: Split | None) -> nn.Module:
        net = super()._load_state(self._randomise(net), state, data).eval()
        self._prepare(net)
        return net


class SVILastLayer(SVI):
    """SVI with random weights in the last dense layer only (appendix F.1): 50 epochs."""

    name: ClassVar[str] = "svi-ll"

    def __init__(self, *, epochs: int = 50, **settings: Any) -> None:
        """Set up the method; see `SVI` for the settings."""
        super().__init__(epochs=epochs, **settings)

    def _layers(self, net: nn.Module) -> list[str]:
        name = last(trace(net, self._example), "dense")
        return [] if name is None else [name]

    def _prepare(self, net: nn.Module) -> None:
        self._head = next(module for module in net.modules() if isinstance(module, Flipout))
        self._shared = trunk_of(net.eval(), self._head, self._example)

    def _trunk(self) -> Callable[[Tensor], Tensor] | None:
        return self._shared

    def _run(self, net: nn.Module, x: Tensor) -> Tensor:
        return net(x) if self._shared is None else self._head(x)
