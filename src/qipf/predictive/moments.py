"""Statistics of several passes, accumulated one pass at a time."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from qipf.scores.coordinates import contrast


class Summary(NamedTuple):
    """Statistics over the passes for N inputs.

    Let p_k be the class probabilities of pass k, m their mean, c_mean = argmax m, and c_base the class predicted by the
    base network, whose errors are to be detected. All but the first three statistics are higher for less certain
    predictions.

    Attributes:
        mean: Mean probabilities (N, C); mean outputs for regression.
        std: Standard deviation of each probability or output (N, C), with the number of passes as the divisor, as in
            the authors' code.
        predicted: The class c_mean, (N,). This and all following statistics are None for regression.
        std_of_mean_class: std_k p_k(c_mean), (N,); used by the authors' code for ensembles.
        std_of_base_class: std_k p_k(c_base), (N,); used in the paper (appendix F). None without base classes.
        entropy_of_mean: -sum_c m_c log m_c, (N,); Lakshminarayanan et al. 2017, Maddox et al. 2019.
        contrast_of_base_class: log(1 - m(c_base)) - log m(c_base), (N,); recommended for ensembles. None without base
            classes.
        mutual_information: The entropy of m minus the mean entropy of the p_k, (N,); Houlsby et al. 2011.
        minus_max_logit_of_one_pass: -max_c f_c(x; w), with one sample of w per input, (N,); used by the authors' code
            for SVI and SVI-LL. None for other methods.
    """

    mean: Tensor
    std: Tensor
    predicted: Tensor | None = None
    std_of_mean_class: Tensor | None = None
    std_of_base_class: Tensor | None = None
    entropy_of_mean: Tensor | None = None
    contrast_of_base_class: Tensor | None = None
    mutual_information: Tensor | None = None
    minus_max_logit_of_one_pass: Tensor | None = None


def entropy(probabilities: Tensor) -> Tensor:
    """Compute -sum_c p_c log p_c over the last axis, with 0 log 0 = 0."""
    tiny = torch.finfo(probabilities.dtype).tiny
    return -(probabilities * probabilities.clamp(min=tiny).log()).sum(-1)


class Moments:
    """Running mean and variance of tensors of the same shape (Welford's algorithm)."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, values: Tensor) -> None:
        """Update the moments with a tensor."""
        if self.count == 0:
            self.mean, self._squares = torch.zeros_like(values), torch.zeros_like(values)
        self.count += 1
        delta = values - self.mean
        self.mean += delta / self.count
        self._squares += delta * (values - self.mean)

    @property
    def variance(self) -> Tensor:
        """The variance, with the number of tensors as the divisor."""
        return self._squares / self.count


class Sums(Moments):
    """Running mean, variance and mean entropy of the passes."""

    def __init__(self, *, classes: bool) -> None:
        super().__init__()
        self._classes, self._entropy = classes, torch.zeros(())

    def add(self, values: Tensor) -> None:
        """Update the statistics with the results of one pass, (N, C)."""
        super().add(values)
        if self._classes:
            self._entropy = self._entropy.to(values) + entropy(values)

    def summary(self, base_classes: Tensor | None, device: torch.device) -> Summary:
        """Return the statistics of the passes so far, in float32 on `device`."""
        mean, std = self.mean, self.variance.sqrt()

        def out(tensor: Tensor) -> Tensor:
            return tensor.to(device, torch.float32)

        def std_of(classes: Tensor) -> Tensor:
            return out(std.gather(1, classes[:, None])[:, 0])

        if not self._classes:
            return Summary(out(mean), out(std))
        predicted, total = mean.argmax(1), entropy(mean)
        base = None if base_classes is None else base_classes.to(mean.device, torch.int64)
        return Summary(
            mean=out(mean),
            std=out(std),
            predicted=predicted.to(device),
            std_of_mean_class=std_of(predicted),
            std_of_base_class=None if base is None else std_of(base),
            entropy_of_mean=out(total),
            contrast_of_base_class=None if base is None else out(contrast(mean, base)),
            mutual_information=out((total - self._entropy / self.count).clamp(min=0)),
        )
