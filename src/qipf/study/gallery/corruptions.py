"""Shifted images: the paper's shifts (appendix E) and the common corruptions, at every intensity."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from torch import Tensor

from qipf.study import datasets, shifts
from qipf.study.gallery.plate import Palette, Plate, Table, new_figure, write_caption
from qipf.study.shifts import corruptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {"rotation": "°", "shear": "°", "brightness": "", "zoom": "×", "shift": ""}
COUNT = 1000  # maximum number of images over which changes are averaged


def plate(dataset: str = "digits") -> Plate:
    """Draw one test image under every shift and corruption, and measure the changes in up to 1,000 test images."""
    images = datasets.load(dataset, download=False).test.inputs
    if images.ndim != 4:
        raise ValueError(f"dataset: {dataset} has no images; choose an image dataset, such as digits")
    images = images[:COUNT]
    rows = []
    for name, intensities in shifts.IMAGES.items():
        for intensity in intensities:
            moved = shifts.apply(images, name, intensity)
            change = float((moved - images).abs().mean())
            rows.append([name, _kind(name), intensity, change, float(moved.mean())])
    table = Table(["family", "kind", "intensity", "mean absolute change", "mean brightness"], rows)
    return Plate(
        "corruptions", lambda palette: draw(images[:1], palette), {"": table}, caption(dataset, len(images), table)
    )


def draw(image: Tensor, palette: Palette) -> Figure:
    """Draw one row per shift, and one row for every two corruptions."""
    figure = new_figure(10.0, 7.6)
    parts: Any = figure.subfigures(2, 1, height_ratios=[5.4, 8.6])
    upper, lower = parts
    upper.suptitle("shifts of the paper, ten intensities each", fontsize=9)
    _strips(upper, image, [[name] for name in shifts.SHIFTS], palette)
    lower.suptitle("common corruptions, severities 1 to 5 (* resembles a reference perturbation)", fontsize=9)
    half = -(-len(corruptions.CORRUPTIONS) // 2)
    pairs = zip_longest(corruptions.CORRUPTIONS[:half], corruptions.CORRUPTIONS[half:])
    _strips(lower, image, [[name for name in pair if name] for pair in pairs], palette)
    return figure


def _strips(figure: Any, image: Tensor, rows: list[list[str]], palette: Palette) -> None:
    """Draw one row of images per list of shifts: the original, then each shift at its intensities."""
    widths = [1.6, 1.0] + [1.0] * 10 if len(rows[0]) == 1 else [1.6, 1.0] + [1.0] * 5 + [1.6] + [1.0] * 5
    axes = figure.subplots(len(rows), len(widths), width_ratios=widths, squeeze=False)
    for line, families in zip(axes, rows, strict=True):
        for cell in line:
            cell.set_axis_off()
        _show(line[1], image)
        start = 2
        for number, name in enumerate(families):
            label = line[0] if number == 0 else line[start]
            star = "*" if name in corruptions.RESEMBLES else ""
            label.text(1, 0.5, name.replace("-", " ") + star, ha="right", va="center", color=palette.ink, fontsize=8)
            start += number
            for cell, intensity in zip(line[start:], shifts.FAMILIES[name], strict=False):
                _show(cell, shifts.apply(image, name, intensity))
                if name in shifts.SHIFTS:
                    cell.set_title(f"{intensity:g}{UNITS[name]}", fontsize=7, pad=1.5)
            start += len(shifts.FAMILIES[name])


def _show(axes: Any, image: Tensor) -> None:
    pixels = image[0].float().cpu().permute(1, 2, 0).numpy()
    axes.imshow(pixels if pixels.shape[2] == 3 else pixels[:, :, 0], cmap="gray", vmin=0, vmax=1)


def _kind(name: str) -> str:
    if name in shifts.SHIFTS:
        return "shift"
    return "resembles a perturbation" if name in corruptions.RESEMBLES else "corruption"


def caption(dataset: str, count: int, table: Table) -> str:
    """Return the caption with the largest change for each shift and corruption."""
    most: dict[str, tuple[float, float]] = {}
    for name, _, intensity, change, _ in table.rows:
        if change >= most.get(name, (0.0, 0.0))[1]:
            most[name] = (intensity, change)
    groups = {"shifts": shifts.SHIFTS, "corruptions": corruptions.CORRUPTIONS}
    largest = {
        group: ", ".join(f"{name} {most[name][0]:g} ({most[name][1]:.2f})" for name in names)
        for group, names in groups.items()
    }
    return write_caption("corruptions", dataset=dataset, count=count, **largest)
