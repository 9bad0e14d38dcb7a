"""Perturbed inputs with unchanged labels: they show a probe what happens to predictions when the data drifts.

One prediction per input, or several labels:

| inputs | default perturbation |
|---|---|
| images (N, c, h, w) | bent with probability 1/2; then, with probability 1/2, one of the other five |
| rows of a table (N, d), floating point | swapped values, missing values or noise, each equally often |
| tokens (N, length), integers | swapped tokens, except for padding and the first token of each text |

A random share of the values of a row of a table, up to half, is swapped with other rows or becomes the mean of its
column; noise has up to the deviation of its column. Up to half of the tokens of a text are swapped with other texts. A
swapped value or token comes from the same column of another row, so that it is one that its column can have. The
perturbations of images are those of `qipf.tasks.perturbations`; the paper's shifts are not among them.

One prediction per pixel or token, so nothing may move:

| inputs | default perturbation |
|---|---|
| images (N, c, h, w) | noise, blur, less contrast, coarser pixels or another tone, each equally often |
| tokens (N, length), integers | up to 30 % of the tokens, never the first, are replaced by others of the batch |

Another tone is a change of contrast about the mean of the image by a factor of 0.5 to 1.5, and of brightness by up to
40 % of the range of values. Images may have their colours last, and integers from 0 to 255. For other inputs there is
no default perturbation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qipf._common.errors import Problem
from qipf.data.batches import colours_last, describe, is_array
from qipf.tasks.perturbations import PERTURBATIONS, draw_perturbations, perturb_batch

Perturb = Callable[[Any, torch.Generator], Any]
"""Takes the inputs of a batch and a generator on their device, and returns inputs of the same form."""

IN_PLACE = ("gaussian-noise", "blur", "contrast", "pixelate")
"""The perturbations of images that leave every pixel where it is."""
MOST_TOKENS = 0.3
"""The largest share of the tokens of a text that is replaced in place."""
_OTHERS = tuple(name for name in PERTURBATIONS if name != "elastic")
_MASKS = ("attention_mask", "mask")


class Perturber:
    """Perturbs the inputs of batch after batch; the range of values of images is that of all batches so far.

    Args:
        generator: Draws the perturbations; inputs are moved to its device and back.
        own: A function of the user, which gets the inputs as tensors; None for the default perturbations.
        in_place: "pixels" or "tokens" if each has a label of its own, so that nothing may move; otherwise empty.
    """

    def __init__(self, generator: torch.Generator, own: Perturb | None = None, in_place: str = "") -> None:
        self._generator, self._own, self._in_place = generator, own, in_place
        self._low, self._high = 0.0, 1.0

    def form(self, inputs: Any) -> str:
        """Return what the inputs are: "images", "table" or "tokens"; "other" for what only the user's function changes.

        It is empty if the inputs cannot be perturbed.
        """
        parts = _parts(self._tensors(inputs))
        if self._own is not None:
            return "images" if any(_is_image(part) for part in parts.values()) else "other"
        key = self._key(parts)
        return "" if key is None else _form(parts[key])

    def __call__(self, inputs: Any) -> Any:
        """Return one perturbed copy of the inputs of a batch.

        Raises:
            Problem: They cannot be perturbed.
        """
        given = self._tensors(inputs)
        if self._own is not None:
            return _restored(self._own(given, self._generator), inputs, plain=True)
        parts = _parts(given)
        key = self._key(parts)
        if key is None:
            raise Problem(
                "data", f"these inputs cannot be perturbed: {describe(inputs)}",
                hint="give perturb=False, or a function of the inputs and a generator",
            )  # fmt: skip
        values, form = parts[key], _form(parts[key])
        if self._in_place:
            changed = (draw_pixels if form == "images" else draw_tokens)(values, self._generator)
        elif form == "images":
            changed = self._images(values)
        elif form == "table":
            changed = draw_table(values, self._generator)
        else:
            changed = _swapped(values, self._generator, keep=_fixed(values, _mask(given, key)))
        return _restored(_with(given, key, changed), inputs, plain=False)

    def _key(self, parts: Mapping[Any, Any]) -> Any:
        """Return the key of the input to perturb, or None."""
        tensors = {key: part for key, part in parts.items() if isinstance(part, Tensor) and key not in _MASKS}
        images = [key for key, part in tensors.items() if _is_image(part)]
        if self._in_place:
            whole = [key for key, part in tensors.items() if part.ndim == 2 and not part.is_floating_point()]
            found = images if self._in_place == "pixels" else [key for key in whole if "mask" not in str(key)]
            return found[0] if len(found) == 1 else None
        if images:
            return images[0] if len(images) == 1 else None
        rows = [
            key for key, part in tensors.items() if part.ndim == 2 and part.shape[1] > 1 and part.dtype != torch.bool
        ]
        named = [key for key in rows if key in ("input_ids", "x", "inputs", 0)]
        return (named or rows or [None])[0]

    def _images(self, images: Tensor) -> Tensor:
        low, high = (float(value) for value in torch.aminmax(images))
        self._low, self._high = min(low, self._low), max(high, self._high)
        scale = self._high - self._low
        drawn = draw_images((images - self._low) / scale, self._generator)
        return drawn * scale + self._low

    def _tensors(self, inputs: Any) -> Any:
        """Return the inputs as tensors; images in floating point with the colours first, unless a user gets them."""
        if isinstance(inputs, Mapping):
            return {key: self._tensors(part) for key, part in inputs.items()}
        if isinstance(inputs, tuple | list):
            return tuple(self._tensors(part) for part in inputs)
        if not is_array(inputs):
            return inputs
        tensor = (inputs if isinstance(inputs, Tensor) else torch.from_numpy(np.array(inputs))).to(
            self._generator.device
        )
        if self._own is not None or tensor.ndim != 4:
            return tensor
        tensor = tensor.movedim(3, 1) if colours_last(inputs.shape) else tensor
        return tensor if tensor.is_floating_point() else tensor.float() / 255


def _restored(changed: Any, inputs: Any, plain: bool) -> Any:
    """Return perturbed tensors in the library, type, layout and on the device of the inputs."""
    if isinstance(inputs, Mapping):
        return {key: _restored(changed[key], part, plain) for key, part in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(_restored(one, part, plain) for one, part in zip(changed, inputs, strict=True))
    if not is_array(inputs):
        return changed
    tensor = torch.as_tensor(changed)
    if not plain and tensor.ndim == 4:
        whole = not inputs.is_floating_point() if isinstance(inputs, Tensor) else inputs.dtype.kind != "f"
        tensor = (255 * tensor).round().clamp(0, 255) if whole else tensor
        tensor = tensor.movedim(1, 3).contiguous() if colours_last(inputs.shape) else tensor
    if isinstance(inputs, Tensor):
        return tensor.to(inputs.device, tensor.dtype if plain else inputs.dtype)
    return np.ascontiguousarray(tensor.cpu().numpy().astype(inputs.dtype))


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


def draw_pixels(images: Tensor, generator: torch.Generator) -> Tensor:
    """Perturb each image (N, c, H, W) by one of `IN_PLACE`, or by another tone.

    The range of values is that of the batch, and at least [0, 1].
    """
    low, high = (float(value) for value in torch.aminmax(images))
    low, scale = min(low, 0.0), max(high, 1.0) - min(low, 0.0)
    kinds, intensities = draw_perturbations(len(images), generator, IN_PLACE)
    toned = torch.rand(len(images), generator=generator) < 1 / (1 + len(IN_PLACE))
    drawn = perturb_batch((images - low) / scale, torch.where(toned, -1, kinds), intensities, generator) * scale + low
    gain, offset = torch.rand(2, len(images), 1, 1, 1, generator=generator).to(images)
    mean = images.mean((1, 2, 3), keepdim=True)
    other = mean + (0.5 + gain) * (images - mean) + 0.8 * scale * (offset - 0.5)
    return torch.where(toned[:, None, None, None], other, drawn)


def draw_tokens(ids: Tensor, generator: torch.Generator) -> Tensor:
    """Replace up to `MOST_TOKENS` of the tokens of each text (N, T), never the first, by those of random places."""
    share = MOST_TOKENS * torch.rand(len(ids), 1, generator=generator)
    chosen = torch.rand(ids.shape, generator=generator) < share
    chosen[:, :1] = False
    others = ids.flatten()[torch.randint(ids.numel(), ids.shape, generator=generator)]
    return torch.where(chosen, others, ids)


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


def _with(inputs: Any, key: Any, values: Tensor) -> Any:
    if isinstance(inputs, Mapping):
        return {**inputs, key: values}
    if _several(inputs):
        return tuple(values if place == key else part for place, part in enumerate(inputs))
    return values
