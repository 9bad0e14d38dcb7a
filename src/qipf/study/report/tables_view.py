"""The paper's tables turned for a screen: one block a metric and a pair, a row a method, a column a shift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qipf.study.report.columns import Column, label
from qipf.study.report.source import Source
from qipf.study.tables.paper import Value
from qipf.study.tables.render import number
from qipf.study.tables.tables import Mark, Row, Table, all_tables


@dataclass(frozen=True)
class Entry:
    """A cell: our number and the paper's, as text, with their marks."""

    ours: str
    paper: str
    ours_mark: Mark
    paper_mark: Mark


@dataclass(frozen=True)
class Block:
    """One metric of one pair."""

    title: str
    better: str
    heads: tuple[str, ...]
    body: list[tuple[str, list[Entry]]]


@dataclass(frozen=True)
class View:
    """One table of the paper."""

    name: str
    title: str
    spread: str
    has_paper: bool
    blocks: list[Block]


def views(source: Source, columns: Iterable[Column]) -> list[View]:
    """Every table of the paper, our numbers beside the paper's, with the methods in the order of `columns`."""
    order = {column.id: i for i, column in enumerate(columns)}
    result = []
    for table in all_tables(source.rows, source.times):
        blocks = [
            block for block in _blocks(table, order) if any(entry.ours for _, line in block.body for entry in line)
        ]
        if blocks:
            result.append(View(table.name, table.title, table.spread, table.has_paper, blocks))
    return result


def _blocks(table: Table, order: Mapping[str, int]) -> Iterable[Block]:
    by_pair: dict[str, list[Row]] = {}
    for row in table.rows:
        by_pair.setdefault(row.heads[1] if len(row.heads) > 1 else "", []).append(row)
    for pair, rows in by_pair.items():
        for panel in table.panels:
            body = []
            for column in sorted(panel.columns, key=lambda name: order.get(name, len(order))):
                cells = [row.cells[panel.metric, column] for row in rows]
                line = [Entry(_text(c.ours), _text(c.paper), c.ours_mark, c.paper_mark) for c in cells]
                if any(entry.ours or entry.paper for entry in line):
                    body.append((label(column), line))
            title = panel.title.capitalize() if " " in panel.title else panel.title
            heads = tuple(row.heads[0].lower() if row.heads[0].isupper() else row.heads[0] for row in rows)
            yield Block(f"{title}, {pair}" if pair else title, panel.better, heads, body)


def _text(value: Value | None) -> str:
    return "" if value is None else number(value)
