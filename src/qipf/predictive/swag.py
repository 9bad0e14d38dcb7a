"""SGD iterates as an ensemble (Mandt et al. 2017), and SWAG, a Gaussian fitted to them (Maddox et al. 2019)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from qipf._common.errors import check_whole
from qipf.predictive._fitting import build, derive, normal, train_own
from qipf.predictive.ensemble import Snapshots, snapshot
from qipf.predictive.method import ModelOrFactory, Network, Predictive
from qipf.predictive.moments import Moments
from qipf.training import MOMENTUM, train

if TYPE_CHECKING:
    from qipf.training.loop import Split


class SGDIterates(Snapshots):
    """The weights visited by SGD at a constant learning rate, starting from the trained network."""

    name: ClassVar[str] = "sgd-iterates"
    stored_as: ClassVar[str] = "iterates"

    def __init__(
        self, *, iterates: int = 20, every: int | None = None, sgd_rate: float = 0.01, **training: Any
    ) -> None:
        """Set up the method.

        Args:
            iterates: The number of iterates, which is also the number of passes.
            every: The number of steps between consecutive iterates; by default, the number of steps in one epoch.
            sgd_rate: The constant learning rate of SGD.
            training: The training recipe, as keyword arguments for `qipf.training.train`. SGD uses the batch size,
                augmentation, loss and weight decay of this recipe (the weight decay is converted by `sgd_decay`). If
                `fit` is given a factory, the network is first trained with the recipe.
        """
        check_whole("iterates", iterates, 2)
        check_whole("every", 1 if every is None else every, 1)
        self.iterates, self.every, self.passes = iterates, every, iterates
        self.sgd_rate, self.training = sgd_rate, training

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        net = build(model_or_factory, seed, device)
        if not isinstance(model_or_factory, nn.Module):
            train_own(net, data, seed=seed, progress=progress, options=self.training)
        self._begin(net, data)
        kept = {name: self.training[name] for name in ("augment", "loss", "cuda_graph") if name in self.training}
        batch_size = self.training.get("batch_size", 128)
        steps = math.ceil(len(data.inputs) / batch_size)
        every = steps if self.every is None else self.every

        def on_step(done: int, _: nn.Module) -> None:
            if done % every == 0 and done <= self.iterates * every:
                self._keep(net)

        return train(
            net, data, epochs=math.ceil(self.iterates * every / steps), batch_size=batch_size, optimizer="sgd",
            learning_rate=self.sgd_rate, weight_decay=sgd_decay(self.training, self.sgd_rate), schedule="constant",
            on_step=on_step, seed=derive(seed, "iterates"), progress=progress, **kept,
        )  # fmt: skip

    def _begin(self, net: nn.Module, data: Split) -> None:
        """Prepare to collect iterates."""
        del net, data
        self._kept = []

    def _keep(self, net: nn.Module) -> None:
        self._kept.append(snapshot(net))


class SWAG(SGDIterates):
    """Weights drawn from a Gaussian fitted to the SGD iterates, with a diagonal plus low-rank covariance.

    Let w_1, ..., w_T be the iterates, m their mean, v their variances (with divisor T), and D the deviations w_i - m of
    the last K iterates, one per row. The weights of one pass are

        w = m + sqrt(scale) (sqrt(v) * z1 + D^T z2 / sqrt(K - 1)),    z1 ~ N(0, I_P),  z2 ~ N(0, I_K),

    and their covariance is scale * (diag v + D^T D / (K - 1)). With scale 1/2 and K = T, the variances are
    approximately those of the iterates. Deviations are relative to the final mean; those of Maddox et al. are relative
    to the running mean, which biases the covariance for small T. Batch-norm statistics are recomputed on the training
    inputs for every pass.
    """

    name: ClassVar[str] = "swag"

    def __init__(
        self, *, passes: int = 30, iterates: int = 20, rank: int = 20, scale: float = 0.5, **settings: Any
    ) -> None:
        """Set up the method.

        Args:
            passes: The number of passes.
            iterates: T, the number of iterates from which the mean and the variances are computed.
            rank: K, the maximum number of final iterates that form the low-rank part.
            scale: The scale factor of the covariance.
            settings: Further settings of `SGDIterates`.
        """
        super().__init__(iterates=iterates, **settings)
        check_whole("rank", rank, 2)
        if not scale >= 0:
            raise ValueError(f"scale: expected a number of at least 0, got {scale}")
        self.passes, self.rank, self.scale = passes, rank, scale

    def _begin(self, net: nn.Module, data: Split) -> None:
        self._inputs: Tensor | None = data.inputs if batch_norms(net) else None
        self._moments, self._recent = Moments(), deque[Tensor](maxlen=self.rank)

    def _keep(self, net: nn.Module) -> None:
        # not parameters_to_vector, which does not accept channels-last weights
        weights = torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()])
        self._moments.add(weights)
        self._recent.append(weights)

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        net = super()._fit(model_or_factory, data, seed, device, progress)
        self._settle()
        return net

    def _settle(self) -> None:
        """Fit the Gaussian to the iterates kept so far."""
        mean = self._moments.mean
        deviations = torch.stack(list(self._recent)) - mean
        self._gaussian = {"mean": mean, "variance": self._moments.variance, "deviations": deviations}

    def _passes(self, n: int | None) -> int:
        return Predictive._passes(self, n)

    def draw(self, k: int, seed: int = 0) -> Tensor:
        """Draw the weights of pass k as one vector, in the order of the network's parameters."""
        mean, variance, deviations = (self._gaussian[name] for name in ("mean", "variance", "deviations"))
        key = derive(seed, self.name, k)
        independent = variance.sqrt() * normal(mean.shape, derive(key, "diagonal"), mean.device)
        shared = deviations.T @ normal((len(deviations),), derive(key, "low rank"), mean.device)
        return mean + math.sqrt(self.scale) * (independent + shared / math.sqrt(len(deviations) - 1))

    def _network(self, k: int, seed: int) -> Network:
        net = self._ready()
        names = [name for name, _ in net.named_parameters()]
        shapes = [parameter.shape for parameter in net.parameters()]
        pieces = self.draw(k, seed).split([shape.numel() for shape in shapes])
        weights = {name: piece.view(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)}
        weights |= batch_norm_statistics(net, weights, self._inputs) if self._inputs is not None else {}
        return lambda x: functional_call(net, weights, (x,))

    def _state(self) -> dict[str, Tensor]:
        return Predictive._state(self) | self._gaussian

    def _load_state(self, net: nn.Module, state: Mapping[str, Tensor], data: Split | None) -> nn.Module:
        net = Predictive._load_state(self, net, state, data)
        if batch_norms(net) and data is None:
            raise ValueError(
                "data: the network has batch-norm layers, whose statistics depend on the training data; pass data=..."
            )
        self._inputs = data.inputs if data is not None and batch_norms(net) else None
        names = ("mean", "variance", "deviations")
        self._gaussian = {name: state[name].to(self._example.device) for name in names}
        return net


def batch_norms(net: nn.Module) -> dict[str, Any]:
    """Return the batch-norm layers that track running statistics, keyed by name."""
    named = net.named_modules()
    return {name: module for name, module in named if isinstance(module, _BatchNorm) and module.track_running_stats}


def batch_norm_statistics(net: nn.Module, weights: Mapping[str, Tensor], inputs: Tensor) -> dict[str, Tensor]:
    """Compute the statistics of every batch-norm layer under `weights`, averaged over batches of 500 `inputs`.

    Dropout stays disabled, and `net` is not changed.
    """
    layers = batch_norms(net)
    before = {name: (module.training, module.momentum) for name, module in layers.items()}
    statistics: dict[str, Tensor] = {}
    for name, module in layers.items():
        for buffer, value in module.named_buffers():
            statistics[f"{name}.{buffer}"] = torch.zeros_like(value)
        module.train().momentum = None  # a cumulative average
    device = next(iter(statistics.values())).device
    batches = [batch for batch in inputs.split(500) if len(batch) > 1 or len(inputs) == 1]
    try:
        for batch in batches:
            functional_call(net, {**weights, **statistics}, (batch.to(device),))
    finally:
        for name, (training, momentum) in before.items():
            layers[name].training, layers[name].momentum = training, momentum
    return statistics


def sgd_decay(options: Mapping[str, Any], sgd_rate: float) -> float:
    """Convert the weight decay of a recipe to the L2 factor of SGD with momentum at the learning rate `sgd_rate`.

    AdamW at the learning rate r(t) shrinks weights by the fraction r(t) * decay per step; SGD with momentum shrinks
    them by sgd_rate * L2 / (1 - momentum). The returned factor makes the two equal on average over AdamW's schedule.
    The weight decay of an SGD recipe is returned unchanged.
    """
    decay = options.get("weight_decay", 0.0)
    if options.get("optimizer", "adam") == "sgd":
        return decay
    mean_rate = options.get("learning_rate", 1e-3) * (0.5 if options.get("schedule", "one-cycle") == "one-cycle" else 1)
    return decay * mean_rate * (1 - MOMENTUM) / sgd_rate
