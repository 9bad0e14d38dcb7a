"""Pages that quote results, and the modules that compute the quotes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

from evidence.marks import TABLES, VALUES, value
from evidence.results import ROOT, Missing, Results, number

MODULES = (
    "evidence.authors", "evidence.cells", "evidence.claims", "evidence.detection", "evidence.figures",
    "evidence.illustrations", "evidence.onnx_networks", "evidence.rivals", "evidence.speed",
    "evidence.verdicts", "probe.tables", "probe.decision_tables", "real.tables",
    "twin.tables",
)  # fmt: skip
"""Modules that register tables and values."""
for module in MODULES:
    import_module(module)

PAGES = {
    name: ROOT / name
    for name in (
        "README.md",
        "docs/reproduction.md",
        "docs/reproduction-tables.md",
        "docs/limits.md",
        "docs/howto/decide.md",
        "docs/howto/watch.md",
        "docs/research/class-fields.md",
        "docs/research/probe.md",
        "docs/research/probe-tables.md",
        "docs/research/twin.md",
        "docs/research/twin-tables.md",
        "docs/results/real-networks.md",
        "docs/results/real-networks-tables.md",
        "docs/results/onnx-networks.md",
        "benchmarks/README.md",
    )
}


FORMATS: dict[str, Callable[[Any], str]] = {
    "share": lambda share: f"{100 * share:.1f}%",
    "count": lambda found: f"{found if isinstance(found, int | float) else len(found):,.0f}",
    "score": number,
    "small": lambda number: f"{number:.1e}".replace("e-0", "e-"),
    "minutes": lambda seconds: f"{seconds / 60:.0f}",
    "text": str,
}
"""Formats of values read directly from a JSON file: `<!-- value: count; FILE; KEY; KEY -->`."""


def _in_file(results: Results, file: str, *keys: str, form: Callable[[Any], str]) -> str:
    return form(results.json(file, *keys))


for name, form in FORMATS.items():
    value(name)(partial(_in_file, form=form))


def renderer(results: Results) -> Callable[[str, str], str]:
    """Return a function that computes the content of a mark from its kind and name."""

    @cache
    def render(kind: str, name: str) -> str:
        known, (first, *arguments) = (TABLES if kind == "table" else VALUES), name.split("; ")
        if first not in known:
            raise ValueError(f"unknown {kind} {first!r}; known: {', '.join(known)}")
        try:
            return known[first](results, *arguments)
        except Missing as missing:
            return f"*Not measured yet: {missing} does not exist.*"

    return render
