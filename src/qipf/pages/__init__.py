"""Self-contained HTML pages, charts and pictures of uncertain pixels."""

from qipf.pages.overlays import overlay, save_png

__all__ = ["overlay", "save_png"]
