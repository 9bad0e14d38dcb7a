"""Sphinx settings. Build with `make docs`, or `sphinx-build -W -b html docs site`."""

from __future__ import annotations

import html
import re
from importlib.metadata import version as installed

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

project = "qipf"
author = "The qipf developers"
copyright = "The qipf developers; MIT licence"
release = version = installed("qipf")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "images/*.md"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_math_renderer = "mathml"  # no script from elsewhere: pages read offline, too
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_title = f"qipf {release}"
html_copy_source = False
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp"

default_role = "code"  # `name` in a docstring is code, as in Markdown
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True


CODE = re.compile(r"(`[^`]*`)")  # mathematics or code inside a line


def escape_bars(app, what, name, obj, options, lines):
    """Keep |x| in a docstring from being read as a substitution; mathematics and code stay as they are."""
    block = None  # the indentation of the directive whose content we are in
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if block is not None and line.strip() and indent <= block:
            block = None
        if line.lstrip().startswith(".. ") or line.rstrip().endswith("::"):
            block = indent
        elif block is None:
            parts = CODE.split(line)
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[number] = "".join(parts)


def drop_missing_results(app, name, source):
    """Leave out the pages of results that are not there (yet): an entry without a page would be a warning."""
    if name == "index" and not any(page.startswith(("reproduction", "research/")) for page in app.env.found_docs):
        source[0] = re.sub(r"```{toctree}\n:caption: Results\n.*?```\n", "", source[0], flags=re.DOTALL)
    elif name == "index":
        for pattern in ("reproduction*", "research/*"):
            if not any(page.startswith(pattern.rstrip("*")) for page in app.env.found_docs):
                source[0] = source[0].replace(f"\n{pattern}\n", "\n")


def mathml(node, *, block):
    """TeX as MathML; what docutils cannot translate is shown as it is, with a warning that names the page."""
    tex = node.astext()
    try:
        return tex2mathml(tex.replace(r"\dots", r"\ldots"), as_block=block)
    except MathError as error:
        logging.getLogger(__name__).warning("mathematics: %s in %s", error, tex, location=node)
        return f"<code>{html.escape(tex)}</code>"


def write_inline(translator, node):
    translator.body.append(mathml(node, block=False))
    raise nodes.SkipNode


def write_block(translator, node):
    translator.body.append(f'<div class="math">{mathml(node, block=True)}</div>')
    raise nodes.SkipNode


PICTURE = re.compile(r'<img [^>]*class="(only-(?:light|dark))[^>]*>')
SCROLLING = re.compile(r'<(pre(?=[ >])|div(?= class="(?:math|table)-wrapper))')


def make_accessible(app, name, template, context, doctree):
    """Let figures scroll and the keyboard reach what scrolls sideways, and give the headings of the sidebar a level."""
    if "body" in context:
        body = PICTURE.sub(r'<div class="picture-wrapper \1" tabindex="0">\g<0></div>', context["body"])
        context["body"] = SCROLLING.sub(r'<\1 tabindex="0"', body)
    if "furo_navigation_tree" in context:
        context["furo_navigation_tree"] = context["furo_navigation_tree"].replace(
            'role="heading"', 'role="heading" aria-level="2"'
        )


def setup(app):
    app.connect("html-page-context", make_accessible, priority=900)  # after the theme
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
    app.connect("autodoc-process-docstring", escape_bars, priority=100)
    app.connect("source-read", drop_missing_results)
