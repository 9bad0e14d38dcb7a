"""Appendix E: what the shifted images look like, every shift at every intensity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qipf.study import datasets, shifts
from qipf.study.gallery.plate import Plate, Table, write_caption
from qipf.study.gallery.style import Palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plate(dataset: str = "digits", data: Path | None = None) -> Plate:
    """The contact sheet of one test image, and how much each shift changes the whole test set.

    Args:
        dataset: a dataset of images.
        data: folder with its files, for those that are not bundled.
    """
    images = datasets.load(dataset, data=data, download=False).test.inputs
    if images.ndim != 4:
        raise ValueError(f"corruptions: {dataset} has no images; choose for instance digits, mnist or cifar10")
    images = images[:1000]

    def draw(palette: Palette) -> Figure:
        del palette  # the sheet takes its colours from the settings
        return shifts.contact_sheet(images[:1])

    rows = []
    for name, intensities in shifts.SHIFTS.items():
        for intensity in (shifts.IDENTITY[name], *intensities):
            moved = shifts.apply(images, name, intensity)
            change = float((moved - images).abs().mean())
            rows.append([name, intensity, change, float(moved.mean())])
    table = Table(["shift", "intensity", "mean absolute change", "mean brightness"], rows)
    return Plate("corruptions", draw, {"": table}, _caption(dataset, len(images), table))


def _caption(dataset: str, count: int, table: Table) -> str:
    most = {}
    for name, intensity, change, _ in table.rows:
        if change >= most.get(name, (0.0, 0.0))[1]:
            most[name] = (intensity, change)
    largest = ", ".join(f"{name} {at:g} ({change:.2f})" for name, (at, change) in most.items())
    return write_caption(
        f"""**The shifts** (paper, appendix E), on an image of {dataset}. Left: the image as it is; then ten
        intensities each. Rotation and shear are in degrees, brightness is added, zoom is the scale of the
        sampled window (below 1 magnifies), shift is a fraction of the height and width.""",
        f"""The largest mean absolute change of a pixel over {count} test images, whose pixels lie between 0 and
        1, is at {largest}.""",
        differs=[
            """The paper names intensities from 10 % to 90 % and a rotation by 270 degrees, and no exact grid.
            The grid is this project's own."""
        ],
    )
