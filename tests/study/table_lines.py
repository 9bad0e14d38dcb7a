"""Reads the tables of the pages of results."""

from __future__ import annotations


def line(table: str, *starts: str) -> list[str]:
    """The cells of the first row that starts with these, without them."""
    found = next(row for row in table.splitlines() if row.startswith("| " + " | ".join(starts)))
    return [cell.strip() for cell in found.strip("|").split("|")][len(starts) :]
