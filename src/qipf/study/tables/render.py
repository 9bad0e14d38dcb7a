"""The tables as rich text, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from qipf._common.optional import require
from qipf.study.tables import paper
from qipf.study.tables.paper import Value
from qipf.study.tables.tables import Mark, Panel, Row, Table

DIGITS = 2


def rich_table(table: Table, width: int | None = None) -> Any:
    """Something that `rich` prints: one block a metric, our number above the paper's.

    Args:
        table: what to print.
        width: columns of the terminal; methods that do not fit go to another block. Default: this terminal's.
    """
    console = require("rich.console", extra="torch")
    room = width or int(console.Console().width)
    grid = require("rich.table", extra="torch")
    text = require("rich.text", extra="torch").Text
    styles: dict[Mark, str] = {"best": "bold red", "second": "bold blue", None: ""}
    blocks = []
    for panel, columns in _fitting(table, room):
        block = grid.Table(
            title=f"{table.title}: {panel.title}", caption=f"{legend(table)} Red: best, blue: second best."
        )
        for head in table.heads:
            block.add_column(head)
        for column in columns:
            block.add_column(column_title(column), justify="center", no_wrap=True)
        for i, row in enumerate(table.rows):
            cells = []
            for column in columns:
                cell = row.cells[panel.metric, column]
                lines = [text(number(cell.ours), style=styles[cell.ours_mark])]
                if table.has_paper:
                    lines.append(text(number(cell.paper), style=f"dim {styles[cell.paper_mark]}".strip()))
                cells.append(text("\n").join(lines))
            block.add_row(*map(text, _shown_heads(table, i)), *cells, end_section=_ends_section(table, i))
        blocks.append(block)
    return console.Group(*blocks)


def markdown(table: Table) -> str:
    """GitHub Markdown: one table a metric, best in bold, second best in italics."""
    styles: dict[Mark, str] = {"best": "**{}**", "second": "*{}*", None: "{}"}
    parts = [f"## {table.title}", f"{legend(table)} **Best**, *second best*."]
    for panel in table.panels:
        heads = [*table.heads, *(column_title(column) for column in panel.columns)]
        lines = [_pipe(heads), _pipe(["---"] * len(table.heads) + [":-:"] * len(panel.columns))]
        for i, row in enumerate(table.rows):
            cells = []
            for column in panel.columns:
                cell = row.cells[panel.metric, column]
                ours = styles[cell.ours_mark].format(number(cell.ours))
                theirs = styles[cell.paper_mark].format(number(cell.paper))
                cells.append(f"{ours}<br>{theirs}" if table.has_paper else ours)
            lines.append(_pipe([*_shown_heads(table, i), *cells]))
        parts += [f"### {panel.title}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def latex(table: Table) -> str:
    """The paper's arrangement, metrics side by side; needs the packages multirow, xcolor and graphicx."""
    blocks = "|".join("c" * len(panel.columns) for panel in table.panels)
    first, width = len(table.heads) + 1, sum(len(panel.columns) for panel in table.panels)
    lines = [
        r"% \usepackage{multirow,xcolor,graphicx}",
        r"\begin{table*}",
        r"\centering",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{|{'l|' * len(table.heads)}{blocks}|}}",
        r"\hline",
        " & ".join(
            [rf"\multirow{{2}}{{*}}{{{_escape(head)}}}" for head in table.heads]
            + [rf"\multicolumn{{{len(p.columns)}}}{{c|}}{{{_escape(p.title)}}}" for p in table.panels]
        )
        + rf" \\ \cline{{{first}-{first + width - 1}}}",
        " & ".join(
            [""] * len(table.heads) + [_escape(column_title(c)) for panel in table.panels for c in panel.columns]
        )
        + r" \\ \hline",
    ]
    paper_too = table.has_paper
    for i, row in enumerate(table.rows):
        heads = [_escape(head) for head in _shown_heads(table, i)]
        if len(heads) > 1 and heads[0]:
            heads[0] = rf"\multirow{{{_section_length(table, i)}}}{{*}}{{{heads[0]}}}"
        cells = [_latex_cell(row, panel, c, paper_too) for panel in table.panels for c in panel.columns]
        end = r" \\ \hline" if _ends_section(table, i) else r" \\"
        lines.append(" & ".join([*heads, *cells]) + end)
    caption = f"{table.title}. {legend(table)} Best values in red, second best in blue."
    lines += [r"\end{tabular}%", "}", rf"\caption{{{_escape(caption)}}}", r"\end{table*}"]
    return "\n".join(lines) + "\n"


def csv_text(table: Table) -> str:
    """One line a cell, for programs."""
    out = io.StringIO()
    keys = list(table.rows[0].key) if table.rows else []
    columns = ["table", *keys, "metric", "method"]
    columns += ["mean", "std", "intensities", "mark", "paper_mean", "paper_std", "paper_mark"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in table.rows:
        for (metric, column), cell in row.cells.items():
            ours, theirs = cell.ours, cell.paper
            writer.writerow(
                [table.name, *row.key.values(), metric, column]
                + ([ours.mean, ours.std, ours.size] if ours else ["", "", ""])
                + [cell.ours_mark or ""]
                + ([theirs.mean, theirs.std] if theirs else ["", ""])
                + [cell.paper_mark or ""]
            )
    return out.getvalue()


def legend(table: Table) -> str:
    """What the numbers of a cell are."""
    ours = f"mean ± std over {table.spread}"
    numbers = f"First line: here, {ours}. Second line: the paper." if table.has_paper else f"Here: {ours}."
    return " ".join([numbers, *table.notes])


def column_title(column: str) -> str:
    """The head of a column: the paper's for its own methods, e.g. "MC-DROP (entropy)"."""
    method, bracket, score = column.partition(" (")
    return paper.METHODS.get(method, method) + bracket + score


def number(value: Value | None) -> str:
    """`0.75 ± 0.07`; without a spread where there is none to tell; a dash where there is no number."""
    if value is None:
        return "–"
    spread = value.std > 0 or (value.size or 0) > 1
    return f"{value.mean:.{DIGITS}f}" + (f" ± {value.std:.{DIGITS}f}" if spread else "")


def _fitting(table: Table, width: int) -> Iterator[tuple[Panel, tuple[str, ...]]]:
    """The methods of each metric, as many at a time as the width has room for."""
    heads = sum(max(len(head), *(len(row.heads[i]) for row in table.rows)) + 3 for i, head in enumerate(table.heads))
    for panel in table.panels:
        cell = max(len("0.00 ± 0.00"), *(len(column_title(column)) for column in panel.columns)) + 3
        room = max(1, (width - heads - 1) // cell)
        blocks = -(-len(panel.columns) // room)
        each = -(-len(panel.columns) // blocks)  # blocks of about the same size
        for start in range(0, len(panel.columns), each):
            yield panel, panel.columns[start : start + each]


def _latex_cell(row: Row, panel: Panel, column: str, paper_too: bool) -> str:
    cell = row.cells[panel.metric, column]
    colours: dict[Mark, str] = {"best": "red", "second": "blue"}

    def styled(value: Value | None, kind: Mark) -> str:
        shown = number(value).replace("–", "--").replace("±", r"$\pm$")
        return rf"\textcolor{{{colours[kind]}}}{{\textbf{{{shown}}}}}" if kind else shown

    ours, theirs = styled(cell.ours, cell.ours_mark), styled(cell.paper, cell.paper_mark)
    if not paper_too:
        return ours
    return rf"\begin{{tabular}}[c]{{@{{}}c@{{}}}}{ours}\\ {{\scriptsize {theirs}}}\end{{tabular}}"


def _shown_heads(table: Table, i: int) -> tuple[str, ...]:
    """The heads of a row, the first only where it changes."""
    heads = table.rows[i].heads
    repeated = len(heads) > 1 and i > 0 and table.rows[i - 1].heads[0] == heads[0]
    return ("", *heads[1:]) if repeated else heads


def _ends_section(table: Table, i: int) -> bool:
    return i + 1 == len(table.rows) or table.rows[i + 1].heads[0] != table.rows[i].heads[0]


def _section_length(table: Table, i: int) -> int:
    return sum(row.heads[0] == table.rows[i].heads[0] for row in table.rows)


def _pipe(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _escape(text: str) -> str:
    table = {c: "\\" + c for c in "&%$#_{}"} | {"±": r"$\pm$", "–": "--"}
    table |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(table.get(c, c) for c in text)
