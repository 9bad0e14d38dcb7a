"""Self-contained HTML pages and pictures: templates, charts and overlays."""

from qipf.pages.overlays import overlay, save_png

__all__ = ["overlay", "save_png"]
