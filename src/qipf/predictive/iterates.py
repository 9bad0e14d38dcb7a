"""SGD iterates: the weights that SGD visits after training, used as an ensemble (Mandt et al. 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from qipf.predictive._fitting import build, train_new, wander
from qipf.predictive.base import ModelOrFactory
from qipf.predictive.snapshots import Snapshots

if TYPE_CHECKING:
    from qipf.models.split import Split


class SGDIterates(Snapshots):
    """The weights that SGD visits at a constant learning rate, started from the trained network.

    Pass k is iterate k.
    """

    name: ClassVar[str] = "sgd-iterates"
    stored_as: ClassVar[str] = "iterates"

    def __init__(
        self,
        *,
        iterates: int = 20,
        every: int | None = None,
        sgd_rate: float = 0.01,
        **training: Any,
    ) -> None:
        """Set up the method.

        Args:
            iterates: How many iterates to take, and the number of passes.
            every: Number of steps between two iterates; one epoch by default.
            sgd_rate: The constant learning rate at which they are taken.
            training: The recipe of the network, as settings of `qipf.training.train`. The iterates are taken with its
                batch size, augmentation, loss and weight decay (translated by `_fitting.sgd_decay`); where `fit` is
                given a factory, the network is first trained with it.
        """
        if iterates < 2:
            raise ValueError(f"iterates: expected at least 2, got {iterates}")
        if every is not None and every < 1:
            raise ValueError(f"every: expected at least 1 step, got {every}")
        self.iterates, self.every, self.passes = iterates, every, iterates
        self.sgd_rate, self.training = sgd_rate, training

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        if isinstance(model_or_factory, nn.Module):
            net = build(model_or_factory, seed, device)
        else:
            net = train_new(model_or_factory, data, seed=seed, device=device, progress=progress, options=self.training)
        self._begin(net, data)
        wander(
            net,
            data,
            count=self.iterates,
            every=self.every,
            collect=lambda: self._keep(net),
            seed=seed,
            progress=progress,
            learning_rate=self.sgd_rate,
            options=self.training,
        )
        return net

    def _begin(self, net: nn.Module, data: Split) -> None:
        """Get ready to keep iterates."""
        del net, data
        self._kept = []
