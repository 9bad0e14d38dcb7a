"""Render HTML pages that load no other files, in light and dark themes."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.optional import require

TEMPLATES = Path(__file__).parent / "templates"


@cache
def _environment(folder: Path) -> Any:
    jinja2 = require("jinja2", extra="torch")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip


def render(template: str, folder: Path = TEMPLATES, **values: Any) -> str:
    """Render a template; values are escaped unless the template marks them safe.

    Templates of pages use `title`, `refresh` (seconds between reloads; 0 to disable) and `style` (additional CSS).
    """
    return _environment(folder).get_template(template).render(**values)


def document(title: str, parts: Sequence[str], refresh: int = 0, style: str = "") -> str:
    """Return a page whose body is the HTML in `parts`."""
    return render("document.html.j2", title=title, body="".join(parts), refresh=refresh, style=style)


def embedded(pixels: np.ndarray, longest: int) -> str:
    """Return a picture as a data URL in PNG format; see `png`."""
    return "data:image/png;base64," + base64.b64encode(png(pixels, longest)).decode()


def png(pixels: np.ndarray, longest: int) -> bytes:
    """Return a picture, (h, w, 3) or (h, w) in uint8, as a PNG file of at most `longest` pixels per side."""
    picture = require("PIL.Image", extra="bench").fromarray(np.ascontiguousarray(pixels))
    picture.thumbnail((longest, longest))
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return file.getvalue()
