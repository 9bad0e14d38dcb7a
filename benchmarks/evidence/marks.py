"""Marks around computed content in Markdown files, and the functions that compute it.

    <!-- table: NAME -->            a table or another block, on separate lines
    <!-- end -->

    ... has <!-- value: NAME; ARGUMENT; ARGUMENT -->.772<!-- end --> on average

A value must not begin a line: the comment would turn the whole line into raw HTML.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

MARK = re.compile(r"<!-- (?P<kind>table|value): (?P<name>.+?) -->(?P<content>.*?)<!-- end -->", re.DOTALL)
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
Render = Callable[[str, str], str]
Made = TypeVar("Made", bound=Callable[..., str])
TABLES: dict[str, Callable[..., str]] = {}
"""Functions of the results that compute a table, keyed by name."""
VALUES: dict[str, Callable[..., str]] = {}
"""Functions of the results and the mark's arguments that compute a value, keyed by name."""


def table(name: str, /, **settings: Any) -> Callable[[Made], Made]:
    """Register a function for a table, or for one table per value of a setting in braces."""

    def register(make: Made) -> Made:
        listed = [key for key in settings if f"{{{key}}}" in name]
        if not listed:
            TABLES[name] = partial(make, **settings)
        for key in listed:
            for item in settings[key]:
                TABLES[name.format(**{key: item})] = partial(make, **{**settings, key: item})
        return make

    return register


def value(name: str) -> Callable[[Made], Made]:
    """Register a function that computes a value."""

    def register(make: Made) -> Made:
        VALUES[name] = make
        return make

    return register


class Mark(NamedTuple):
    """A mark, whose kind is "table" or "value"."""

    kind: str
    name: str
    content: str


def marks(text: str) -> list[Mark]:
    """Return the marks of a page, in order.

    Raises:
        ValueError: a mark is not closed, or a value begins a line.
    """
    found = [Mark(match["kind"], match["name"], match["content"]) for match in MARK.finditer(text)]
    for lost in re.findall(r"<!-- (?:table|value|end)\b.*?-->", MARK.sub("", text)):
        raise ValueError(f"{lost} has no counterpart")
    for mark in found:
        if "<!-- table:" in mark.content or "<!-- value:" in mark.content:
            raise ValueError(f"{mark.name} is not closed before the next mark")
    for line in text.splitlines():
        if line.lstrip(" >*-").startswith("<!-- value:"):
            raise ValueError(f"a value begins a line, which makes the line raw HTML: {line}")
    return found


def written(text: str, render: Render) -> str:
    """Return the page with the content of every mark rendered."""
    marks(text)

    def replace(match: re.Match[str]) -> str:
        content = render(match["kind"], match["name"])
        content = f"\n\n{content}\n\n" if match["kind"] == "table" else content
        return f"<!-- {match['kind']}: {match['name']} -->{content}<!-- end -->"

    return MARK.sub(replace, text)


def stale(text: str, render: Render) -> list[str]:
    """Return the marks whose content differs from the results."""
    return [
        f"{mark.kind}: {mark.name}"
        for mark in marks(text)
        if mark.content.strip() != render(mark.kind, mark.name).strip()
    ]
