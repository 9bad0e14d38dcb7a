"""The frame of self-contained pages: no scripts, no other files, light and dark."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

import numpy as np

from qipf._common.optional import require

STYLE = """
:root { color-scheme: light dark; --ink: #1b2733; --dim: #66727e; --paper: #fff; --live: #2166ac; --ref: #b8c0c8;
  --bad: #b2182b; --good: #1a7f37; --line: #d9dee3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --dim: #98a3ae; --paper: #14181c; --ref: #4a545e;
  --live: #6baed6; --line: #2c343b; --bad: #f4796b; --good: #56c271; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
.state { padding: .5rem .8rem; border-left: 4px solid var(--good); } .state.alarm { border-color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; margin: 1rem 0; }
.tile { border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.4rem; } .dim, .tile span { color: var(--dim); font-size: .85rem; }
svg { width: 100%; height: auto; } text { fill: var(--dim); font-size: 11px; }
table { border-collapse: collapse; } td, th { padding: .15rem 1rem .15rem 0; text-align: left; }
figure { display: inline-block; margin: .3rem; font-size: .75rem; } figure img { width: 72px; display: block; }
"""


def document(title: str, parts: Sequence[str], refresh: int = 0, style: str = "") -> str:
    """A whole page as HTML.

    Args:
        title: of the page, as plain text.
        parts: the body, as HTML.
        refresh: seconds after which the browser loads the page again; 0 for never.
        style: further CSS.
    """
    again = f'<meta http-equiv="refresh" content="{refresh}">' if refresh else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{again}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{STYLE}{style}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def wide_table(key: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as HTML, in a frame that scrolls sideways on a narrow screen.

    Args:
        key: the id of the table.
        head: the names of the columns, as HTML.
        rows: one cell per column, as HTML.
    """
    names = "".join(f'<th scope="col">{text}</th>' for text in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{key}"><table id="{key}"><thead><tr>{names}'
        f"</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def embedded(pixels: np.ndarray, longest: int) -> str:
    """A picture as the address of a PNG image that a page contains; needs Pillow.

    Args:
        pixels: (h, w, 3) or (h, w), uint8.
        longest: pixels of the longer side; larger pictures are made smaller.
    """
    picture = require("PIL.Image", extra="bench").fromarray(np.ascontiguousarray(pixels))
    picture.thumbnail((longest, longest))
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
