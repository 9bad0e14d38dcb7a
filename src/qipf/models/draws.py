"""Perturbed inputs with unchanged labels: what shows a probe where each class goes when the data drifts.

| inputs | default perturbation |
|---|---|
| images (N, c, h, w), floating point | bent with probability 1/2; then, with probability 1/2, one of the other five |
| rows of a table (N, d), floating point | a random share of the values, up to half, is taken from other rows |
| tokens (N, length), whole numbers | a random share of the tokens, up to half, is taken from elsewhere in the batch |

The perturbations of images are those of `qipf.models.perturbations`. No shift that the study evaluates is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from qipf.models.perturbations import PERTURBATIONS, draw_perturbations, perturb_batch

Perturb = Callable[[Any, torch.Generator], Any]
"""Takes the inputs of a batch and a generator on their device, and returns inputs of the same form."""

_OTHERS = tuple(name for name in PERTURBATIONS if name != "elastic")
_MASKS = ("attention_mask", "mask")


class Draws:
    """Perturbs batch after batch; the range of values of images is that of all batches so far."""

    def __init__(self, perturb: Perturb | None, generator: torch.Generator) -> None:
        self._own, self._generator = perturb, generator
        self._low, self._high = 0.0, 1.0

    def knows(self, inputs: Any) -> bool:
        """Whether inputs of this form can be perturbed."""
        return self._own is not None or perturbable(inputs) is not None

    def __call__(self, inputs: Any) -> Any:
        """One perturbed copy of a batch's inputs, for which `knows` is true."""
        if self._own is not None:
            return self._own(inputs, self._generator)
        key = perturbable(inputs)
        values = _get(inputs, key)
        if values.ndim == 4:
            return _with(inputs, key, self._images(values))
        if values.is_floating_point():
            return _with(inputs, key, _swapped(values, self._generator))
        mask = next((inputs[name] for name in _MASKS if isinstance(inputs, Mapping) and name in inputs), None)
        return _with(inputs, key, _swapped(values, self._generator, keep=_fixed(values, mask)))

    def _images(self, images: Tensor) -> Tensor:
        low, high = (float(value) for value in torch.aminmax(images))
        self._low, self._high = min(low, self._low), max(high, self._high)
        scale = self._high - self._low
        drawn = draw_images((images - self._low) / scale, self._generator)
        return drawn * scale + self._low


def draw_images(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images in [0, 1], each bent with probability 1/2 and then, with probability 1/2, perturbed in another way."""
    for names in (("elastic",), _OTHERS):
        kinds, intensities = draw_perturbations(len(images), generator, names)
        skip = torch.rand(len(images), generator=generator, device=generator.device) < 0.5
        images = perturb_batch(images, torch.where(skip, -1, kinds), intensities, generator)
    return images


def perturbable(inputs: Any) -> Any:
    """The key of the inputs that `Draws` can perturb: images first, then tables and tokens; None if there are none."""
    parts = (
        dict(inputs) if isinstance(inputs, Mapping) else dict(enumerate(inputs)) if _several(inputs) else {0: inputs}
    )
    tensors = {key: part for key, part in parts.items() if isinstance(part, Tensor) and key not in _MASKS}
    images = [key for key, part in tensors.items() if part.ndim == 4]
    if images:
        if not tensors[images[0]].is_floating_point():
            raise ValueError(
                f"data: images of {tensors[images[0]].dtype} cannot be perturbed; scale them to [0, 1] as "
                "floating-point numbers, or give perturb=False or a function of your own"
            )
        return images[0] if len(images) == 1 else None
    rows = [key for key, part in tensors.items() if part.ndim == 2 and part.shape[1] > 1 and part.dtype != torch.bool]
    named = [key for key in rows if key in ("input_ids", "x", "inputs", 0)]
    return (named or rows or [None])[0]


def _swapped(values: Tensor, generator: torch.Generator, keep: Tensor | None = None) -> Tensor:
    """A share of each row's values, uniform between 0 and 1/2, replaced by those of random other rows."""
    count, width = values.shape
    device = values.device
    share = torch.rand(count, 1, generator=generator, device=device) / 2
    chosen = torch.rand(count, width, generator=generator, device=device) < share
    rows = torch.randint(count, (count, width), generator=generator, device=device)
    columns = torch.arange(width, device=device).expand(count, width)
    if keep is not None:
        chosen &= ~keep
        free = torch.nonzero(~keep)
        picked = (
            free[torch.randint(len(free), (count, width), generator=generator, device=device)] if len(free) else None
        )
        rows, columns = (rows, columns) if picked is None else picked.unbind(-1)
    return torch.where(chosen, values[rows, columns], values)


def _fixed(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Tokens that stay as they are: the first of every text, which often stands for its class, and padding."""
    fixed = torch.zeros_like(tokens, dtype=torch.bool)
    fixed[:, 0] = True
    return fixed if mask is None else fixed | (mask == 0)


def _several(inputs: Any) -> bool:
    return isinstance(inputs, tuple | list)


def _get(inputs: Any, key: Any) -> Tensor:
    return inputs[key] if isinstance(inputs, Mapping) or _several(inputs) else inputs


def _with(inputs: Any, key: Any, values: Tensor) -> Any:
    if isinstance(inputs, Mapping):
        return {**inputs, key: values}
    if _several(inputs):
        return tuple(values if place == key else part for place, part in enumerate(inputs))
    return values
