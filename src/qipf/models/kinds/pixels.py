"""Segmentation: one prediction per pixel, scored as maps, with a sample of pixels for fitting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.optional import require
from qipf.arrays import Array
from qipf.models.kinds.groups import Summary, by_group
from qipf.models.labels import SUPPORTED, check_classes
from qipf.models.outputs import Outputs

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

IGNORED = (-100, 255)
"""Labels that by custom mean "not labelled": those of torch and of Pascal VOC."""
BLOCK = 2**22
"""Logits and features that are scored at once: 16 MB in single precision, whatever the size of the images."""


@dataclass(frozen=True, eq=False)
class PixelMaps:
    """The pixels of one batch of N images.

    Attributes:
        uncertainty: (N, H, W); higher is less sure.
        predicted: (N, H, W) the class with the largest logit.
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
    model: nn.Module,
    data: Any,
    *,
    per_image: int = 200,
    ignore: int | Sequence[int] = IGNORED,
    features: str | bool = False,
    seed: int = 0,
    device: torch.device | str | None = None,
    store: torch.device | str | None = "cpu",
    batch_size: int = 4,
    progress: bool = True,
) -> Outputs:
    """Return the logits, features and labels of a random sample of pixels, one row per pixel, to fit a scorer to.

    Args:
        model: A torch module that returns logits (N, C, H, W); it is left as it was found, as by `qipf.collect`.
        data: Images, with labels (N, H, W) or without, as `qipf.collect` takes data.
        per_image: Pixels to take of each image; all labelled ones where there are fewer.
        ignore: Labels of pixels to leave out.
        features: True for the input of the last convolution, which makes the logits, or the name of a module whose
            output (N, D, h, w) to read; False for none. Maps smaller than the logits are read at the nearest place.
        seed: Of the sample.
        device: Where the inputs go; None is the device of the model.
        store: Where the results go; None is the device of the model.
        batch_size: Images per batch, for data that does not come in batches.
        progress: Show a progress bar.
    """
    torch = require("torch", extra="torch")
    from qipf.models.logits import Rows

    if per_image < 1:
        raise ValueError(f"per_image: expected at least 1, got {per_image}")
    generator = torch.Generator().manual_seed(seed)
    kept: dict[str, Rows] = {}
    for batch in _passes(model, data, features, ignore, device, batch_size, progress):
        mask = batch.labelled.flatten(1).cpu()
        order = torch.rand(mask.shape, generator=generator).masked_fill(~mask, -1.0)
        chance, places = order.topk(min(per_image, mask.shape[1]), dim=1)
        rows = (places + mask.shape[1] * torch.arange(len(mask))[:, None])[chance >= 0].to(batch.logits.device)
        keep_on = batch.logits.device if store is None else torch.device(store)
        for name, values in batch.rows(rows).items():
            kept.setdefault(name, Rows(None, keep_on)).append(values)
    if not kept or kept["logits"].count == 0:
        raise ValueError("data: expected at least one labelled pixel, got none; is the data set empty?")
    found = {name: rows.finish() for name, rows in kept.items()}
    return Outputs(found["logits"], found.get("features"), found.get("labels"))


def score_pixels(
    model: nn.Module,
    data: Any,
    scorer: Callable[[Outputs], Array],
    *,
    ignore: int | Sequence[int] = IGNORED,
    features: str | bool | None = None,
    device: torch.device | str | None = None,
    store: torch.device | str | None = "cpu",
    batch_size: int = 4,
    progress: bool = True,
) -> Iterator[PixelMaps]:
    """Score every pixel and yield the maps of one batch after another, so memory does not grow with the data.

    Args:
        model: A torch module that returns logits (N, C, H, W); it is left as it was found, as by `qipf.collect`.
        data: Images, with labels (N, H, W) or without, as `qipf.collect` takes data.
        scorer: Any fitted scorer that reads logits and features.
        ignore: Labels of pixels that do not count as labelled; they are scored all the same.
        features: As for `collect_pixels`; None for True where the scorer reads features, and False otherwise.
        device: Where the inputs go; None is the device of the model.
        store: Where the maps go; None is the device of the model.
        batch_size: Images per batch, for data that does not come in batches.
        progress: Show a progress bar.
    """
    torch = require("torch", extra="torch")
    wanted = getattr(scorer, "reads_features", False) if features is None else features
    for batch in _passes(model, data, wanted, ignore, device, batch_size, progress):
        pixels = torch.arange(batch.labelled.numel(), device=batch.logits.device)
        width = batch.logits.shape[1] + (0 if batch.features is None else batch.features.shape[1])
        blocks = (batch.rows(rows, labelled=False) for rows in pixels.split(max(1, BLOCK // width)))
        shape, keep_on = batch.labelled.shape, batch.logits.device if store is None else torch.device(store)
        scores = torch.cat([scorer(Outputs(**block)) for block in blocks]).view(shape)  # pyright: ignore[reportArgumentType]
        yield PixelMaps(
            scores.to(keep_on),
            batch.logits.argmax(1).to(keep_on),
            None if batch.labels is None else batch.labels.to(keep_on),
            batch.labelled.to(keep_on),
        )


@dataclass(frozen=True, eq=False)
class _Pass:
    """What one forward pass left: logits (N, C, H, W), features (N, D, h, w), labels and which of them count."""

    logits: Tensor
    features: Tensor | None
    labels: Tensor | None
    labelled: Tensor

    def rows(self, places: Tensor, *, labelled: bool = True) -> dict[str, Tensor]:
        """Return the given pixels, numbers in the flattened (N, H, W), as rows."""
        height, width = self.logits.shape[2:]
        image, down, across = places // (height * width), places // width % height, places % width
        logits = self.logits[image, :, down, across]
        found = {"logits": logits.float() if logits.element_size() < 4 else logits}
        if self.features is not None:
            rows, columns = self.features.shape[2:]
            found["features"] = self.features[image, :, down * rows // height, across * columns // width].float()
        if labelled and self.labels is not None:
            found["labels"] = self.labels.flatten()[places]
        return found


def _passes(
    model: nn.Module, data: Any, features: str | bool, ignore: Any, device: Any, batch_size: int, progress: bool
) -> Iterator[_Pass]:
    """Yield what each batch leaves; while a consumer works on it, the model is as it was found."""
    torch = require("torch", extra="torch")
    from qipf._common.progress import track
    from qipf.models.batches import Batches
    from qipf.models.kinds.taps import Tap
    from qipf.models.logits import find_values
    from qipf.models.state import input_device, untouched, unwrap

    module = unwrap(model)
    batches = Batches(data, batch_size, module, input_device(module, device))
    tap = Tap(module, features, torch.nn.Conv2d)
    left_out = (ignore,) if isinstance(ignore, int) else tuple(ignore)
    for number, batch in enumerate(track(batches, "reading pixels", total=batches.count, show=progress)):
        with untouched(module, eager=tap.active), tap:
            logits = find_values(module(*batch.arguments, **batch.keywords))
            hidden = tap.take(4)
        if logits.ndim != 4:
            raise ValueError(f"batch {number}: expected logits (N, C, H, W), got {tuple(logits.shape)}; {SUPPORTED}")
        shape = (len(logits), *logits.shape[2:])
        labels, labelled = batch.labels, torch.ones(shape, dtype=torch.bool, device=logits.device)
        if labels is not None:
            if tuple(labels.shape) != shape or labels.is_floating_point():
                raise ValueError(
                    f"batch {number}: expected whole numbers of shape {shape}, one label per pixel, got "
                    f"{str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}"
                )
            labels = labels.to(logits.device)
            labelled = ~torch.isin(labels, torch.tensor(left_out, device=labels.device, dtype=labels.dtype))
            check_classes(labels[labelled], logits.shape[1])
        yield _Pass(logits, hidden, labels, labelled)
