"""Passes of a segmentation network: batch after batch of images, each as a whole or tile after tile."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qipf._common.progress import track
from qipf.models.batches import Batch
from qipf.models.kinds.excerpts import copies_of
from qipf.models.kinds.pixel_runs import ModuleRuns, first_image
from qipf.models.kinds.session_runs import SessionRuns
from qipf.models.kinds.tiles import Tile, check_tiles, cut, cut_arguments, find_images, wider
from qipf.models.sessions.model import as_onnx

BLOCK = 2**22
"""Logits and features that are scored at once on a CPU: 16 MB in single precision. Other devices take 16 times that."""
TOLERANCE = 1e-3
"""Differences of logits, in standard deviations of the logits, that are taken for rounding errors."""


@dataclass(frozen=True, eq=False)
class Part:
    """What one forward pass left of the pixels that count.

    Attributes:
        logits: (N, C, h, w) of these pixels.
        features: (N, D, rows, columns) of the whole tile, or None.
        tile: Where the tile and the pixels lie in the images.
    """

    logits: Tensor
    features: Tensor | None
    tile: Tile

    def at(self, images: Tensor, down: Tensor, across: Tensor) -> dict[str, Tensor]:
        """Return the logits and features of single pixels, given by their places in the images, one row per pixel."""
        rows, columns = self.tile.core
        found = {"logits": _single(self.logits[images, :, down - rows.start, across - columns.start])}
        if self.features is not None:
            found["features"] = self.features[images, :, self._near(down, 0), self._near(across, 1)].float()
        return found

    def blocks(self) -> Iterator[tuple[slice, slice, dict[str, Tensor]]]:
        """Yield images, rows of the core, and the logits and features of all their pixels, one row per pixel."""
        count, classes, height, width = self.logits.shape
        numbers = width * (classes + (0 if self.features is None else self.features.shape[1]))
        most = BLOCK if self.logits.device.type == "cpu" else 16 * BLOCK
        images = max(1, most // (numbers * height))
        rows = height if images > 1 else max(1, most // numbers)
        for image in range(0, count, images):
            for row in range(0, height, rows):
                here = slice(image, image + images), slice(row, min(row + rows, height))
                found = {"logits": _single(_flat(self.logits[here[0], :, here[1]]))}
                if self.features is not None:
                    start = self.tile.core[0].start
                    down = torch.arange(start + here[1].start, start + here[1].stop, device=self.features.device)
                    across = torch.arange(*self.tile.core[1].indices(2**62)[:2], device=self.features.device)
                    picked = self.features[here[0]].index_select(2, self._near(down, 0))
                    found["features"] = _flat(picked.index_select(3, self._near(across, 1))).float()
                yield *here, found

    def _near(self, places: Tensor, axis: int) -> Tensor:
        """The places on the map of features next to places of the image, along one axis."""
        seen = self.tile.seen[axis]
        size = 0 if self.features is None else self.features.shape[2 + axis]
        return (places - seen.start) * size // (seen.stop - seen.start)


def _flat(values: Tensor) -> Tensor:
    return values.movedim(1, -1).reshape(-1, values.shape[1])


def _single(values: Tensor) -> Tensor:
    return values.float() if values.element_size() < 4 else values


class Passes:
    """Iterates over batches of images.

    Args:
        model: As for `qipf.models.collect_pixels`.
        data: As for `qipf.collect`.
        features: As for `qipf.models.collect_pixels`.
        device: Where the inputs go.
        batch_size: Images per batch, for data that does not come in batches.
        progress: Show a progress bar.
        tile: The largest height and width of images that are read in one pass; None for any.
        overlap: Pixels at the edges of a tile that do not count.
    """

    def __init__(
        self, model: Any, data: Any, features: str | bool, device: Any, batch_size: int, progress: bool,
        tile: int | None, overlap: int,
    ) -> None:  # fmt: skip
        check_tiles(tile, overlap)
        onnx = as_onnx(model)
        if onnx is None:
            self._runs = ModuleRuns(model, data, features, device, batch_size)
        else:
            self._runs = SessionRuns(onnx, data, features, device, batch_size, progress)
        self._progress, self._size, self._overlap = progress, tile, overlap
        self._checked = tile is None
        self.data, self._copies = data, copies_of(data)

    def __iter__(self) -> Iterator[tuple[Batch, int, int]]:
        """Yield every batch with its number and the number of its first image."""
        shown, first = (
            track(self._runs.batches, "reading pixels", total=self._runs.batches.count, show=self._progress),
            0,
        )
        for number, batch in enumerate(shown):
            yield batch, number, first
            last_copy = (number + 1) % self._copies == 0
            first += (batch.rows or 0) if last_copy else 0

    @property
    def tiled(self) -> bool:
        """Whether images may be cut into tiles."""
        return self._size is not None

    def shape(self, batch: Batch) -> tuple[int, int]:
        """Return the height and width of the images of a batch."""
        height, width = find_images(batch.arguments, batch.keywords).shape[2:]
        return height, width

    def parts(self, batch: Batch, number: int) -> Iterator[Part]:
        """Yield what the passes over one batch leave; drop each part before the next one is asked for."""
        if self._size is None:
            yield self._run(batch, None, number)
            return
        height, width = self.shape(batch)
        for tile in cut(height, width, self._size, self._overlap):
            part = self._run(batch, tile, number)
            if not self._checked and any(side.start for side in tile.seen):
                self._check(part, batch, number)
            yield part
            del part  # the logits of two tiles would exist at once

    def _run(self, batch: Batch, tile: Tile | None, number: int) -> Part:
        arguments, keywords = batch.arguments, batch.keywords
        if tile is not None:
            arguments, keywords = cut_arguments(arguments, keywords, tile)
        logits, hidden = self._runs(arguments, keywords, number)
        if tile is None:
            whole = slice(0, logits.shape[2]), slice(0, logits.shape[3])
            return Part(logits, hidden, Tile(whole, whole))
        seen = tuple(side.stop - side.start for side in tile.seen)
        if tuple(logits.shape[2:]) != seen:
            raise ValueError(
                f"tile: expected logits of the size of the images, {seen}, to put tiles together, got "
                f"{tuple(logits.shape[2:])}; leave tile out, or let the model enlarge its logits"
            )
        return Part(tile.inside(logits), hidden, tile)

    def _check(self, part: Part, batch: Batch, number: int) -> None:
        """Say so, once, where the logits of a tile depend on what lies beyond it, or on where it begins."""
        self._checked = True
        height, width = self.shape(batch)
        one = Batch(first_image(batch.arguments, batch.keywords), batch.keywords, None, None)
        again = self._run(one, wider(part.tile, height, width, max(16, self._overlap)), number).logits
        limit = TOLERANCE * float(again.float().std())
        difference = float((again - part.logits[: len(again)]).abs().max())
        if difference > limit:
            warnings.warn(
                f"tile: logits depend on more than the overlap of {self._overlap} pixels: they change by up to "
                f"{difference:.2g} where tiles see more, so scores next to the edges of tiles are approximate; give a "
                "larger overlap, and choose tile and overlap as multiples of what the network reduces the resolution "
                "by; a network that pools over the whole image has no exact tiles",
                stacklevel=5,
            )
