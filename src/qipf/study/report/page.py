"""Write the page, with data, styles and script in one file that loads nothing else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from qipf._common.files import atomic_write, check_parent
from qipf._common.optional import require
from qipf.pages import layout, overlays
from qipf.study.plan.plan import shipped
from qipf.study.plan.registry import column_title, info, titled
from qipf.study.report import appendix, detail_view, score_view
from qipf.study.report.appendix import facts
from qipf.study.report.detail_view import LEVELS, details, fields, within
from qipf.study.report.number_view import render_numbers
from qipf.study.report.picture_view import segmented, thumbnails
from qipf.study.report.score_view import columns, pair_id, pairs
from qipf.study.report.source import MISSING, ReportSource, open_source
from qipf.study.tables.answer import Answer, answers
from qipf.study.tables.paper_tables import PaperTable, all_tables, notes_on_fewer_networks
from qipf.study.tables.scale_tables import of_numbers

LARGEST = 5_000_000
"""Maximum size of a page in bytes."""
SMALL = 50_000
"""Number of rows in the long table below which a study of the paper is considered small."""

DEVICES = {"cpu": "CPU", "cuda": "GPU"}
HERE = Path(__file__).parent
SCRIPTS = ("charts.js", "views.js", "script.js")


def write_report(
    store: str | os.PathLike[str], output: str | os.PathLike[str], *, data: str | os.PathLike[str] | None = None
) -> int:
    """Write the report of a benchmark and return its size in bytes.

    Args:
        store: A store, or a folder with only tables; charts of predictions require a store.
        output: The HTML file.
        data: Folder with dataset files, for thumbnails.

    Raises:
        FileNotFoundError: There is no store or table, or the output folder does not exist.
        ValueError: Nothing has been measured yet.
    """
    target = Path(output).absolute()
    check_parent(target)
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder; add a file name, such as report.html")
    source = open_source(store)
    with titled(source.environment.get("titles")):
        page = render(source, data=None if data is None else str(data))
    atomic_write(target, page)
    return len(page)


def render(source: ReportSource, *, data: str | None = None, largest: int = LARGEST) -> bytes:
    """Return the page with as much detail as fits in `largest` bytes."""
    if of_numbers(source.rows):
        return render_numbers(source, _flat(source.environment))
    # only the pages of the paper's study mention the paper
    paper = source.plan is not None and source.plan.name in shipped() and source.plan.name != "demo"
    parts = _parts(source, data, paper)
    whole, page = parts["content"], b""
    for level, limits in enumerate(LEVELS):
        if level:
            source.note("Some severities or pictures are left out, because the page would otherwise be too large.")
        shown = [
            (title, overlays.overlay_section(dict(islice(sets.items(), limits.maps)), score))
            for title, score, sets in parts["segmented"]
            if limits.maps
        ]
        page = _fill(source, {**parts, "content": within(whole, limits), "segmented": shown})
        if len(page) <= largest:
            break
    return page


def _parts(source: ReportSource, data: str | None, paper: bool) -> dict[str, Any]:
    """Return everything that the page shows, for the template and (in `content`) for the script."""
    titles, found = pairs(source.rows), _answers(source)
    best = [answer.ranking.standings[0].column for answer in found if answer.ranking.standings]
    leaders = [] if paper else [standing.column for answer in found for standing in answer.ranking.best_of_methods]
    versions = source.environment.get("versions")
    version = str(versions.get("qipf", "")) if isinstance(versions, Mapping) else ""
    shown, metrics = columns(source.rows, best, leaders), score_view.metric_titles(source.rows, paper)
    return {
        "paper": paper,
        "small": len(source.frame) < SMALL,
        "content": {
            "columns": [asdict(column) for column in shown],
            "pairs": titles,
            "metrics": metrics,
            "fractions": detail_view.FRACTIONS.tolist(),
            "severity": score_view.against_severity(source.frame, [metric["id"] for metric in metrics]),
            "details": details(source),
            "fields": fields(source),
            "thumbnails": thumbnails(source, data, best),
        },
        "answers": found,
        "segmented": segmented(source, found),
        "recommended": next((column for column in shown if column.recommended), None),
        "facts": facts(source, shown, titles),
        "verdicts": appendix.verdicts(source) if paper else None,
        "heads": score_view.HEADS,
        "ranking": score_view.ranking(source, shown, titles),
        "shifted": any(answer.ranking.shifted for answer in found),
        "ood": score_view.out_of_distribution(source, shown, titles),
        "tables": _tables(source, [column.id for column in shown if column.lead] if paper else None),
        "times": _times(source.times, titles),
        "seeds": max(len({r.seed for r in source.rows if pair_id(r) == pair}) for pair in titles),
        "fewer": notes_on_fewer_networks(source.frame),
        "environment": _flat(source.environment),
        "version": version if re.fullmatch(r"\d[\w.+-]*", version) else "",  # empty for a source tree
    }


def _answers(source: ReportSource) -> list[Answer]:
    try:
        return answers(source.frame, source.bench)
    except MISSING as error:
        source.left_out(f"The summary does not use the predictions, because some of them could not be read: {error}")
        return answers(source.frame)


def _tables(source: ReportSource, leads: list[str] | None) -> list[tuple[PaperTable, list[Any]]]:
    """Return the paper's tables, restricted to the blocks that contain our own results.

    The page of the paper shows one score per method, listed in `leads`. Other pages, for which `leads` is None, omit
    tables that only the paper uses.
    """
    frame = source.frame
    if leads is not None:
        frame = frame[(frame["errors"] != "base") | frame["column"].isin(leads)]
    found = [
        (table, [block for block in table.blocks if block.measured])
        for table in all_tables(frame, source.times)
        if leads is not None or table.name not in ("table-2-paper", "table-3", "appendix-h")
    ]
    return [(table, blocks) for table, blocks in found if blocks]


def _fill(source: ReportSource, parts: Mapping[str, Any]) -> bytes:
    """Fill the template."""
    safe = require(
        "markupsafe", extra="report"
    ).Markup  # only for our own files, and for maps, in which all data is escaped
    script = "".join((HERE / name).read_text("utf-8") for name in SCRIPTS)
    style = (HERE / "style.css").read_text("utf-8") + (overlays.STYLE if parts["segmented"] else "")
    values = {
        **parts,
        "source": source,
        "agreement": appendix.agreement,
        "column_title": column_title,
        "info": info,
        "segmented": [(title, safe(text)) for title, text in parts["segmented"]],
        "style": safe(style),
        "script": safe(script),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "data": packed(parts["content"]),
    }
    page = layout.render("paper.html.j2" if parts["paper"] else "template.html.j2", HERE, **values)
    return page.encode("utf-8", "replace")


def packed(content: Any) -> str:
    """Return compressed JSON in base64, which cannot break out of its HTML element."""
    plain = json.loads(json.dumps(content), parse_constant=lambda _: None)  # NaN and infinities are not JSON
    text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), mtime=0)).decode()


def _times(times: list[dict[str, Any]], titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the methods of each pair, fastest first, with bars on a logarithmic scale."""
    result = []
    for pair, title in titles.items():
        own = sorted((time for time in times if pair_id(time) == pair), key=lambda time: time["method_ms"])
        forward = [float(time["forward_ms"]) for time in own if isinstance(time.get("forward_ms"), int | float)]
        if not own:
            continue
        low = math.log(min([own[0]["method_ms"], *forward]) / 1.5)
        high = math.log(own[-1]["method_ms"])
        lines = [
            {
                **time,
                "label": info(str(time["method"])).title,
                "recommended": info(str(time["method"])).family == "recommended",
                "share": (math.log(time["method_ms"]) - low) / (high - low),
            }
            for time in own
        ]
        middle = sorted(forward)[len(forward) // 2] if forward else None
        devices = {DEVICES.get(str(time.get("device"))) for time in own}
        device = devices.pop() if len(devices) == 1 else None
        result.append({"title": title, "lines": lines, "forward": middle, "device": device})
    return result


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    result: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            result += _flat(value, f"{key} ")
        elif value is not None:
            result.append((f"{prefix}{key}", "; ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return result
