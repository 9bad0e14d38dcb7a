"""One class per pixel: segmentation of whole images or tiles."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from qipf._common.errors import Problem, check_whole
from qipf._common.optional import require
from qipf.arrays import Array, namespace, to_numpy
from qipf.data.batches import Batch, colours_last, is_map
from qipf.runners.runner import Pass, Run
from qipf.tasks.outputs import Method, Outputs, Scored, kind_of
from qipf.tasks.task import FORMS, Draw, Part, ProbeSettings, Task, as_tensor

if TYPE_CHECKING:
    from torch import Tensor


IGNORED = (-100, 255)
"""The labels ignored by default: -100 as in torch, and 255 as in Pascal VOC."""
BLOCK = 2**22
"""The number of values scored at once on a CPU, 16 MB in single precision. Other devices use 16 times this number."""
TOLERANCE = 1e-3
"""The tolerance for rounding errors in logits, in standard deviations of the logits."""


class Tile(NamedTuple):
    """The part of an image processed in one pass.

    Attributes:
        seen: The rows and columns that the network reads.
        core: The rows and columns whose logits are kept; the cores cover the image without overlap.
    """

    seen: tuple[slice, slice]
    core: tuple[slice, slice]

    def inside(self, values: Array) -> Array:
        """Crop the logits (N, C, h, w) of a tile to its core."""
        (down, across), (rows, columns) = self.seen, self.core
        return values[
            :, :, rows.start - down.start : rows.stop - down.start,
            columns.start - across.start : columns.stop - across.start,
        ]  # fmt: skip


@dataclass(frozen=True)
class Pixels(Task):
    """One class per pixel, from logits (N, C, H, W) and labels (N, H, W).

    Args:
        ignore: The label or labels to ignore; None for -100, and also for 255 if it is not a class.
        per_image: The maximum number of labelled pixels sampled per image to fit a scorer.
        tile: The height and width of the tiles into which larger images are cut to save memory; None to run the model
            on whole images.
        overlap: The number of pixels to discard at the edges of a tile. Scores do not depend on the tiles if `overlap`
            is at least half of the receptive field, and if `tile` and `overlap` are multiples of the network's
            downsampling factor. A warning is given if the logits of one tile differ from those computed from a larger
            tile.
    """

    name: ClassVar[str] = "pixels"
    noun: ClassVar[str] = "pixel"
    independent: ClassVar[bool] = False
    batch_size: ClassVar[int] = 4
    dimensions: ClassVar[int] = 4
    whole: ClassVar[bool] = True
    probe: ClassVar[ProbeSettings] = ProbeSettings(6, "head", {"hidden": 64, "share": 0.7})

    ignore: int | Sequence[int] | None = None
    per_image: int = 200
    tile: int | None = None
    overlap: int = 64

    def __post_init__(self) -> None:
        check_whole("overlap", self.overlap, 0)
        check_whole("tile", 1 if self.tile is None else self.tile, 1)
        if self.tile is not None and self.tile <= 2 * self.overlap:
            raise Problem("tile", f"{self.tile}", expected=f"more than twice the overlap ({2 * self.overlap})")
        check_whole("per_image", self.per_image, 1)
        given: Any = self.ignore
        several = isinstance(given, Sequence) and not isinstance(given, str)
        chosen: tuple[Any, ...] = () if given is None else tuple(given) if several else (given,)
        if not all(isinstance(one, Integral) and not isinstance(one, bool) for one in chosen):
            raise Problem("ignore", f"{given!r}", expected="one or several integers, such as (-100, 255)")
        object.__setattr__(self, "ignore", None if given is None else [int(one) for one in chosen])

    @classmethod
    def fits(cls, output: tuple[int, ...], labels: Array | None) -> bool:
        """Return True for outputs (N, C, H, W) with integer labels (N, H, W) or without labels."""
        if len(output) != 4 or all(size == 1 for size in output[2:]):
            return False
        integral = labels is None or namespace(labels).isdtype(labels.dtype, ("integral", "bool"))
        return integral and (labels is None or len(labels.shape) == 3)

    def left_out(self, classes: int) -> tuple[int, ...]:
        """Return the labels to ignore."""
        if self.ignore is None:
            return tuple(one for one in IGNORED if not 0 <= one < classes)
        return tuple(self.ignore)  # pyright: ignore[reportArgumentType]

    def check(self, batch: Batch, output: tuple[int, ...]) -> Array | None:
        """Return the labels (N, H, W) as integers, after checking their shape and range."""
        if batch.labels is None:
            return None
        torch = require("torch", extra="torch")
        given, classes = torch.as_tensor(batch.labels), max(2, output[1])
        expected = self._shape(batch, output)
        if tuple(given.shape) != expected or given.is_floating_point():
            raise Problem(
                "labels", kind_of(given), expected=f"integers of shape (N, {expected[1]}, {expected[2]})",
                hint="pass labels[:, 0] for masks (N, 1, H, W), or the argmax of one-hot labels over the classes",
            )  # fmt: skip
        labels, some = given.to(torch.int64), self.left_out(classes)
        bad = ((labels < 0) | (labels >= classes)) & self._labelled(labels, classes)
        if bool(bad.any()):
            image, row, column = bad.nonzero()[0].tolist()
            left = f", or {' or '.join(map(str, some))} for unlabelled pixels" if some else ""
            raise Problem(
                "labels", f"{int(labels[image, row, column])} at pixel row {row}, column {column} of the image",
                expected=f"classes from 0 to {classes - 1}{left}", row=int(batch.numbers[image]),
                hint="pass the label to ignore as Pixels(ignore=...) or --task pixels:ignore=...",
            )  # fmt: skip
        if classes == 2 and self.ignore is None and _are_masks(labels):
            raise Problem(
                "labels", "255 means unlabelled by default, but the only labels are 0 and 255 in the batch that starts",
                row=int(batch.numbers[0]), hint="for masks, pass labels // 255; otherwise, Pixels(ignore=255)",
            )  # fmt: skip
        return labels

    def passes(self, run: Run, batch: Batch) -> Iterator[Part]:
        """Run the model on whole images, or tile by tile."""
        require("torch", extra="torch")
        if self.tile is None:
            yield self._part(run(batch), batch, None)
            return
        height, width = find_images(batch).shape[2:]
        for number, tile in enumerate(cut(height, width, self.tile, self.overlap)):
            # Keep no reference to the part; otherwise, the logits of two tiles would be in memory.
            check = number == 1 and batch.number == 0
            yield self._checked(run, batch, tile) if check else self._part(run(cut_batch(batch, tile)), batch, tile)

    def arranged(self, logits: Array) -> Tensor:
        """Return the logits as a tensor (N, C, H, W)."""
        if len(logits.shape) != 4:
            found = f"an output of shape {tuple(logits.shape)}"
            raise Problem("model", found, expected="logits (N, C, H, W) for pixels", hint=FORMS)
        return as_tensor(logits)

    def sample(self, part: Part, labels: Array | None, draw: Draw) -> Outputs:
        """Return random labelled pixels; their positions are drawn once for all tiles of a batch."""
        device, tile = part.logits.device, part.tile
        if tile.core[0].start == tile.core[1].start == 0:
            draw.held = _draw(self.counted(part, labels), self.per_image, draw.generator)
        images, down, across = (axis.to(device) for axis in draw.held)
        rows, columns = tile.core
        inside = (down >= rows.start) & (down < rows.stop) & (across >= columns.start) & (across < columns.stop)
        images, down, across = images[inside], down[inside], across[inside]
        logits = part.logits[images, :, down - rows.start, across - columns.start]
        logits = logits.float() if logits.element_size() < 4 else logits
        if not bool(logits.isfinite().all()):
            self.check_finite(part)
        features = _features(part)
        if features is not None:
            features = features[images, :, _near(down, tile, features, 0), _near(across, tile, features, 1)].float()
        own = None if labels is None else labels.to(device)[images, down, across]
        width = self._shape(part.batch, tuple(part.logits.shape))[2]
        return Outputs.unchecked(
            logits, features=features, labels=own, groups=images, positions=down * width + across, task=self.name
        )

    def blocks(self, part: Part) -> Iterator[tuple[Any, Outputs]]:
        """Yield blocks of image rows, each as an index and outputs with one row per pixel."""
        import torch

        count, classes, height, width = part.logits.shape
        features, tile = _features(part), part.tile
        numbers = width * (classes + (0 if features is None else features.shape[1]))
        most = BLOCK if part.logits.device.type == "cpu" else 16 * BLOCK
        top, left = tile.core[0].start, tile.core[1].start
        for image, row in product(range(count), range(0, height, rows := max(1, most // numbers))):
            last = min(row + rows, height)
            index = image, slice(top + row, top + last), slice(left, left + width)
            logits, found = part.logits[image, :, row:last].flatten(1).T, None
            if features is not None:
                down, across = (torch.arange(side.start, side.stop, device=features.device) for side in index[1:])
                found = features[image][:, _near(down, tile, features, 0)][:, :, _near(across, tile, features, 1)]
                found = found.flatten(1).T.float()
            logits = logits.float() if logits.element_size() < 4 else logits
            yield index, Outputs.unchecked(logits, features=found, task=self.name)

    def counted(self, part: Part, labels: Array | None) -> Array:
        """Return a mask of the pixels whose label is not ignored, or of all pixels if there are no labels."""
        import torch

        if labels is None:
            return torch.ones(self._shape(part.batch, tuple(part.logits.shape)), dtype=torch.bool)
        return self._labelled(labels, max(2, part.logits.shape[1]))

    def columns(self, scored: Scored, scorer: Any) -> dict[str, np.ndarray]:
        """Return one row per image, with the mean and the largest score of its labelled pixels.

        If an image has no labelled pixels, all its pixels are used.
        """
        del scorer
        known, doubt = to_numpy(scored.counted), to_numpy(scored.uncertainty)
        columns = {"row": np.asarray(scored.numbers)}
        ways: tuple[tuple[str, Method], ...] = (("uncertainty", "mean"), ("largest", "max"))
        for name, how in ways:
            every = getattr(doubt, how)((1, 2))
            columns[name] = np.where(known.any((1, 2)), scored.per_input(how), every)
        if scored.labels is not None:
            columns["labelled_pixels"] = known.sum((1, 2))
            columns["wrong_pixels"] = (known & ~to_numpy(scored.correct)).sum((1, 2))
        return columns

    def _position(self, part: Part, index: Sequence[int]) -> str:
        rows, columns = part.tile.core
        return f" at row {rows.start + index[1]}, column {columns.start + index[2]} of the image"

    def _labelled(self, labels: Tensor, classes: int) -> Tensor:
        import torch

        return ~torch.isin(labels, torch.tensor(self.left_out(classes), dtype=labels.dtype, device=labels.device))

    def _shape(self, batch: Batch, output: tuple[int, ...]) -> tuple[int, int, int]:
        """Return the shape (N, H, W) of the images from the shape of the logits of a part."""
        height, width = output[2:] if self.tile is None else find_images(batch).shape[2:]
        return output[0], height, width

    def finished(self, outputs: Outputs, numbers: Sequence[int], most: int | None, seed: int) -> Outputs:
        """Return the pixels, or a random sample of `most` pixels if there are more.

        Raises:
            Problem: No pixel has a label.
        """
        if not len(outputs):
            raise Problem("labels", "none", expected="at least one pixel with a label")
        return super().finished(outputs, numbers, most, seed)

    def _part(self, found: Pass, batch: Batch, tile: Tile | None) -> Part:
        logits = self.arranged(found.logits)
        images = [one.shape for one in (*batch.args, *batch.kwargs.values()) if is_map(one)]
        sizes = {tuple(shape[axis : axis + 2]) for shape in images for axis in ((1,) if colours_last(shape) else (2,))}
        if tile is None and tuple(logits.shape[1:3]) in sizes and tuple(logits.shape[2:]) not in sizes:
            raise Problem(
                "model", f"{tuple(logits.shape)} with the classes last", expected="logits (N, C, H, W)",
                hint="return logits.permute(0, 3, 1, 2) from the model",
            )  # fmt: skip
        if tile is None:
            whole = slice(0, logits.shape[2]), slice(0, logits.shape[3])
            return Part(batch, logits, found.features, Tile(whole, whole))
        seen = tuple(side.stop - side.start for side in tile.seen)
        if tuple(logits.shape[2:]) != seen:
            raise Problem(
                "tile", f"{tuple(logits.shape[2:])}", expected=f"logits with the height and width of the tile {seen}",
                hint="omit tile, or resize the logits in the model",
            )  # fmt: skip
        return Part(batch, tile.inside(logits), found.features, tile)

    def _checked(self, run: Run, batch: Batch, tile: Tile) -> Part:
        """Return the part of a tile; warn if the logits depend on pixels outside the tile or on the tile's position."""
        part = self._part(run(cut_batch(batch, tile)), batch, tile)
        height, width = find_images(batch).shape[2:]
        one = batch.first(1)
        larger = wider(tile, height, width, max(16, self.overlap))
        again = self._part(run(cut_batch(one, larger)), one, larger).logits
        limit = TOLERANCE * float(again.float().std())
        difference = float((again - part.logits[:1]).abs().max())
        if difference > limit:
            warnings.warn(
                f"tile: logits change by up to {difference:.2g} in a larger tile, so scores near the edges of tiles "
                "are approximate; use a larger overlap, and make tile and overlap multiples of the network's stride",
                stacklevel=6,
            )
        return part


def _draw(labelled: Tensor, per_image: int, generator: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the image, row and column indices of random labelled pixels, image by image."""
    import torch

    mask = labelled.flatten(1).cpu()
    order = torch.rand(mask.shape, generator=generator).masked_fill(~mask, -1.0)
    chance, found = order.topk(min(per_image, mask.shape[1]), dim=1)
    images = torch.arange(len(mask))[:, None].expand_as(found)[chance >= 0]
    found = found[chance >= 0]
    return images, found // labelled.shape[2], found % labelled.shape[2]


def _features(part: Part) -> Tensor | None:
    """Return the feature map (N, D, h, w) of the whole tile, or None if there are no features."""
    values = part.features.get("features")
    if values is None:
        return None
    if len(values.shape) != 4:
        found = f"shape {tuple(values.shape)}"
        raise Problem("features", found, expected="a map (N, D, h, w)", hint="choose another module or tensor")
    return as_tensor(values)


def _near(positions: Tensor, tile: Tile, features: Tensor, axis: int) -> Tensor:
    """Return the positions in the feature map nearest to positions in the image, along one axis."""
    seen = tile.seen[axis]
    return (positions - seen.start) * features.shape[2 + axis] // (seen.stop - seen.start)


def _are_masks(labels: Tensor) -> bool:
    none, full = labels == 0, labels == 255
    return bool(none.any()) and bool(full.any()) and bool((none | full).all())


def cut(height: int, width: int, tile: int, overlap: int) -> Iterator[Tile]:
    """Yield the tiles of an image, row by row; the whole image if it fits in one tile.

    The core of a tile is at least `overlap` pixels away from the edges of the tile, except at edges of the image.
    """
    for rows, columns in product(_line(height, tile, overlap), _line(width, tile, overlap)):
        yield Tile((rows[0], columns[0]), (rows[1], columns[1]))


def _line(length: int, tile: int, overlap: int) -> list[tuple[slice, slice]]:
    if length <= tile:
        return [(slice(0, length), slice(0, length))]
    step = tile - 2 * overlap
    count = math.ceil((length - 2 * overlap) / step)
    found = []
    for number in range(count):
        start, last = number * step, number == count - 1
        stop = length if last else start + tile
        found.append((slice(start, stop), slice(start + overlap if number else 0, length if last else stop - overlap)))
    return found


def wider(tile: Tile, height: int, width: int, more: int) -> Tile:
    """Return a tile with the same core that starts at the top left of the image and extends `more` pixels further."""
    sides = [slice(0, min(size, side.stop + more)) for side, size in zip(tile.seen, (height, width), strict=True)]
    return Tile((sides[0], sides[1]), tile.core)


def find_images(batch: Batch) -> Array:
    """Return the only input of a batch that contains images; raise Problem unless there is exactly one."""
    found = [one for one in (*batch.args, *batch.kwargs.values()) if is_map(one)]
    if len(found) != 1:
        raise Problem(
            "tile", f"{len(found)}", expected="exactly one input (N, c, H, W) to cut into tiles",
            hint="omit tile, or cut the images yourself",
        )  # fmt: skip
    return found[0]


def cut_batch(batch: Batch, tile: Tile) -> Batch:
    """Return the batch with its images cropped to a tile."""

    def one(value: Any) -> Any:
        return value[:, :, tile.seen[0], tile.seen[1]] if is_map(value) else value

    kwargs = {name: one(value) for name, value in batch.kwargs.items()}
    return batch._replace(args=tuple(one(value) for value in batch.args), kwargs=kwargs)
