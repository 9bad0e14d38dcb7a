"""Dense and convolutional layers with Gaussian weights and Flipout gradients (Wen et al. 2018)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional


class Flipout(nn.Module):
    """A layer whose weights follow independent Gaussians N(weight, std^2); the bias is a plain parameter.

    Training: y = f(x; weight) + r * f(s * x; std * eps), with one eps ~ N(0, 1) for the batch and random signs s (of
    the input channels) and r (of the output channels) for every example (Wen et al. 2018, eq. 4). Every example sees
    the marginal distribution of its weights, and the perturbations of different examples are uncorrelated.

    Prediction: the mean weights; or `weight + std * noise` where `noise` is set; or the formula of training, with
    random numbers from `generator`, where that is set.
    """

    undecayed: ClassVar[tuple[str, ...]] = ("rho", "layer.weight")
    """Parameters that weight decay leaves alone: their regularisation is the KL term of the bound."""

    def __init__(self, layer: nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d, initial_std: float = 0.05) -> None:
        """Take over the weights of `layer` as the means; every standard deviation starts at `initial_std`."""
        super().__init__()
        self.layer = layer
        start = torch.tensor(initial_std, dtype=torch.float64).expm1().log()  # the inverse of softplus
        self.rho = nn.Parameter(torch.full_like(layer.weight, float(start)))
        self.noise: Tensor | None = None
        self.generator: torch.Generator | None = None

    @property
    def weight(self) -> Tensor:
        """The means of the weights, for code that reads the weight of a layer."""
        return self.layer.weight

    @property
    def bias(self) -> Tensor | None:
        """The bias, which is not random."""
        return self.layer.bias

    @property
    def std(self) -> Tensor:
        """Standard deviations of the weights, softplus(rho)."""
        return functional.softplus(self.rho)

    def kl(self, prior_std: float) -> Tensor:
        """KL(q || N(0, prior_std^2)) = sum log(prior / std) + (std^2 + mean^2) / (2 prior^2) - 1/2."""
        ratio = self.std / prior_std
        return (0.5 * (ratio**2 + (self.layer.weight / prior_std) ** 2 - 1) - ratio.log()).sum()

    def forward(self, x: Tensor) -> Tensor:
        """Compute the layer's output; see the class for what is random about it."""
        if self.noise is not None:
            return self._compute(x, self.layer.weight + self.std * self.noise, self.layer.bias)
        mean = self._compute(x, self.layer.weight, self.layer.bias)
        if not self.training and self.generator is None:
            return mean
        drawn_on = self.rho.device if self.generator is None else self.generator.device
        noise = torch.randn(self.rho.shape, generator=self.generator, device=drawn_on).to(self.rho)
        signs_in = self._signs(x, self.rho.shape[1] * self._groups, drawn_on)
        signs_out = self._signs(mean, self.rho.shape[0], drawn_on)
        return mean + signs_out * self._compute(x * signs_in, self.std * noise, None)

    @property
    def _dense(self) -> bool:
        return isinstance(self.layer, nn.Linear)

    @property
    def _groups(self) -> int:
        return 1 if isinstance(self.layer, nn.Linear) else self.layer.groups

    def _compute(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        layer: Any = self.layer
        return functional.linear(x, weight, bias) if self._dense else layer._conv_forward(x, weight, bias)

    def _signs(self, like: Tensor, channels: int, drawn_on: torch.device) -> Tensor:
        """Draw signs for every example and channel, the same at every position, shaped to multiply `like`."""
        shape = [1] * like.ndim
        shape[0] = like.shape[0]
        shape[-1 if self._dense else 1] = channels
        drawn = torch.randint(0, 2, shape, generator=self.generator, device=drawn_on)
        return drawn.to(like.device).mul_(2).sub_(1).to(like.dtype)
