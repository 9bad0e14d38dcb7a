"""Tiles: an image that is too large for one pass is cut into overlapping parts, of which only the middle counts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from qipf._common.errors import Problem, check_whole
from qipf.arrays import Array
from qipf.data.batches import Batch, is_array


class Tile(NamedTuple):
    """One tile: what the network sees, and the part of it that counts; all in pixels of the image."""

    seen: tuple[slice, slice]
    """rows and columns of the tile"""
    core: tuple[slice, slice]
    """rows and columns that this tile and no other one decides"""

    def inside(self, values: Array) -> Array:
        """Return the part that counts of what the network made of the tile, (N, C, h, w)."""
        (down, across), (rows, columns) = self.seen, self.core
        return values[
            :, :, rows.start - down.start : rows.stop - down.start,
            columns.start - across.start : columns.stop - across.start,
        ]  # fmt: skip


def check_tiles(tile: int | None, overlap: int) -> None:
    """Raise Problem unless tiles of this size and overlap cover an image."""
    check_whole("overlap", overlap, 0)
    if tile is None:
        return
    check_whole("tile", tile, 1)
    if tile <= 2 * overlap:
        raise Problem(
            "tile", f"{tile}", expected=f"more than {2 * overlap}, twice the overlap, which lies on both sides"
        )


def cut(height: int, width: int, tile: int | None, overlap: int) -> Iterator[Tile]:
    """Yield the tiles of an image, row by row; one that is the whole image where it is small enough.

    Tiles begin at multiples of `tile - 2 * overlap`, and each pixel counts in one tile: where it is at least `overlap`
    pixels away from every edge of the tile that is not an edge of the image.
    """
    for rows in _line(height, tile, overlap):
        for columns in _line(width, tile, overlap):
            yield Tile((rows[0], columns[0]), (rows[1], columns[1]))


def _line(length: int, tile: int | None, overlap: int) -> list[tuple[slice, slice]]:
    if tile is None or length <= tile:
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
    """The same part that counts, seen from the upper left corner of the image on, and `more` pixels further."""
    sides = [slice(0, min(size, side.stop + more)) for side, size in zip(tile.seen, (height, width), strict=True)]
    return Tile((sides[0], sides[1]), tile.core)


def find_images(batch: Batch) -> Array:
    """Return the only images (N, c, H, W) among the inputs of a batch.

    Raises:
        Problem: There are none, or several, so that it is not known what to cut into tiles.
    """
    found = [one for one in (*batch.args, *batch.kwargs.values()) if _are_images(one)]
    if len(found) != 1:
        raise Problem(
            "tile", f"{len(found)}", expected="one input (N, c, H, W) to cut into tiles",
            hint="leave tile out, or cut the images yourself",
        )  # fmt: skip
    return found[0]


def cut_batch(batch: Batch, tile: Tile) -> Batch:
    """Return the batch with the images cut to what the tile sees."""

    def one(value: Any) -> Any:
        return value[:, :, tile.seen[0], tile.seen[1]] if _are_images(value) else value

    kwargs = {name: one(value) for name, value in batch.kwargs.items()}
    return batch._replace(args=tuple(one(value) for value in batch.args), kwargs=kwargs)


def _are_images(value: Any) -> bool:
    return is_array(value) and len(value.shape) == 4
