"""What the passes say about each input, gathered one pass at a time."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from qipf.predictive import reductions


class Summary(NamedTuple):
    """What the passes say about each input. Higher is less sure in every score.

    Attributes:
        mean: Mean probabilities (N, C); mean outputs for regression.
        std: Standard deviation over the passes of every probability (output), (N, C).
        std_predicted: The paper's score (N,): standard deviation of the predicted class's probability; the class is
            `base_predicted` where that was given, else `predicted`. Regression: root of the total variance.
        predicted: The class that the mean prefers (N,); None for regression.
        entropy: Entropy of the mean (N,), in nats; None for regression.
        mutual_information: Entropy of the mean minus mean entropy (N,); None for regression.
        base_predicted: The classes that were given to `summarise`, or None.
    """

    mean: Tensor
    std: Tensor
    std_predicted: Tensor
    predicted: Tensor | None
    entropy: Tensor | None
    mutual_information: Tensor | None
    base_predicted: Tensor | None


class Sums:
    """Running mean and squared deviations (Welford's update) of the passes, and their mean entropy."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, values: Tensor, *, classes: bool) -> None:
        values = values.double()
        if self._count == 0:
            self._mean, self._squares = torch.zeros_like(values), torch.zeros_like(values)
            self._entropy = torch.zeros_like(values[:, 0])
        self._count += 1
        delta = values - self._mean
        self._mean += delta / self._count
        self._squares += delta * (values - self._mean)
        if classes:
            self._entropy += reductions.entropy_of(values)

    def summary(self, asked: Tensor | None, device: torch.device, *, classes: bool) -> Summary:
        variance = self._squares / self._count
        std = variance.sqrt()

        def out(tensor: Tensor) -> Tensor:
            return tensor.to(device, torch.float32)

        if not classes:
            return Summary(out(self._mean), out(std), out(variance.sum(1).sqrt()), None, None, None, None)
        predicted = self._mean.argmax(1)
        chosen = predicted if asked is None else asked.to(predicted.device, torch.int64)
        entropy = reductions.entropy_of(self._mean)
        information = (entropy - self._entropy / self._count).clamp(min=0)
        return Summary(
            mean=out(self._mean),
            std=out(std),
            std_predicted=out(std.gather(1, chosen[:, None])[:, 0]),
            predicted=predicted.to(device),
            entropy=out(entropy),
            mutual_information=out(information),
            base_predicted=None if asked is None else asked.to(device),
        )
