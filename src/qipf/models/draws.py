"""Perturbed inputs with unchanged labels: what shows a probe where each class goes when the data drifts.

| inputs | default perturbation |
|---|---|
| images (N, c, h, w), floating point | bent with probability 1/2; then, with probability 1/2, one of the other five |
| rows of a table (N, d), floating point | swapped values, missing values or noise, each equally often |
| tokens (N, length), whole numbers | swapped tokens, except for padding and the first token of each text |

Of a table, a random share of the values of a row, up to half, is swapped with other rows or becomes the mean of its
column; noise has up to the deviation of its column. Of a text, up to half of the tokens are swapped with other texts.
A swapped value or token comes from the same column of another row, so that it is one that its column can have. The
perturbations of images are those of `qipf.tasks.perturbations`; the paper's shifts are not among them. For other
inputs there is no default perturbation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from qipf.tasks.perturbations import PERTURBATIONS, draw_perturbations, perturb_batch

Perturb = Callable[[Any, torch.Generator], Any]
"""Takes the inputs of a batch and a generator on their device, and returns inputs of the same form."""

_OTHERS = tuple(name for name in PERTURBATIONS if name != "elastic")
_MASKS = ("attention_mask", "mask")


class Draws:
    """Perturbs batch after batch; the range of values of images is that of all batches so far."""

    def __init__(self, perturb: Perturb | None, generator: torch.Generator) -> None:
        self._own, self._generator = perturb, generator
        self._low, self._high = 0.0, 1.0

    def form(self, inputs: Any) -> str:
        """What the inputs are: "images", "table" or "tokens"; "other" for what only the user's function perturbs.

        It is empty where the inputs cannot be perturbed.
        """
        if self._own is not None:
            return "images" if any(_is_image(part) for part in _parts(inputs).values()) else "other"
        key = perturbable(inputs)
        return "" if key is None else _form(_get(inputs, key))

    def __call__(self, inputs: Any) -> Any:
        """One perturbed copy of a batch's inputs, whose `form` is not empty."""
        if self._own is not None:
            return self._own(inputs, self._generator)
        key = perturbable(inputs)
        values = _get(inputs, key)
        form = _form(values)
        if form == "images":
            return _with(inputs, key, self._images(values))
        if form == "table":
            return _with(inputs, key, draw_table(values, self._generator))
        return _with(inputs, key, _swapped(values, self._generator, keep=_fixed(values, _mask(inputs, key))))

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


def draw_table(values: Tensor, generator: torch.Generator) -> Tensor:
    """Rows of a table, each with swapped values, with values that are missing, or with noise."""
    count, device = len(values), values.device
    kinds = torch.randint(3, (count, 1), generator=generator, device=device)
    missing = _some(values, generator)
    amount = torch.rand(count, 1, generator=generator, device=device)
    noise = amount * torch.randn(values.shape, generator=generator, device=device)
    deviation, mean = torch.std_mean(values.float(), dim=0, correction=0)
    noisy = values + (deviation * noise).to(values)
    filled = torch.where(missing, mean.to(values), values)
    return torch.where(kinds == 0, _swapped(values, generator), torch.where(kinds == 1, filled, noisy))


def perturbable(inputs: Any) -> Any:
    """The key of the inputs that `Draws` can perturb: images first, then tables and tokens; None if there are none."""
    tensors = {key: part for key, part in _parts(inputs).items() if isinstance(part, Tensor) and key not in _MASKS}
    images = [key for key, part in tensors.items() if _is_image(part)]
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
    """A share of each row's values, uniform between 0 and 1/2, replaced by those of random rows in the same column.

    Where `keep` is true, values neither change nor replace others.
    """
    count, width = values.shape
    device = values.device
    chosen = _some(values, generator)
    rows = torch.randint(count, (count, width), generator=generator, device=device)
    columns = torch.arange(width, device=device).expand(count, width)
    if keep is not None:
        chosen &= ~(keep | keep[rows, columns])
    return torch.where(chosen, values[rows, columns], values)


def _some(values: Tensor, generator: torch.Generator) -> Tensor:
    """A random share of the places of each row, uniform between 0 and 1/2."""
    share = torch.rand(len(values), 1, generator=generator, device=values.device) / 2
    return torch.rand(values.shape, generator=generator, device=values.device) < share


def _fixed(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Tokens that stay as they are: the first of every text, which often stands for its class, and padding."""
    fixed = torch.zeros_like(tokens, dtype=torch.bool)
    fixed[:, 0] = True
    return fixed if mask is None else fixed | (mask == 0)


def _mask(inputs: Any, key: Any) -> Tensor | None:
    """Which tokens are not padding: by its name, or, among unnamed inputs, the first of the same shape with 0 and 1."""
    if isinstance(inputs, Mapping):
        return next((inputs[name] for name in _MASKS if name in inputs), None)
    if not _several(inputs):
        return None
    others = [part for place, part in enumerate(inputs) if place != key and isinstance(part, Tensor)]
    same = [part for part in others if part.shape == inputs[key].shape]
    return next((part for part in same if bool(((part == 0) | (part == 1)).all())), None)


def _form(values: Tensor) -> str:
    return "images" if _is_image(values) else "table" if values.is_floating_point() else "tokens"


def _is_image(part: Any) -> bool:
    return isinstance(part, Tensor) and part.ndim == 4


def _parts(inputs: Any) -> dict[Any, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return dict(enumerate(inputs)) if _several(inputs) else {0: inputs}


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
