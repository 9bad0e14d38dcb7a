"""Segmentation: one prediction per pixel, scored as maps, with a sample of pixels for fitting."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import check_whole
from qipf._common.optional import require
from qipf.arrays import Array
from qipf.models.kinds.groups import Summary, by_group
from qipf.models.kinds.ignored import IGNORED, MASKS, parts_of_masks
from qipf.models.outputs import Outputs
from qipf.models.sessions.model import as_onnx
from qipf.runners.loading import check_facts as warn_of_other

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class PixelMaps:
    """The pixels of one batch of N images.

    Attributes:
        uncertainty: (N, H, W); higher is less sure.
        predicted: (N, H, W) the class with the largest logit; of one logit per pixel, 1 where it is above 0.
        labels: (N, H, W) true classes, or None.
        labelled: (N, H, W) which pixels have a label that counts; all of them in data without labels.
    """

    uncertainty: Tensor
    predicted: Tensor
    labels: Tensor | None
    labelled: Tensor

    def __len__(self) -> int:
        return len(self.predicted)

    @property
    def correct(self) -> Tensor:
        """(N, H, W) whether each prediction equals its label; meaningful where `labelled`."""
        if self.labels is None:
            raise ValueError("these maps have no labels; score data with labels")
        return self.predicted == self.labels

    def per_image(self, how: Summary = "mean") -> np.ndarray:
        """Summarise the uncertainty of each image, (N,), over its labelled pixels."""
        return np.concatenate(
            [by_group(one, mask.long() - 1, 1, how) for one, mask in zip(self.uncertainty, self.labelled, strict=True)]
        )

    def per_region(self, image: int, regions: Array, how: Summary = "mean") -> np.ndarray:
        """Summarise the uncertainty of the regions of one image, one number per region.

        Args:
            image: Which image of the batch.
            regions: (H, W) the region of each pixel, whole numbers from 0, for instance `predicted` or what
                `scipy.ndimage.label` returns; pixels with a negative number are left out.
            how: "mean", "max" or "sum".
        """
        return by_group(self.uncertainty[image], regions, how=how)


def collect_pixels(
    model: Any,
    data: Any,
    *,
    per_image: int = 200,
    ignore: int | Sequence[int] = IGNORED,
    features: str | bool = False,
    tile: int | None = None,
    overlap: int = 64,
    seed: int = 0,
    device: torch.device | str | None = None,
    store: torch.device | str | None = "cpu",
    batch_size: int = 4,
    progress: bool = True,
) -> Outputs:
    """Return the logits, features and labels of a random sample of pixels, one row per pixel, to fit a scorer to.

    Args:
        model: A torch module that returns logits (N, C, H, W), which is left as it was found, or an ONNX model, also
            one with a softmax or a sigmoid at its end; both as for `qipf.collect`.
        data: Images, with labels (N, H, W) or without, as `qipf.collect` takes data.
        per_image: Pixels to take of each image; all labelled ones where there are fewer.
        ignore: Labels of pixels to leave out. If not given, -100, and 255 unless the model has such a class.
        features: True for what enters the convolution that makes the logits, or the name of a module whose
            output (N, D, h, w) to read; False for none. Of an ONNX model, the name of a tensor. Maps smaller than the
            logits are read at the nearest place.
        tile: As for `score_pixels`.
        overlap: As for `score_pixels`.
        seed: Of the sample.
        device: Where the inputs go; None is the device of the model.
        store: Where the results go; None is the device of the model.
        batch_size: Images per batch, for data that does not come in batches.
        progress: Show a progress bar.
    """
    return sample_pixels(
        model, data, per_image=per_image, ignore=ignore, features=features, tile=tile, overlap=overlap, seed=seed,
        device=device, store=store, batch_size=batch_size, progress=progress,
    )[0]  # fmt: skip


def sample_pixels(
    model: Any, data: Any, *, per_image: int, ignore: int | Sequence[int] = IGNORED, features: str | bool = False,
    tile: int | None = None, overlap: int = 64, seed: int = 0, device: torch.device | str | None = None,
    store: torch.device | str | None = "cpu", batch_size: int = 4, progress: bool = True,
) -> tuple[Outputs, Tensor]:  # fmt: skip
    """Return what `collect_pixels` does, and the number of the image that each pixel belongs to."""
    torch = require("torch", extra="torch")
    from qipf.models.kinds.pixel_labels import Images
    from qipf.models.kinds.pixel_parts import Passes
    from qipf.models.logits import Rows

    check_whole("per_image", per_image, 1)
    generator = torch.Generator().manual_seed(seed)
    kept: dict[str, Rows] = {}
    count, seen = 0, (False, False, False)
    passes = Passes(model, data, features, device, batch_size, progress, tile, overlap)
    for images in (Images(passes, *one) for one in passes):
        labels = places = labelled = None
        for part in images.parts():
            if places is None:
                labels, labelled = images.labels(part, ignore)
                if labels is not None and ignore is IGNORED and part.logits.shape[1] <= 2:
                    seen = tuple(map(max, seen, parts_of_masks(labels)))
                places = _draw(labelled, per_image, generator)
            rows, columns = part.tile.core
            inside = (places[1] >= rows.start) & (places[1] < rows.stop)
            inside &= (places[2] >= columns.start) & (places[2] < columns.stop)
            here = tuple(axis[inside] for axis in places)
            found = part.at(*here)
            if not bool(found["logits"].isfinite().all()):
                images.check_finite(part)
            found["image"] = here[0] + count
            if labels is not None:
                found["labels"] = labels[here]
            keep_on = part.logits.device if store is None else torch.device(store)
            for name, values in found.items():
                kept.setdefault(name, Rows(None, keep_on)).append(values)
            del part  # the logits of two passes would exist at once
        count += 0 if labelled is None else len(labelled)
    if not kept or kept["logits"].count == 0:
        raise ValueError(
            "data: expected at least one labelled pixel, got none; is the data set empty, or do all labels mean that "
            "there is none?"
        )
    if seen == (True, True, False):
        warnings.warn(f"labels: {MASKS}", stacklevel=3)
    whole = {name: rows.finish() for name, rows in kept.items()}
    return Outputs(whole["logits"], whole.get("features"), whole.get("labels")), whole["image"]


def score_pixels(
    model: Any,
    data: Any,
    scorer: Callable[[Outputs], Array],
    *,
    ignore: int | Sequence[int] = IGNORED,
    features: str | bool | None = None,
    tile: int | None = None,
    overlap: int = 64,
    device: torch.device | str | None = None,
    store: torch.device | str | None = "cpu",
    batch_size: int = 4,
    progress: bool = True,
) -> Iterator[PixelMaps]:
    """Score every pixel and yield the maps of one batch after another, so memory does not grow with the data.

    Args:
        model: A torch module that returns logits (N, C, H, W), which is left as it was found, or an ONNX model, also
            one with a softmax or a sigmoid at its end; both as for `qipf.collect`.
        data: Images, with labels (N, H, W) or without, as `qipf.collect` takes data.
        scorer: Any fitted scorer that reads logits and features.
        ignore: Labels of pixels that do not count as labelled; they are scored all the same.
        features: As for `collect_pixels`; None for True where the scorer reads features, and False otherwise.
        tile: The largest height and width that one pass reads; larger images are cut into tiles of this size, and only
            the scores and classes of the whole image exist at once. None for no tiles.
        overlap: How many pixels at the edges of a tile do not count, because the network does not see what lies beyond
            them. Tiles give the scores of the whole image if this is at least half of the receptive field, and `tile`
            and `overlap` are multiples of the factor by which the network reduces the resolution. One tile is
            compared with what a larger one gives, and a warning says so where they differ.
        device: Where the inputs go; None is the device of the model.
        store: Where the maps go; None is the device of the model.
        batch_size: Images per batch, for data that does not come in batches.
        progress: Show a progress bar.

    A scorer that was fitted to a model with other weights draws a warning.
    """
    model, fitted = as_onnx(model) or model, getattr(scorer, "fitted", None)
    if fitted is not None:
        warn_of_other(fitted.facts, model)
    return map_pixels(
        model, data, scorer, ignore=ignore, features=features, tile=tile, overlap=overlap, device=device, store=store,
        batch_size=batch_size, progress=progress,
    )  # fmt: skip


def map_pixels(
    model: Any, data: Any, scorer: Callable[[Outputs], Array], *, ignore: int | Sequence[int] = IGNORED,
    features: str | bool | None = None, tile: int | None = None, overlap: int = 64,
    device: torch.device | str | None = None, store: torch.device | str | None = "cpu", batch_size: int = 4,
    progress: bool = True,
) -> Iterator[PixelMaps]:  # fmt: skip
    """Do what `score_pixels` does, without a look at the weights of the model."""
    torch = require("torch", extra="torch")
    from qipf.models.kinds.pixel_labels import Images
    from qipf.models.kinds.pixel_parts import Passes
    from qipf.models.outputs import predicted_classes

    if not callable(scorer):
        raise TypeError(f"scorer: expected a fitted scorer such as qipf.Entropy(), got {scorer!r}")
    wanted, count = getattr(scorer, "reads_features", False) if features is None else features, 0
    passes = Passes(model, data, wanted, device, batch_size, progress, tile, overlap)
    for images in (Images(passes, *one) for one in passes):
        labels = labelled = uncertainty = None
        predicted: Any = None
        for part in images.parts():
            keep_on = part.logits.device if store is None else torch.device(store)
            if labelled is None:
                labels, labelled = images.labels(part, ignore)
            rows, columns = part.tile.core
            for image, down, block in part.blocks():
                try:
                    scores: Any = scorer(Outputs(**block))  # pyright: ignore[reportArgumentType]
                except ValueError:
                    images.check_finite(part)  # names the pixel instead of a row of the block
                    raise
                if uncertainty is None:
                    uncertainty = torch.empty(labelled.shape, dtype=scores.dtype, device=keep_on)
                    predicted = torch.empty(labelled.shape, dtype=torch.int64, device=keep_on)
                here = image, slice(rows.start + down.start, rows.start + down.stop), columns
                uncertainty[here] = scores.view(uncertainty[here].shape).to(keep_on)
                predicted[here] = predicted_classes(block["logits"]).view(uncertainty[here].shape).to(keep_on)
                del block
            del part  # the logits of two passes would exist at once
        if labelled is not None and uncertainty is not None:
            kept = None if labels is None else labels.to(uncertainty.device)
            count += len(labelled)
            yield PixelMaps(uncertainty, predicted, kept, labelled.to(uncertainty.device))
    if not count:
        raise ValueError("data: expected at least one image, got none; is the data set empty, or the iterator used up?")


def _draw(labelled: Tensor, per_image: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return the images, rows and columns of random labelled pixels, image by image."""
    torch = require("torch", extra="torch")
    mask = labelled.flatten(1).cpu()
    order = torch.rand(mask.shape, generator=generator).masked_fill(~mask, -1.0)
    chance, places = order.topk(min(per_image, mask.shape[1]), dim=1)
    images = torch.arange(len(mask))[:, None].expand_as(places)[chance >= 0].to(labelled.device)
    found = places[chance >= 0].to(labelled.device)
    return images, found // labelled.shape[2], found % labelled.shape[2]
