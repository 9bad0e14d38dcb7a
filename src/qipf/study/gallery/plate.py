"""A figure in the gallery, with its colours, numbers and caption."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf.data.tables import csv_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Palette:
    """Colours of a figure, based on the Okabe-Ito palette."""

    name: str
    paper: str
    ink: str
    muted: str
    unseen: str
    """Fill colour of regions without training data."""
    series: tuple[str, ...]
    colour_map: str = "cividis"

    def rc(self) -> dict[str, Any]:
        """Return the settings for `matplotlib.rc_context`."""
        return {
            "figure.facecolor": self.paper,
            "savefig.facecolor": self.paper,
            "axes.facecolor": self.paper,
            "axes.edgecolor": self.muted,
            "axes.labelcolor": self.ink,
            "axes.prop_cycle": f"cycler(color={list(self.series)})",
            "axes.titlecolor": self.ink,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 10,
            "axes.labelsize": 9,
            "text.color": self.ink,
            "xtick.color": self.ink,
            "ytick.color": self.ink,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "figure.constrained_layout.w_pad": 0.1,  # inches; keeps labels away from the edge
            "figure.constrained_layout.h_pad": 0.08,
            "legend.frameon": False,
            "legend.fontsize": 8,
            "lines.linewidth": 1.6,
            "font.family": "DejaVu Sans",
            "svg.hashsalt": "qipf",  # makes SVG files reproducible
        }


LIGHT = Palette(
    "light",
    paper="#ffffff",
    ink="#1a1a1a",
    muted="#767676",
    unseen="#f7dfe6",
    series=("#0072b2", "#d55e00", "#009e73", "#b5569a", "#b07d00", "#2f8fc4"),
)
DARK = Palette(
    "dark",
    paper="#131416",
    ink="#e8e8e8",
    muted="#8c8c8c",
    unseen="#3a2029",
    series=("#56b4e9", "#e8853b", "#2bc596", "#d98fc0", "#f0e442", "#9ad0f0"),
)


RESOLUTION = 120  # dots per inch of the PNG files


class Table(NamedTuple):
    """The numbers shown in a figure."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def csv(self) -> str:
        """Return the table as CSV with six significant digits."""
        rows = [[f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in self.rows]
        return csv_text(self.columns, rows)


@dataclass(frozen=True)
class Plate:
    """A figure with its numbers and caption.

    Attributes:
        name: Name of the figure and of its files.
        draw: Draws the figure in the colours of a palette.
        tables: Numbers in the figure, keyed by the part of the file name that follows `name`.
        caption: Markdown text.
    """

    name: str
    draw: Callable[[Palette], Figure]
    tables: Mapping[str, Table]
    caption: str

    def write(self, folder: Path, *, dark: bool = False) -> list[Path]:
        """Write the figure, its numbers and its caption to `folder / name`, and return the paths."""
        place = folder / self.name
        place.mkdir(parents=True, exist_ok=True)
        files = []
        for palette in (LIGHT, DARK) if dark else (LIGHT,):
            suffix = "-dark" if palette is DARK else ""
            for kind, data in self.images(palette).items():
                files.append(place / f"{self.name}{suffix}.{kind}")
                atomic_write(files[-1], data)
        for name, table in self.tables.items():
            files.append(place / ("-".join(part for part in (self.name, name) if part) + ".csv"))
            atomic_write(files[-1], table.csv())
        files.append(place / "caption.md")
        atomic_write(files[-1], self.caption.strip() + "\n")
        return files

    def images(self, palette: Palette = LIGHT) -> dict[str, bytes]:
        """Return the figure as SVG and PNG, keyed by file extension."""
        matplotlib = require("matplotlib", extra="bench")
        images = {}
        with matplotlib.rc_context(palette.rc()):
            figure = self.draw(palette)
            for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
                buffer = io.BytesIO()
                figure.savefig(buffer, format=kind, dpi=RESOLUTION, metadata=metadata)
                images[kind] = buffer.getvalue()
        images["png"] = _fewer_colours(images["png"])
        return images


def _fewer_colours(png: bytes) -> bytes:
    """Return a PNG image reduced to 256 colours, which makes it two thirds smaller without a visible difference."""
    image = require("PIL.Image", extra="bench")
    smaller = io.BytesIO()
    image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=image.Dither.NONE).save(
        smaller, format="png", optimize=True
    )
    return smaller.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure with a constrained layout, created without pyplot."""
    return require("matplotlib.figure", extra="bench").Figure(figsize=(width, height), layout="constrained")


def write_caption(figure: str, **values: Any) -> str:
    """Return captions/FIGURE.md with `values` filled in."""
    text = resources.files("qipf.study.gallery").joinpath("captions", f"{figure}.md").read_text("utf-8")
    return text.strip().format(**values)
