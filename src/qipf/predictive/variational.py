"""Stochastic variational inference with Gaussian weights, trained on the evidence lower bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from qipf._common.errors import check_choice, check_positive
from qipf.predictive._fitting import build, derive, normal, train_own
from qipf.predictive.method import ModelOrFactory, Network, Predictive, batches
from qipf.predictive.structure import last, replace, trace, trunk_of
from qipf.training import device_of, negative_log_likelihood

if TYPE_CHECKING:
    from qipf.training.loop import Split

Start = Literal["scratch", "base", "trunk"]
_FLIPOUT_BATCH = 500  # inputs that share one noise sample, up to signs, in `minus_max_logit_of_one_pass`


class SVI(Predictive):
    """Mean-field Gaussian weights in every dense layer and the last convolution, trained with Flipout.

    Training minimises the negative evidence lower bound per example (appendix F.1 of the paper),

        -mean_i log p(y_i | x_i, w) + KL(q || prior) / N,    w ~ q.

    Weight decay does not apply to the random weights. The likelihood is categorical for classification and
    N(f(x), noise^2) for regression. Each pass draws one set of weights from q for all inputs.

    The defaults follow Wen et al. 2018. The authors of the QIPF paper use full batches, do not divide the KL term by N,
    and make only the dense layers random (`qipf.predictive.AUTHORS_SETTINGS`).
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
        start: Start | None = None,
        scale_kl: bool = True,
        full_batch: bool = False,
        convolution: bool = True,
        **training: Any,
    ) -> None:
        """Set up the method.

        Args:
            passes: The number of passes.
            epochs: The number of epochs; the paper uses 100.
            prior_std: The standard deviation of the weights' prior N(0, prior_std^2).
            initial_std: The initial standard deviation of the weights.
            noise: The standard deviation of the noise in regression targets.
            start: The initial weights: "scratch" uses new weights, for which `fit` needs a factory; "base" uses the
                weights of a trained network passed to `fit`; "trunk" does the same, but draws the means of the random
                layers from N(0, 0.1^2). None accepts either a factory or a network.
            scale_kl: Divide the KL term by the number of examples N, as in the bound; False is the authors' setting.
            full_batch: Use all examples in every step, which is the authors' setting.
            convolution: Make the last convolution random, as in the paper; the authors' code does not.
            training: Further keyword arguments for `qipf.training.train`.
        """
        for setting, value in (("prior_std", prior_std), ("initial_std", initial_std), ("noise", noise)):
            check_positive(setting, value)
        if start is not None:
            check_choice("start", start, get_args(Start))
        self.passes, self.prior_std, self.initial_std, self.noise = passes, prior_std, initial_std, noise
        self.start, self.scale_kl, self.full_batch, self.convolution = start, scale_kl, full_batch, convolution
        self.training = {"epochs": epochs, **training}

    def _layers(self, net: nn.Module) -> list[str]:
        """Return the names of the layers to make random."""
        steps = trace(net, self._example)
        dense = [step.name for step in steps if step.kind == "dense"]
        convolution = last(steps, "convolution") if self.convolution else None
        return list(dict.fromkeys(dense + ([convolution] if convolution else [])))

    def _randomise(self, net: nn.Module, seed: int | None = None) -> nn.Module:
        """Replace layers with Flipout layers, and draw their means from `seed` unless it is None."""
        names = self._layers(net)
        if not names:
            raise ValueError("model_or_factory: expected a network with a dense layer or a convolution, got neither")
        for name in names:
            layer: Any = net.get_submodule(name)
            if seed is not None:
                with torch.no_grad():
                    layer.weight.copy_(0.1 * normal(layer.weight.shape, derive(seed, "means", name), device_of(layer)))
                    if layer.bias is not None:
                        layer.bias.zero_()
            random = Flipout(layer, self.initial_std)
            if layer is net:
                return random
            replace(net, name, random)
        return net

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        given = "scratch" if not isinstance(model_or_factory, nn.Module) else "base"
        if self.start is not None and (self.start == "scratch") != (given == "scratch"):
            wanted = "a function that builds a new network" if self.start == "scratch" else "a trained network"
            raise TypeError(f"model_or_factory: start={self.start!r} needs {wanted}; pass one or change start")
        scale = len(data.inputs) if self.scale_kl else 1
        options = self.training | ({"batch_size": len(data.inputs)} if self.full_batch else {})

        net = build(model_or_factory, seed, device)
        net = self._randomise(net, seed if self.start == "trunk" else None).to(device)

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            mean = negative_log_likelihood(outputs, targets)
            if not self._classes:  # the sum over the outputs, up to a constant
                mean = mean * targets[0].numel() / (2 * self.noise**2)
            return mean + self.kl(net) / scale

        return train_own(net, data, seed=seed, progress=progress, options={**options, "loss": loss})

    def kl(self, net: nn.Module | None = None) -> Tensor:
        """Compute the KL divergence of the weight distribution from the prior, summed over all weights."""
        return torch.stack([layer.kl(self.prior_std) for layer in _random(net or self._ready()).values()]).sum()

    def _network(self, k: int, seed: int) -> Network:
        net, key = self._ready(), derive(seed, self.name, k)
        layers = _random(net)
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

    def _minus_max_logit(self, net: nn.Module, x: Tensor, seed: int) -> Tensor:
        """Return minus the largest logit in one Flipout pass; for a single binary logit, minus its absolute value."""
        layers, found = _random(net).values(), []
        try:
            for start, batch in batches(x, _FLIPOUT_BATCH, device_of(net)):
                generator = torch.Generator().manual_seed(derive(seed, self.name, "flipout", start))
                for layer in layers:
                    layer.generator = generator
                outputs = net(batch)
                found.append(-(outputs if outputs.shape[1] > 1 else outputs.abs()).amax(1))
        finally:
            for layer in layers:
                layer.generator = None
        return torch.cat(found).to(x.device, torch.float32)

    def _load_state(self, net: nn.Module, state: Mapping[str, Tensor], data: Split | None) -> nn.Module:
        return super()._load_state(self._randomise(net), state, data)


class SVILastLayer(SVI):
    """SVI with random weights in the last dense layer only (appendix F.1 of the paper), with 50 epochs by default.

    The authors' code starts from the trained network with a new last layer, trains all layers in batches of 10,000, and
    does not divide the KL term by N (`qipf.predictive.AUTHORS_SETTINGS`).
    """

    name: ClassVar[str] = "svi-ll"

    def __init__(self, *, epochs: int = 50, **settings: Any) -> None:
        """Set up the method; see `SVI` for the settings."""
        super().__init__(epochs=epochs, **settings)

    def _layers(self, net: nn.Module) -> list[str]:
        name = last(trace(net, self._example), "dense")
        return [] if name is None else [name]

    def _prepare(self, net: nn.Module) -> None:
        self._head = next(iter(_random(net).values()))
        self._trunk = trunk_of(net, self._head, self._example)

    def _run(self, net: nn.Module, x: Tensor) -> Tensor:
        return net(x) if self._trunk is None else self._head(x)


def _random(net: nn.Module) -> dict[str, Flipout]:
    return {name: module for name, module in net.named_modules() if isinstance(module, Flipout)}


class Flipout(nn.Module):
    """A layer whose weights follow independent Gaussians N(weight, std^2); the bias is not random.

    During training, y = f(x; weight) + r * f(s * x; std * eps), with one eps ~ N(0, 1) for the batch and random signs s
    (of the input channels) and r (of the output channels) for every example (Wen et al. 2018, eq. 4).

    During prediction, the weights are the means, or `weight + std * noise` if `noise` is set. If `generator` is set,
    the training formula is used with random numbers from this generator.
    """

    undecayed: ClassVar[tuple[str, ...]] = ("rho", "layer.weight")
    """Parameters excluded from weight decay, because the KL term of the bound regularises them."""

    def __init__(self, layer: nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d, initial_std: float = 0.05) -> None:
        """Use the weights of `layer` as the means; all standard deviations start at `initial_std`."""
        super().__init__()
        self.layer = layer
        start = torch.tensor(initial_std, dtype=torch.float64).expm1().log()  # the inverse of softplus
        self.rho = nn.Parameter(torch.full_like(layer.weight, float(start)))
        self.noise: Tensor | None = None
        self.generator: torch.Generator | None = None

    @property
    def weight(self) -> Tensor:
        """The means of the weights."""
        return self.layer.weight

    @property
    def bias(self) -> Tensor | None:
        """The bias, which is not random."""
        return self.layer.bias

    @property
    def std(self) -> Tensor:
        """The standard deviations of the weights, softplus(rho)."""
        return functional.softplus(self.rho)

    def kl(self, prior_std: float) -> Tensor:
        """Return the KL divergence of the weight distribution from the prior N(0, prior_std^2)."""
        ratio = self.std / prior_std
        return (0.5 * (ratio**2 + (self.layer.weight / prior_std) ** 2 - 1) - ratio.log()).sum()

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""
        if self.noise is not None:
            return self._compute(x, self.layer.weight + self.std * self.noise, self.layer.bias)
        mean = self._compute(x, self.layer.weight, self.layer.bias)
        if not self.training and self.generator is None:
            return mean
        drawn_on = self.rho.device if self.generator is None else self.generator.device
        noise = torch.randn(self.rho.shape, generator=self.generator, device=drawn_on).to(self.rho)
        signs_in = self._signs(x, self.rho.shape[1] * getattr(self.layer, "groups", 1), drawn_on)
        signs_out = self._signs(mean, self.rho.shape[0], drawn_on)
        return mean + signs_out * self._compute(x * signs_in, self.std * noise, None)

    @property
    def _dense(self) -> bool:
        return isinstance(self.layer, nn.Linear)

    def _compute(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        layer: Any = self.layer
        return functional.linear(x, weight, bias) if self._dense else layer._conv_forward(x, weight, bias)

    def _signs(self, like: Tensor, channels: int, drawn_on: torch.device) -> Tensor:
        """Draw signs per example and channel, shared by all positions and broadcastable to `like`."""
        shape = [1] * like.ndim
        shape[0] = like.shape[0]
        shape[-1 if self._dense else 1] = channels
        drawn = torch.randint(0, 2, shape, generator=self.generator, device=drawn_on)
        return drawn.to(like.device).mul_(2).sub_(1).to(like.dtype)
