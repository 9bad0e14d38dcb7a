"""Read the numbers for a report from a store, or from a folder with its tables."""

from __future__ import annotations

import csv
import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from qipf.study.plan.plan import Plan
from qipf.study.run.read import Bench, Row, open_store
from qipf.study.run.store import Documents
from qipf.study.run.verify import note_of
from qipf.study.tables.frame import TABLES, Frame, long_frame, read_table

MISSING = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError, csv.Error)
"""Exceptions after which the report leaves out a part of the store and adds a note."""

TINY = 1e-12
"""Minimum time in milliseconds; 0 has no logarithm."""

NEEDED = {"times": ("dataset", "net", "method", "method_ms"), "networks": ("dataset", "net", "seed", "accuracy")}
LEAST = {"times": {"method_ms": TINY, "forward_ms": TINY}, "networks": {"accuracy": 0.0}}
"""Required columns, and minimum values of numeric columns."""

SHOWN = 3
"""Maximum number of invalid rows that a note lists."""

LOG = logging.getLogger(__name__)
"""Logger for the parts that could not be read."""


@dataclass
class ReportSource:
    """The contents of a report.

    Attributes:
        name: Name of the plan or, without a plan, of the folder.
        times: Milliseconds per sample for each dataset, network and method.
        plan: The plan as run.
        environment: The machine and the package versions.
        bench: The store; None if there are only tables.
    """

    name: str
    rows: list[Row]
    times: list[dict[str, Any]] = field(default_factory=list)
    plan: Plan | None = None
    plan_text: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    networks: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bench: Bench | None = None

    @cached_property
    def frame(self) -> Frame:
        """The long table as a frame."""
        return long_frame(self.rows)

    def note(self, text: str) -> None:
        """Add a note unless it was already added."""
        if text not in self.notes:
            self.notes.append(text)

    def left_out(self, text: str) -> None:
        """Add and log a note about something that could not be used."""
        self.note(text)
        LOG.warning("%s", text)

    def keep(self, name: str, values: Any, file: str) -> None:
        """Set one attribute, omitting invalid rows of times and networks; raise ValueError if `values` is unusable."""
        if name == "environment" and not isinstance(values, Mapping):
            raise ValueError(f"expected a JSON object, got {type(values).__name__}")
        if name in NEEDED:
            wrong = {number: _wrong(name, line) for number, line in enumerate(values, 1)}
            bad = [f"row {number} {why}" for number, why in wrong.items() if why]
            if bad:
                more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
                self.left_out(
                    f"The report leaves out {len(bad)} of {len(values)} rows of {file}: {'; '.join(bad[:SHOWN])}{more}"
                )
            values = [line for number, line in enumerate(values, 1) if not wrong[number]]
        setattr(self, name, values)


def open_source(path: str | os.PathLike[str]) -> ReportSource:
    """Read a store, a table, or a folder with a table.

    In a folder, the table is named table.csv, table.parquet or table.csv.gz. The files times.csv, networks.csv,
    plan.json and environment.json next to it are also read.

    Raises:
        FileNotFoundError: There is no store or table.
        ValueError: The store or table contains no numbers.
    """
    place = Path(path)
    folder = place.parent if place.is_file() else place
    found = None if place.is_file() else _from_store(folder)
    if found is None or not found.rows:
        tables = [place] if place.is_file() else [folder / name for name in TABLES if (folder / name).is_file()]
        if not tables:
            if found is not None:
                raise ValueError(f"{folder} has no results yet; run the benchmark again to complete it")
            raise FileNotFoundError(
                f"{folder} is not a benchmark store and has none of {', '.join(TABLES)}; "
                "create a store with `qipf bench PLAN -o DIR`"
            )
        found = _from_tables(tables[0])
    if not found.rows:
        raise ValueError(f"{place} has no numbers to report; run the benchmark again to complete it")
    return found


def _from_store(folder: Path) -> ReportSource | None:
    if not all((folder / name).is_file() for name in ("store.json", "plan.json", "index.json")):
        return None
    bench = open_store(folder)
    source = ReportSource(bench.plan.name, bench.rows(), plan=bench.plan, bench=bench)
    source.plan_text = json.dumps(bench.plan.as_json(), indent=2, ensure_ascii=False)
    for name in (
        "notes",
        "times",
        "environment",
        "networks",
        "failures",
    ):  # notes first, because the others add to them
        try:
            value = getattr(bench, name)
            value = value() if callable(value) else value
            source.keep(name, value, f"the {name}")
            if name == "times" and not value:
                source.note("The methods were not timed.")
        except MISSING as error:
            source.left_out(f"The {name} could not be read: {error}")
    return source


def _from_tables(table: Path) -> ReportSource:
    folder = table.parent
    _check_sum(table)
    source = ReportSource(folder.resolve().name or "results", read_table(table))
    source.note("This page was made from the tables alone, so charts that need the predictions are left out.")
    for name in ("times.csv", "networks.csv", "plan.json", "environment.json"):
        file, piece = folder / name, name.partition(".")[0]
        if not file.is_file():
            if name != "networks.csv":
                source.note(f"There is no {name} next to the table.")
            continue
        try:
            _check_sum(file)
            if file.suffix == ".csv":
                with file.open(newline="", encoding="utf-8") as text:
                    rows = [{key: _number(value) for key, value in line.items()} for line in csv.DictReader(text)]
                source.keep(piece, rows, name)
                continue
            values = json.loads(file.read_text(encoding="utf-8"))
            if piece == "environment":
                source.keep(piece, values, name)
                if mixed := note_of(values):
                    source.note(mixed)
            else:
                source.plan_text = json.dumps(values, indent=2, ensure_ascii=False)
                source.plan = Plan.from_json(values)
                source.name = source.plan.name
        except MISSING as error:
            source.left_out(f"{name} could not be read and is left out: {error}")
    return source


def _check_sum(file: Path) -> None:
    """Raise DamagedError if the file does not match its checksum in the store."""
    documents = Documents(file.parent)
    if file.name in documents.checksums():
        documents.read(file.name)


def _wrong(name: str, line: Mapping[str, Any]) -> str:
    """Return a description of the error in a row of times or networks, or "" if the row is valid."""
    for key in NEEDED[name]:
        if line.get(key) in (None, ""):
            return f"has no {key}"
    for key, least in LEAST[name].items():
        value = line.get(key)
        if value not in (None, "") and not (isinstance(value, int | float) and value >= least):
            wanted = "a number above 0" if least else "a non-negative number"
            return f"has {key} {str(value)[:50]!r}, expected {wanted}"
    return ""


def _number(text: Any) -> Any:
    for convert in (int, float):
        try:
            value = convert(text)
            return value if math.isfinite(value) else text
        except (TypeError, ValueError, OverflowError):
            continue
    return text
