"""One batch of images with the labels of their pixels; errors name the image, the row and the column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qipf.models.batches import Batch
from qipf.models.kinds.excerpts import number_of
from qipf.models.kinds.ignored import left_out
from qipf.models.kinds.pixel_parts import Part, Passes
from qipf.models.labels import way_of_pixels


@dataclass(frozen=True, eq=False)
class Images:
    """One batch of images that the network has not read yet.

    Attributes:
        passes: What reads them.
        batch: The images and their labels.
        number: Of the batch.
        first: The number of its first image.
    """

    passes: Passes
    batch: Batch
    number: int
    first: int

    def parts(self) -> Iterator[Part]:
        """Yield what the passes leave, part after part."""
        return self.passes.parts(self.batch, self.number)

    def labels(self, part: Part, ignore: int | Sequence[int]) -> tuple[Tensor | None, Tensor]:
        """Return the labels (N, H, W) and which of them count, once a first part shows shape, classes and device.

        Raises:
            ValueError: The labels do not fit the logits.
        """
        given, device = self.batch.labels, part.logits.device
        count, classes, *shape = part.logits.shape
        shape = self.passes.shape(self.batch) if self.passes.tiled else shape
        expected, some = (count, *shape), left_out(ignore, max(2, classes))
        if given is None:
            return None, torch.ones(expected, dtype=torch.bool, device=device)
        if tuple(given.shape) != expected or given.is_floating_point():
            way = way_of_pixels(given, (count, classes, *shape))
            raise ValueError(
                f"batch {self.number}: expected whole numbers of shape {expected}, one label per pixel, got "
                f"{str(given.dtype).removeprefix('torch.')} of shape {tuple(given.shape)}{way and '; '}{way}"
            )
        labels = given.to(device, torch.int64)
        labelled = ~torch.isin(labels, torch.tensor(some, device=device, dtype=labels.dtype))
        bad = labelled & ((labels < 0) | (labels >= max(2, classes)))
        if bool(bad.any()):
            image, row, column = bad.nonzero()[0].tolist()
            words = f"as there are {classes} logits" if classes > 1 else "as there is one logit"
            place = self._place(image, row, column)
            way = f"give pixels without a label {some[0]}, or name theirs in ignore" if some else "repair them"
            raise ValueError(
                f"labels: expected classes from 0 to {max(2, classes) - 1}, {words}, or {_listed(some)} for pixels "
                f"without a label; got {int(labels[image, row, column])} {place}, the first of {int(bad.sum())} such "
                f"pixels in this batch; {way}"
            )
        return labels, labelled

    def check_finite(self, part: Part) -> None:
        """Raise ValueError with the first pixel of a part whose logits are NaN or infinite, if there is one."""
        bad = ~part.logits.isfinite().all(1)
        if bool(bad.any()):
            image, row, column = bad.nonzero()[0].tolist()
            rows, columns = part.tile.core
            place = self._place(image, rows.start + row, columns.start + column)
            raise ValueError(
                f"logits: NaN or infinite values {place}, the first of {int(bad.sum())} such pixels in this batch; "
                "check what the model does with this image, or run it in single precision"
            )

    def _place(self, image: int, row: int, column: int) -> str:
        number = number_of(self.passes.data, self.first + image)
        return f"in image {number}, row {row}, column {column} (all counted from 0)"


def _listed(labels: tuple[int, ...]) -> str:
    return " or ".join(map(str, labels)) or "nothing"
