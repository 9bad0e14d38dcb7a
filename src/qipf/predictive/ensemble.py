"""Deep ensemble: networks trained from different initial weights (Lakshminarayanan et al. 2017; appendix F.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from qipf.predictive._fitting import train_new
from qipf.predictive.base import ModelOrFactory
from qipf.predictive.randomness import derive
from qipf.predictive.snapshots import Snapshots

if TYPE_CHECKING:
    from qipf.models.split import Split


class DeepEnsemble(Snapshots):
    """Networks with initial weights and an order of the data of their own; pass k is member k."""

    name: ClassVar[str] = "ensemble"
    stored_as: ClassVar[str] = "members"

    def __init__(self, members: int = 10, **training: Any) -> None:
        """Set up the method.

        Args:
            members: Number of networks, and of passes.
            training: Settings of `qipf.training.train`. The name of a checkpoint gets the member's number as an ending.
        """
        if members < 1:
            raise ValueError(f"members: expected at least 1, got {members}")
        self.passes, self.training = members, training

    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        if isinstance(model_or_factory, nn.Module):
            raise TypeError(
                "model_or_factory: an ensemble needs a function that builds a new network with other initial weights "
                "each time, got a network; pass lambda: YourNetwork(...)"
            )
        checkpoint = self.training.get("checkpoint")
        nets = [
            train_new(
                model_or_factory,
                data,
                seed=derive(seed, k),
                device=device,
                progress=progress,
                options=self.training | ({} if checkpoint is None else {"checkpoint": f"{checkpoint}.{k}"}),
            )
            for k in range(self.passes)
        ]
        self._kept = []
        for net in nets:
            self._keep(net)
        return nets[0]
