"""Self-contained HTML pages, SVG charts, and overlays of uncertain pixels."""

from qipf.pages.overlays import overlay, save_png

__all__ = ["overlay", "save_png"]
