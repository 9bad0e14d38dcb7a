"""Compute, draw and caption figures that illustrate the paper.

The module of each figure has a function `plate(...)` that returns a `Plate`.
"""

from qipf.study.gallery.plate import DARK, LIGHT, Palette, Plate

FIGURES: dict[str, str] = {
    "sine": "the field, the potential and the modes of a sine wave (Fig. 2 of the paper)",
    "corruptions": "the paper's shifts (appendix E) and common corruptions, at every intensity",
}
"""Figures of `qipf research gallery`, with descriptions."""

__all__ = ["DARK", "FIGURES", "LIGHT", "Palette", "Plate"]
