"""Templates, styles and scripts of the report."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from qipf._common.optional import require


@cache
def template(name: str) -> Any:
    """Return a compiled template; values are escaped unless it marks them safe."""
    jinja = require("jinja2", extra="report")
    environment = jinja.Environment(
        loader=jinja.FunctionLoader(text_of), autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(name)


def text_of(name: str) -> str:
    """Return a file of this folder."""
    return resources.files("qipf.study.report").joinpath(name).read_text(encoding="utf-8")
