"""Compute the probability of error and the decision with torch operations, so that both can be exported."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from qipf.arrays import interpolate
from qipf.deploy.buffers import PreciseBuffers
from qipf.scores.base import Scorer


class Guarded(NamedTuple):
    """The result of a wrapped model whose scorer has a probability of error or a decision; absent values are None."""

    output: Any
    uncertainty: Tensor
    probability: Tensor | None
    accept: Tensor | None


class Improved(NamedTuple):
    """The result of a model wrapped with `posterior=True`: the fields of `Guarded`, and class probabilities (N, C)."""

    output: Any
    uncertainty: Tensor
    probability: Tensor | None
    accept: Tensor | None
    posterior: Tensor


class Judge(PreciseBuffers):
    """Compute the probability of error and the decision from the uncertainty."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.method = scorer.probability.method if scorer.probability is not None else ""
        arrays: dict[str, np.ndarray] = {}
        if scorer.probability is not None:
            arrays |= scorer.probability.state().tensors
        if scorer.decision is not None:
            arrays["threshold"] = np.asarray(scorer.decision.threshold)
        for key, value in arrays.items():
            self.register_buffer(key, torch.from_numpy(np.array(value, dtype=np.float64, order="C")))
        self.decides = scorer.decision is not None

    def __bool__(self) -> bool:
        """Return True if there is a probability or a decision."""
        return bool(self.method) or self.decides

    def forward(self, uncertainty: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the probability of error (N,) and a mask of the accepted predictions (N,).

        Either is None if the scorer does not have it. Predictions whose uncertainty is NaN are not accepted.
        """
        if not torch.compiler.is_compiling():
            self._follow(uncertainty.device)
        tables: dict[str, Any] = self._buffers
        u = uncertainty.to(next(iter(tables.values())).dtype) if tables else uncertainty
        probability = None
        if self.method == "isotonic":
            probability = interpolate(u, tables["scores"], tables["probabilities"])
        elif self.method == "logistic":
            slope, intercept = tables["coefficients"][0], tables["coefficients"][1]
            probability = torch.sigmoid(slope * u + intercept)
        if probability is not None:
            probability = torch.where(torch.isnan(u), torch.nan, probability).to(uncertainty.dtype)
        return probability, u <= tables["threshold"] if self.decides else None
