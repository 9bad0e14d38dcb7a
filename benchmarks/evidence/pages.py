"""The pages that quote results, and what gives the content of every mark in them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from evidence.marks import TABLES, VALUES, value
from evidence.results import ROOT, Missing, Results, number

MODULES = (
    "evidence.authors", "evidence.cells", "evidence.claims", "evidence.detection", "evidence.figures",
    "evidence.illustrations", "evidence.onnx_networks", "evidence.research", "evidence.rivals", "evidence.speed",
    "evidence.verdicts", "probe.tables", "probe.decision_tables", "real.tables",
)  # fmt: skip
"""What registers tables and values."""
for module in MODULES:
    import_module(module)

PAGES = {
    name: ROOT / name
    for name in (
        "README.md",
        "docs/reproduction.md",
        "docs/limits.md",
        "docs/howto/decide.md",
        "docs/howto/watch.md",
        "docs/research/class-fields.md",
        "docs/research/probe.md",
        "docs/results/real-networks.md",
        "docs/results/onnx-networks.md",
        "benchmarks/README.md",
    )
}


@value("percent")
def percent(results: Results, file: str, *keys: str) -> str:
    """A share in a JSON file, as per cent with two digits."""
    return f"{100 * results.json(file, *keys):.2g} %"


@value("share")
def share(results: Results, file: str, *keys: str) -> str:
    """A share in a JSON file, as per cent with one decimal."""
    return f"{100 * results.json(file, *keys):.1f} %"


@value("ratio")
def ratio(results: Results, file: str, *keys: str) -> str:
    """A number in a JSON file."""
    return f"{results.json(file, *keys):.2f}"


@value("count")
def count(results: Results, file: str, *keys: str) -> str:
    """An integer in a JSON file."""
    return f"{results.json(file, *keys):,.0f}"


@value("score")
def score(results: Results, file: str, *keys: str) -> str:
    """A score in a JSON file."""
    return number(results.json(file, *keys))


@value("text")
def text(results: Results, file: str, *keys: str) -> str:
    """A note in a JSON file."""
    return str(results.json(file, *keys))


@value("small")
def small(results: Results, file: str, *keys: str) -> str:
    """A small number in a JSON file."""
    return f"{results.json(file, *keys):.1e}".replace("e-0", "e-")


def renderer(results: Results) -> Callable[[str, str], str]:
    """Return a function that gives the content of a mark from its kind and name and computes each once."""

    @cache
    def render(kind: str, name: str) -> str:
        known, (first, *arguments) = (TABLES if kind == "table" else VALUES), name.split("; ")
        if first not in known:
            raise ValueError(f"unknown {kind} {first!r}; there are {', '.join(known)}")
        try:
            return known[first](results, *arguments)
        except Missing as missing:
            return f"*Not measured yet: there is no {missing}.*"

    return render
