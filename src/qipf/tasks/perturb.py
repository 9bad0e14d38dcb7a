"""Perturb inputs without changing their labels, so that a probe learns the effect of distribution shift.

If each input has one prediction or several labels:

| inputs | built-in perturbation |
|---|---|
| images (N, c, h, w) | elastic deformation with probability 1/2; then, with probability 1/2, another perturbation |
| signals (N, c, t), floating point | noise, rescaling, time warping or a dropped segment, with equal probability |
| rows of a table (N, d), floating point | swapped values, missing values or noise, with equal probability |
| tokens (N, length), integers | swapped tokens, except for padding and the first token of each text |

In a table row, a random fraction of the values, up to half, is replaced by values from random rows or by column means,
or noise is added whose standard deviation is at most that of the column. Up to half of the tokens of a text are
replaced by tokens from random texts. Replacements come from the same column or position, so that they are plausible.
Images are perturbed as described in `qipf.tasks.perturbations`, which contains none of the shifts evaluated in the
paper. If there are several inputs, each input in one of these forms is perturbed; masks and other arguments are
unchanged.

If there is one prediction per pixel or token, positions must not change:

| inputs | built-in perturbation |
|---|---|
| images (N, c, h, w) | noise, blur, reduced contrast, pixelation or a tone change, with equal probability |
| tokens (N, length), integers | up to 30% of the tokens, never the first, are replaced by random ones from the batch |

A tone change scales the contrast by a factor between 0.5 and 1.5 and shifts the brightness by up to 40% of the range
of values. Images may be channels-last, and may be bytes. There is no built-in perturbation for
other inputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from qipf._common.errors import Problem
from qipf.data.batches import colours_last, describe, is_array, is_image
from qipf.tasks.perturbations import PERTURBATIONS, draw_perturbations, perturb_batch

Perturb = Callable[[Any, torch.Generator], Any]
"""A function that takes the inputs of a batch and a generator on their device, and returns inputs of the same form."""

IN_PLACE = ("gaussian-noise", "blur", "contrast", "pixelate")
"""Image perturbations that do not move pixels."""
MOST_TOKENS = 0.3
"""The maximum fraction of the tokens of a text that are replaced if there is one prediction per token."""
_OTHERS = tuple(name for name in PERTURBATIONS if name != "elastic")
_MASKS = ("attention_mask", "mask")


class Perturber:
    """Perturb batches of inputs.

    Args:
        generator: The random generator; inputs are perturbed on its device.
        own: User-defined functions, which receive the inputs as tensors.
        builtin: Use the built-in perturbations.
        in_place: "pixels" or "tokens" if these must keep their positions; otherwise "".
    """

    def __init__(
        self, generator: torch.Generator, own: Sequence[Perturb] = (), *, builtin: bool = True, in_place: str = ""
    ) -> None:
        self._generator, self._own, self._builtin, self._in_place = generator, tuple(own), builtin, in_place
        self._ranges: dict[Any, tuple[float, float]] = {}

    def ways(self, inputs: Any, draws: int) -> list[Perturb | None]:
        """Return one entry per perturbed copy: a user function, or None for the built-in perturbations.

        There are `draws` built-in copies and half that number, at least one, per function. Without built-in copies,
        there are `draws` copies, or one per function if that is more. The list is empty if the inputs cannot be
        perturbed.
        """
        if self._builtin and self._forms(self._tensors(inputs)):
            return [None] * draws + max(1, draws // 2) * list(self._own)
        return [self._own[number % len(self._own)] for number in range(max(draws, len(self._own)) if self._own else 0)]

    def __call__(self, inputs: Any, own: Perturb | None = None) -> Any:
        """Return a copy of the inputs of a batch, perturbed by a user function or the built-in perturbations.

        Raises:
            Problem: No built-in perturbation exists for these inputs, or the function returned NaN or infinity.
        """
        with torch.autocast(self._generator.device.type, enabled=False):
            return self._perturbed(inputs, own)

    def _perturbed(self, inputs: Any, own: Perturb | None) -> Any:
        if own is not None:
            given = tree_map(copy.deepcopy, self._tensors(inputs, plain=True))  # the function may change its inputs
            found = own(given, self._generator)
            if _shapes(found) != _shapes(self._tensors(inputs, plain=True)):
                raise Problem(
                    "perturb", f"a function returned {describe(found)} for inputs {describe(inputs)}",
                    hint="return inputs of the same shape",
                )  # fmt: skip
            floats = [one for one in tree_leaves(found) if isinstance(one, Tensor) and one.is_floating_point()]
            if not all(bool(one.isfinite().all()) for one in floats):
                raise Problem("perturb", "a function returned NaN or infinite values", hint="correct the function")
            return _restored(found, inputs, plain=True)
        given = self._tensors(inputs)
        parts = _parts(given)
        changed = {key: self._changed(key, form, parts) for key, form in self._forms(given).items()}
        if not changed:
            raise Problem(
                "data", f"{describe(inputs)}", expected="images (floats or bytes), signals, tables or tokens",
                hint="pass a function as perturb_only=, or perturb=False",
            )  # fmt: skip
        parts |= changed
        whole = parts if isinstance(given, Mapping) else tuple(parts.values()) if _several(given) else parts[0]
        return _restored(whole, inputs, plain=False)

    def _changed(self, key: Any, form: str, parts: Mapping[Any, Any]) -> Tensor:
        values, generator = parts[key], self._generator
        if self._in_place:
            return (draw_pixels if form == "images" else draw_tokens)(values, generator)
        if form == "images":
            return self._images(key, values)
        if form == "tokens":
            return _swapped(values, generator, keep=_fixed(values, _mask(parts, key)))
        return (draw_table if form == "table" else draw_signals)(values, generator)

    def _forms(self, inputs: Any) -> dict[Any, str]:
        """Return the form of each input that can be perturbed: "images", "signals", "table" or "tokens"."""
        parts = _parts(inputs)
        found = {key: form for key, part in parts.items() if "mask" not in str(key) and (form := _form(part))}
        texts = [key for key, form in found.items() if form == "tokens"]
        named = [key for key in texts if key == "input_ids"] or texts
        masks = [key for key, form in found.items() if form != "images" and _is_mask(parts, key, named)]
        found = {k: form for k, form in found.items() if k not in masks and (form != "tokens" or k in named)}
        if not self._in_place:
            return found
        found = {key: form for key, form in found.items() if form == {"pixels": "images"}.get(self._in_place, "tokens")}
        return found if len(found) == 1 else {}  # otherwise it is unclear which input the labels belong to

    def _images(self, key: Any, images: Tensor) -> Tensor:
        low, high = (float(value) for value in torch.aminmax(images))
        known = self._ranges.get(key, (0.0, 1.0))
        low, high = self._ranges[key] = min(low, known[0]), max(high, known[1])
        return draw_images((images - low) / (high - low), self._generator) * (high - low) + low

    def _tensors(self, inputs: Any, plain: bool = False) -> Any:
        """Return the inputs as tensors; unless `plain`, images become floating-point and channels-first."""
        if isinstance(inputs, Mapping):
            return {key: self._tensors(part, plain) for key, part in inputs.items()}
        if isinstance(inputs, tuple | list):
            return tuple(self._tensors(part, plain) for part in inputs)
        if not is_array(inputs):
            return inputs
        tensor = (inputs if isinstance(inputs, Tensor) else torch.from_numpy(np.array(inputs))).to(
            self._generator.device
        )
        if plain or not is_image(tensor):
            return tensor
        tensor = tensor.movedim(3, 1) if colours_last(inputs.shape) else tensor
        return tensor if tensor.is_floating_point() else tensor.float() / 255


def _shapes(inputs: Any) -> list[tuple[int, ...]]:
    return [tuple(one.shape) for one in tree_leaves(inputs) if is_array(one)]


def _restored(changed: Any, inputs: Any, plain: bool) -> Any:
    """Convert perturbed tensors to the library, dtype, layout and device of the inputs."""
    if isinstance(inputs, Mapping):
        return {key: _restored(changed[key], part, plain) for key, part in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(_restored(one, part, plain) for one, part in zip(changed, inputs, strict=True))
    if not is_array(inputs):
        return changed
    tensor = torch.as_tensor(changed)
    if not plain and is_image(inputs):
        whole = not inputs.is_floating_point() if isinstance(inputs, Tensor) else inputs.dtype.kind != "f"
        tensor = (255 * tensor).round().clamp(0, 255) if whole else tensor
        tensor = tensor.movedim(1, 3).contiguous() if colours_last(inputs.shape) else tensor
    if isinstance(inputs, Tensor):
        kept = plain and not inputs.is_floating_point()  # a function may return floating-point images for integers
        return tensor.to(inputs.device, tensor.dtype if kept else inputs.dtype)
    return np.ascontiguousarray(tensor.cpu().numpy().astype(inputs.dtype))


def draw_images(images: Tensor, generator: torch.Generator) -> Tensor:
    """Deform each image with probability 1/2, then apply another perturbation with probability 1/2."""
    for names in (("elastic",), _OTHERS):
        kinds, intensities = draw_perturbations(len(images), generator, names)
        skip = torch.rand(len(images), generator=generator, device=generator.device) < 0.5
        images = perturb_batch(images, torch.where(skip, -1, kinds), intensities, generator)
    return images


def draw_table(values: Tensor, generator: torch.Generator) -> Tensor:
    """Perturb each row of a table with swapped values, missing values or noise."""
    count, device = len(values), values.device
    kinds = torch.randint(3, (count, 1), generator=generator, device=device)
    missing = _some(values, generator)
    amount = torch.rand(count, 1, generator=generator, device=device)
    noise = amount * torch.randn(values.shape, generator=generator, device=device)
    deviation, mean = torch.std_mean(values.float(), dim=0, correction=0)
    noisy = values + (deviation * noise).to(values)
    filled = torch.where(missing, mean.to(values), values)
    return torch.where(kinds == 0, _swapped(values, generator), torch.where(kinds == 1, filled, noisy))


def draw_signals(signals: Tensor, generator: torch.Generator) -> Tensor:
    """Perturb each signal (N, c, t) with noise, rescaling, time warping or a dropped segment.

    The noise has at most the standard deviation of the channel. Channels are rescaled by factors between 0.5 and 1.5.
    Time warping moves samples by at most about a tenth of the length. A dropped segment covers at most half of the
    signal and is set to the channel means.
    """
    (count, channels, length), device = signals.shape, signals.device
    kinds = torch.randint(4, (count, 1, 1), generator=generator, device=device)
    amount, start, stretch = torch.rand(3, count, 1, 1, generator=generator, device=device)
    deviation, mean = torch.std_mean(signals.float(), dim=2, correction=0, keepdim=True)
    noise = torch.randn(signals.shape, generator=generator, device=device)
    gain = 0.5 + torch.rand(count, channels, 1, generator=generator, device=device)
    nodes = torch.randn(count, 1, 5, generator=generator, device=device)
    field = torch.nn.functional.interpolate(nodes, size=length, mode="linear", align_corners=True)
    time = torch.arange(length, device=device)
    moved = (time + 0.1 * length * amount * field).clamp(0, length - 1)
    below = moved.floor().long().clamp(max=max(0, length - 2)).expand_as(signals)
    above, part = (below + 1).clamp(max=length - 1), (moved - below[:, :1]).to(signals)
    bent = (1 - part) * signals.gather(2, below) + part * signals.gather(2, above)
    lost = (time >= (start * length)) & (time < start * length + 0.5 * stretch * length)
    ways = ((signals + (amount * deviation * noise).to(signals)), (gain.to(signals) * signals), bent)
    drawn = torch.where(lost, mean.to(signals), signals)
    for number, way in enumerate(ways):
        drawn = torch.where(kinds == number, way, drawn)
    return drawn


def draw_pixels(images: Tensor, generator: torch.Generator) -> Tensor:
    """Perturb each image (N, c, H, W) with one of `IN_PLACE` or a tone change.

    The range of values is that of the batch, extended to include [0, 1].
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
    """Replace a random fraction of the tokens of each text, except the first, by random tokens from the batch.

    The fraction is uniform in [0, `MOST_TOKENS`].
    """
    share = MOST_TOKENS * torch.rand(len(ids), 1, generator=generator)
    chosen = torch.rand(ids.shape, generator=generator) < share
    chosen[:, :1] = False
    others = ids.flatten()[torch.randint(ids.numel(), ids.shape, generator=generator)]
    return torch.where(chosen, others, ids)


def _swapped(values: Tensor, generator: torch.Generator, keep: Tensor | None = None) -> Tensor:
    """Replace a random fraction of the values of each row by values from the same column in random rows.

    The fraction is uniform in [0, 1/2]. Values for which `keep` is True neither change nor replace others.
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
    """Choose a random fraction, uniform in [0, 1/2], of the positions of each row."""
    share = torch.rand(len(values), 1, generator=generator, device=values.device) / 2
    return torch.rand(values.shape, generator=generator, device=values.device) < share


def _fixed(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Return a mask of fixed tokens: padding, and the first token of every text, which is often a class token."""
    fixed = torch.zeros_like(tokens, dtype=torch.bool)
    fixed[:, 0] = True
    return fixed if mask is None else fixed | (mask == 0)


def _mask(parts: Mapping[Any, Any], key: Any) -> Tensor | None:
    """Return the padding mask, identified by its name, or else by its shape and values; None if there is none."""
    named = [parts[name] for name in _MASKS if name in parts]
    return next(iter(named or [part for other, part in parts.items() if _is_mask(parts, other, [key])]), None)


def _is_mask(parts: Mapping[Any, Any], key: Any, texts: Sequence[Any]) -> bool:
    """Return True if an input contains only 0 and 1 and has the same shape as another input named in `texts`."""
    part = parts[key]
    if not isinstance(part, Tensor) or all(other == key or part.shape != parts[other].shape for other in texts):
        return False
    return bool(((part == 0) | (part == 1)).all())


def _form(part: Any) -> str:
    if not isinstance(part, Tensor) or part.ndim not in (2, 3, 4) or part.dtype == torch.bool:
        return ""
    if part.ndim != 2:
        return "images" if is_image(part) else "signals" if part.ndim == 3 and part.is_floating_point() else ""
    return "" if part.shape[1] == 1 else "table" if part.is_floating_point() else "tokens"


def _parts(inputs: Any) -> dict[Any, Any]:
    return dict(inputs if isinstance(inputs, Mapping) else enumerate(inputs if _several(inputs) else [inputs]))


def _several(inputs: Any) -> bool:
    return isinstance(inputs, tuple | list)
