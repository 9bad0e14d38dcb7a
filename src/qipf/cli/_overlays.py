"""A few segmented images for the page of `qipf compare`, with their uncertainty as overlays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qipf.cli._onnx import fed
from qipf.data.reading import Data

if TYPE_CHECKING:
    from qipf.pages.overlays import Overlay

MOST_SETS = 5
"""Sets of data that are shown, so that the page stays small however many shifted ones there are."""


class Segmented(NamedTuple):
    """A set of images, some of whose pixels are scored already.

    Attributes:
        title: Of the set.
        data: The images and their labels.
        rows: The number of each image in its file.
        groups: The image of each scored pixel.
        scores: One uncertainty per scored pixel.
    """

    title: str
    data: Data
    rows: np.ndarray
    groups: np.ndarray
    scores: np.ndarray


def draw(
    sets: list[Segmented], net: Any, scorer: Callable[[Any], Any], run: dict[str, Any]
) -> dict[str, list[Overlay]]:
    """The overlays of some images of the first sets, by the title of the set; none without Pillow.

    Args:
        sets: The first one decides about the scale of the colours.
        net: The model.
        scorer: The score to show.
        run: As for `qipf.cli._kinds.predict`.
    """
    from qipf._common.optional import require
    from qipf.models.kinds.pixels import map_pixels
    from qipf.pages.overlays import choose_images, colour_scale, draw_overlays

    try:
        require("PIL.Image", extra="bench")
    except ImportError as error:
        print(f"warning: --out: the page has no images: {error}", file=sys.stderr)
        return {}
    scale: tuple[float, float] | None = None
    found: dict[str, list[Overlay]] = {}
    for one in sets[:MOST_SETS]:
        chosen = choose_images(one.scores, one.groups, len(one.data))
        shown: list[Overlay] = []
        pieces = []
        for batch in one.data.take(chosen).batches(1):
            (maps,) = map_pixels(net, [fed(net, batch)], scorer, features=run["features"], progress=False)
            pieces.append((batch, maps))
        if scale is None:
            scale = colour_scale(maps.uncertainty for _, maps in pieces)
        for row, (batch, maps) in zip(one.rows[chosen], pieces, strict=True):
            name = batch.files[0].name if batch.files else f"image {row}"
            wrong = maps.labelled & ~maps.correct
            shown += draw_overlays(batch.images, maps.uncertainty, wrong, maps.labelled, [name], scale)
        found[one.title] = shown
    return found
