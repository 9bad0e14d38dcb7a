"""Where a report's numbers come from: a store with everything in it, or a folder with the tables alone."""

from __future__ import annotations

import csv
import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qipf.study.plan.plan import Plan
from qipf.study.run.read import Bench, Row, open_store
from qipf.study.run.sources import note_of
from qipf.study.tables.long_table import TABLES, read_table

MISSING = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError, csv.Error)
"""What may go wrong with one piece of a store without taking the report down; the page says what is missing."""

TINY = 1e-12
"""Milliseconds; no time is less, and of 0 there is no logarithm."""

NEEDED = {"times": ("dataset", "net", "method", "method_ms"), "networks": ("dataset", "net", "seed", "accuracy")}
LEAST = {"times": {"method_ms": TINY, "forward_ms": TINY}, "networks": {"accuracy": 0.0}}
"""Columns that must be there; and those, wherever they are, that must be numbers, and of at least what."""

SHOWN = 3
"""Bad rows of a file that a note names."""

LOG = logging.getLogger(__name__)
"""Tells whoever writes a page, and may never read its notes, what could not be read."""


@dataclass
class Source:
    """What a report is made of.

    Attributes:
        name: of the plan, or of the folder where no plan is there.
        rows: the long table.
        times: milliseconds per sample, by dataset, net and method.
        plan: as it was run, or None.
        plan_text: the same for readers.
        environment: where it ran.
        networks: the trained networks and their accuracy.
        failures: cells that failed.
        notes: for the reader, one sentence each. Whoever leaves something out adds one.
        bench: the store, for predictions and pictures; None where there are only tables.
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

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def left_out(self, text: str) -> None:
        """Add a note on something that is there and cannot be used, and say it at once."""
        self.note(text)
        LOG.warning("%s", text)

    def keep(self, name: str, values: Any, file: str) -> None:
        """Take one piece, if the page can be made with it; of times and networks the rows that are right.

        Raises:
            ValueError: it cannot, and why.
        """
        if name == "environment" and not isinstance(values, Mapping):
            raise ValueError(f"expected names with their values, got {type(values).__name__}")
        if name in NEEDED:
            wrong = {number: _wrong(name, line) for number, line in enumerate(values, 1)}
            bad = [f"row {number} {why}" for number, why in wrong.items() if why]
            if bad:
                more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
                self.left_out(
                    f"{len(bad)} of {len(values)} rows of {file} are left out: {'; '.join(bad[:SHOWN])}{more}"
                )
            values = [line for number, line in enumerate(values, 1) if not wrong[number]]
        setattr(self, name, values)


def open_source(path: str | os.PathLike[str]) -> Source:
    """Read a store, a table, or a folder with one.

    A table is a table.csv, table.parquet or table.csv.gz, perhaps with times.csv, networks.csv, plan.json and
    environment.json beside it.

    Raises:
        FileNotFoundError: there is neither a store nor a table.
        ValueError: there is one, without a single number.
    """
    place = Path(path)
    folder = place.parent if place.is_file() else place
    found = None if place.is_file() else _from_store(folder)
    if found is None or not found.rows:
        tables = [place] if place.is_file() else [folder / name for name in TABLES if (folder / name).is_file()]
        if not tables:
            if found is not None:
                raise ValueError(f"{folder} has no finished measurement yet; run the benchmark until it has some")
            raise FileNotFoundError(
                f"{folder} is no benchmark store and has none of {', '.join(TABLES)}; "
                "`qipf bench PLAN -o DIR` makes a store"
            )
        found = _from_tables(tables[0])
    if not found.rows:
        raise ValueError(f"{place} has no numbers to report; run the benchmark until it has some")
    return found


def _from_store(folder: Path) -> Source | None:
    if not all((folder / name).is_file() for name in ("store.json", "plan.json", "index.json")):
        return None
    bench = open_store(folder)
    source = Source(bench.plan.name, bench.rows(), plan=bench.plan, bench=bench)
    source.plan_text = json.dumps(bench.plan.as_json(), indent=2, ensure_ascii=False)
    for name in ("notes", "times", "environment", "networks", "failures"):  # notes first: what is missing joins them
        try:
            value = getattr(bench, name)
            value = value() if callable(value) else value
            source.keep(name, value, f"the {name}")
            if name == "times" and not value:
                source.note("The methods were not timed (yet).")
        except MISSING as error:
            source.left_out(f"The {name} could not be read: {error}")
    return source


def _from_tables(table: Path) -> Source:
    folder = table.parent
    source = Source(folder.resolve().name or "results", read_table(table))
    source.note("Made from the tables alone: charts that need the predictions themselves are left out.")
    for name in ("times", "networks"):
        try:
            source.keep(name, _lines(folder / f"{name}.csv"), f"{name}.csv")
        except MISSING as error:
            source.left_out(f"{name}.csv could not be read, and is left out: {error}")
    if not (folder / "times.csv").is_file():
        source.note("There is no times.csv beside the table, so nothing is known about run times.")
    for name in ("plan", "environment"):
        if not (folder / f"{name}.json").is_file():
            source.note(f"There is no {name}.json beside the table.")
            continue
        try:
            values = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            if name == "environment":
                source.keep(name, values, "environment.json")
                if mixed := note_of(values):
                    source.note(mixed)
            else:
                source.plan_text = json.dumps(values, indent=2, ensure_ascii=False)
                source.plan = Plan.from_json(values)
                source.name = source.plan.name
        except MISSING as error:
            source.left_out(f"{name}.json could not be read: {error}")
    return source


def _wrong(name: str, line: Mapping[str, Any]) -> str:
    """What is wrong with a row of times or networks; nothing where it is right."""
    for key in NEEDED[name]:
        if line.get(key) in (None, ""):
            return f"has no {key}"
    for key, least in LEAST[name].items():
        value = line.get(key)
        if value not in (None, "") and not (isinstance(value, int | float) and value >= least):
            kind = "a number above 0" if least else "a number"
            return f"has {key} {str(value)[:50]!r}, expected {kind}"
    return ""


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: _number(value) for key, value in line.items()} for line in csv.DictReader(file)]


def _number(text: Any) -> Any:
    for kind in (int, float):
        try:
            value = kind(text)
            return value if math.isfinite(value) else text
        except (TypeError, ValueError, OverflowError):
            continue
    return text
