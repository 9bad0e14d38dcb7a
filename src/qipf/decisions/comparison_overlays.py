"""Images on the page of a comparison, with their wrong and their doubtful pixels in colour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from qipf.arrays import Array, to_numpy
from qipf.decisions.html import embedded
from qipf.models.kinds.groups import by_group
from qipf.models.kinds.overlays import overlay

LONGEST = 256
"""Pixels of the longer side of a picture; larger ones are made smaller."""
PLACES = (0.0, 0.5, 1.0)
"""Which images of a set are shown: the surest, the one in the middle and the least sure."""
STYLE = """
.maps { display: flex; flex-wrap: wrap; gap: .8rem 1.4rem; }
.maps figure { margin: 0; display: block; font-size: .85rem; }
.maps figure div { display: flex; gap: .3rem; } .maps figure img { width: min(9rem, 42vw); image-rendering: pixelated; }
"""


@dataclass(frozen=True)
class Overlay:
    """One image as two pictures, both as data addresses.

    Attributes:
        name: Of the image, in words.
        wrong: The image with its wrong pixels in colour.
        doubt: The image with its doubtful pixels in colour.
        share: How many of its labelled pixels are wrong, from 0 to 1.
    """

    name: str
    wrong: str
    doubt: str
    share: float


def choose_images(scores: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """The images of a set that are shown, by the mean score of their pixels; images without scored pixels are not.

    Args:
        scores: One uncertainty per scored pixel.
        groups: The image of each scored pixel.
        count: The number of images.
    """
    means = by_group(scores, groups, count)
    order = np.argsort(means, kind="stable")[: int(np.isfinite(means).sum())]
    places = dict.fromkeys(round(place * (len(order) - 1)) for place in PLACES)
    return order[list(places)]


def colour_scale(maps: Iterable[Array]) -> tuple[float, float]:
    """The uncertainty up to which pixels stay grey, and from which they have the full colour: the median and the most.

    Args:
        maps: The uncertainty of the images that the scale is for, which need not have one shape.
    """
    every = np.concatenate([to_numpy(one).ravel() for one in maps]).astype(np.float64)
    every = every[np.isfinite(every)]
    return (float(np.median(every)), float(every.max())) if every.size else (0.0, 1.0)


def draw_overlays(
    images: Iterable[Array], uncertainty: Array, wrong: Array, labelled: Array, names: Sequence[str],
    scale: tuple[float, float],
) -> list[Overlay]:  # fmt: skip
    """Draw images (c, H, W) whose N maps of shape (h, w) are given; needs Pillow.

    Args:
        images: As the model reads them; the mean of the channels where there are neither one nor three.
        uncertainty: (N, h, w), where images may be larger: then their nearest pixels are shown.
        wrong: (N, h, w) which predictions are wrong.
        labelled: (N, h, w) which pixels have a label.
        names: One per image.
        scale: The uncertainty up to which a pixel stays grey, and from which it has the full colour.
    """
    found = []
    maps = zip(to_numpy(uncertainty), to_numpy(wrong), to_numpy(labelled), strict=True)
    for image, (doubt, missed, known), name in zip(images, maps, names, strict=True):
        shown = nearest_pixels(to_numpy(image), doubt.shape)
        missed = missed & known
        pictures = (
            overlay(shown, missed.astype(np.float64), low=0.0, high=1.0),
            overlay(shown, doubt, low=scale[0], high=scale[1]),
        )
        share = float(missed.sum() / max(1, known.sum()))
        found.append(Overlay(name, embedded(pictures[0], LONGEST), embedded(pictures[1], LONGEST), share))
    return found


def nearest_pixels(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The pixels of an image (c, H, W) next to those of a map, with one or three channels."""
    if len(image) not in (1, 3):
        image = image.mean(axis=0, keepdims=True)
    down, across = (np.arange(size) * full // size for size, full in zip(shape, image.shape[1:], strict=True))
    return image[:, down][:, :, across]


def overlay_section(shown: Mapping[str, Sequence[Overlay]], score: str) -> list[str]:
    """The HTML of the overlays of several sets of images.

    Args:
        shown: Overlays by the name of the set.
        score: The name of the score.
    """
    parts = [
        "<h2>Where it is unsure</h2>",
        f'<p class="dim">Of every set the image that <code>{escape(score)}</code> is surest of, the one in the middle '
        "and the one that it is least sure of. On the left, wrong pixels are orange; on the right, a pixel is the more "
        "orange the less certain it is, on one scale for all images.</p>",
    ]
    for title, overlays in shown.items():
        figures = "".join(_figure(one) for one in overlays)
        parts.append(f'<h3>{escape(title)}</h3><div class="maps">{figures}</div>')
    return parts


def _figure(one: Overlay) -> str:
    name = escape(one.name)
    return (
        f'<figure><div><img src="{one.wrong}" alt="{name} in grey; its wrong pixels, {one.share:.1%}, are orange.">'
        f'<img src="{one.doubt}" alt="{name} in grey; its uncertain pixels are orange."></div>'
        f"<figcaption>{name}: {one.share:.1%} wrong</figcaption></figure>"
    )
