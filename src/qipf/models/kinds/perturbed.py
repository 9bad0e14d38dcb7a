"""Perturbed inputs for models with several predictions per input: nothing moves, so every label stays where it is.

| predictions | inputs | perturbation |
|---|---|---|
| pixels | images (N, c, H, W), floating point | noise, blur, less contrast, coarser pixels or another tone |
| tokens | token ids (N, T), whole numbers | up to 30 % of the tokens are replaced by others of the batch |
| several labels | images, rows of a table or token ids | as for classes, `qipf.models.draws` |

Unlike for classes, images are not bent and nothing is cut out of them: their labels would have to follow. The five
perturbations are equally frequent. Another tone is a change of contrast about the mean of the image by a factor of 0.5
to 1.5, and of brightness by up to 40 % of the range of values, both without a limit to the range.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from qipf.models.batches import as_labels, raw_batches
from qipf.models.draws import Draws, Perturb
from qipf.models.given import describe, split_batch
from qipf.models.kinds.excerpts import Excerpt
from qipf.models.whole import is_array
from qipf.runners.torch import to_tensor
from qipf.tasks.perturbations import draw_perturbations, perturb_batch

Kind = Literal["pixels", "tokens", "labels"]
IN_PLACE = ("gaussian-noise", "blur", "contrast", "pixelate")
"""The perturbations of images that leave every pixel where it is."""
COLOURS = (1, 3, 4)
"""How many numbers a pixel of an image has, by which (N, c, H, W) is told from (N, H, W, c)."""
MOST_TOKENS = 0.3
"""The largest share of the tokens of a text that is replaced."""


def perturbed_batches(
    data: Any, kind: Kind, *, draws: int, perturb: Perturb | bool, batch_size: int, seed: int
) -> Excerpt:
    """Return every labelled batch as it is, and after it `draws` perturbed copies of it with the same labels.

    Args:
        data: As for `qipf.collect`, with labels.
        kind: What is predicted.
        draws: Perturbed copies per batch.
        perturb: False for no copies, or a function of the inputs and a generator that returns inputs of the same form.
        batch_size: Inputs per batch, for data that does not come in batches.
        seed: Of the perturbations.
    """
    batches = _batches(data, kind, draws, perturb, batch_size, seed)
    numbers = data.numbers if isinstance(data, Excerpt) else None
    return Excerpt(batches, numbers, copies=1 if perturb is False else 1 + draws)


def _batches(
    data: Any, kind: Kind, draws: int, perturb: Perturb | bool, batch_size: int, seed: int
) -> Iterator[tuple[Any, Tensor]]:
    own = perturb if callable(perturb) else None
    generator = torch.Generator().manual_seed(seed)
    draw = Draws(own, generator)
    for number, batch in enumerate(raw_batches(data, batch_size)[0]):
        inputs, given = split_batch(batch, number)
        labels = as_labels(given, None, number)
        if labels is None:
            raise ValueError(
                f"data: batch {number} has no labels, and the probe learns from them; give (inputs, labels)"
            )
        yield inputs, labels
        for _ in range(0 if perturb is False else draws):
            yield _copy(inputs, kind, draw, generator, own is not None), labels


def _copy(inputs: Any, kind: Kind, draw: Draws, generator: torch.Generator, own: bool) -> Any:
    if own:
        return draw(inputs)
    values = _tensors(inputs)
    if kind == "labels":
        if draw.form(values):
            return draw(values)
    elif isinstance(values, dict):  # the only input that can be perturbed, and the others as they are
        names = [name for name, part in values.items() if isinstance(part, Tensor) and _fits(part, kind)]
        names = [name for name in names if "mask" not in str(name)]
        if len(names) == 1:
            return {**values, names[0]: _drawn(values[names[0]], kind, generator)}
    elif isinstance(values, Tensor) and _fits(values, kind):
        return _drawn(values, kind, generator)
    raise ValueError(
        f"data: these inputs cannot be perturbed for {kind}: {describe(inputs)}; give perturb=False, or a function of "
        "the inputs and a generator"
    )


def _tensors(inputs: Any) -> Any:
    """The inputs with every array as a tensor, whether there is one input or several."""
    if isinstance(inputs, dict):
        return {name: to_tensor(part) if is_array(part) else part for name, part in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(to_tensor(part) if is_array(part) else part for part in inputs)
    return to_tensor(inputs)


def _fits(values: Tensor, kind: Kind) -> bool:
    if kind == "pixels":
        return values.ndim == 4 and values.is_floating_point()
    return values.ndim == 2 and not values.is_floating_point()


def _drawn(values: Tensor, kind: Kind, generator: torch.Generator) -> Tensor:
    here = values.cpu()
    if kind == "tokens":
        return draw_tokens(here, generator).to(values.device)
    last = here.shape[3] in COLOURS and here.shape[1] not in COLOURS  # (N, H, W, c)
    drawn = draw_pixels(here.movedim(3, 1) if last else here, generator)
    return (drawn.movedim(1, 3).contiguous() if last else drawn).to(values.device)


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
