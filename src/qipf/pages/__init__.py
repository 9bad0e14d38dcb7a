"""Self-contained HTML pages and pictures: templates, one chart helper, overlays."""

from qipf.pages.overlays import overlay, save_png

__all__ = ["overlay", "save_png"]
