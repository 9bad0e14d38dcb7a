"""A sheet of pictures: every shift of the paper at every intensity."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf.models.perturbations import check_images
from qipf.study.shifts.paper import IDENTITY, SHIFTS, apply

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def contact_sheet(images: Tensor, path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw every shift of the paper at every intensity, one row per shift and image (the figure of its appendix E).

    Args:
        images: `(n, c, h, w)`, a few images.
        path: Where to write the figure, if anywhere; the suffix chooses the format.
    """
    figure_module = require("matplotlib.figure", extra="bench")
    check_images(images)
    if not 1 <= len(images) <= 16:
        raise ValueError(f"contact_sheet: expected 1 to 16 images, got {len(images)}; pass a few, such as images[:2]")
    columns = 1 + max(len(intensities) for intensities in SHIFTS.values())
    rows = len(SHIFTS) * len(images)
    figure = figure_module.Figure(figsize=(columns, 1.25 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for number, (name, intensities) in enumerate(SHIFTS.items()):
        for column, intensity in enumerate((IDENTITY[name], *intensities)):
            shifted = apply(images, name, intensity)
            for index, image in enumerate(shifted):
                axis = axes[number * len(images) + index, column]
                _draw(axis, image)
                axis.set_title(name if column == 0 else f"{intensity:g}", fontsize=7)
    if path is not None:
        buffer = io.BytesIO()
        suffix = Path(path).suffix.lstrip(".") or "png"
        figure.savefig(buffer, format=suffix, dpi=150)
        atomic_write(path, buffer.getvalue())
    return figure


def _draw(axis: Any, image: Tensor) -> None:
    pixels = image.detach().float().cpu()
    if len(pixels) == 3:
        axis.imshow(pixels.permute(1, 2, 0).numpy(), vmin=0, vmax=1)
    else:
        axis.imshow(pixels[0].numpy(), cmap="gray", vmin=0, vmax=1)
    axis.set_axis_off()
