"""How the figures look: one palette for light pages and one for dark pages, both safe for colour-blind readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Palette:
    """Colours for one kind of page. `series` are those of Okabe and Ito, adjusted to stand out from the background."""

    name: str
    paper: str
    ink: str
    muted: str
    unseen: str
    """The shade behind regions without training data."""
    series: tuple[str, ...]
    colour_map: str = "cividis"

    def rc(self) -> dict[str, Any]:
        """Settings for `matplotlib.rc_context`."""
        return {
            "figure.facecolor": self.paper,
            "savefig.facecolor": self.paper,
            "axes.facecolor": self.paper,
            "axes.edgecolor": self.muted,
            "axes.labelcolor": self.ink,
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
            "figure.constrained_layout.w_pad": 0.1,  # inches; nothing touches the edge
            "figure.constrained_layout.h_pad": 0.08,
            "legend.frameon": False,
            "legend.fontsize": 8,
            "lines.linewidth": 1.6,
            "font.family": "DejaVu Sans",
            "svg.hashsalt": "qipf",  # the same figure gives the same file
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
