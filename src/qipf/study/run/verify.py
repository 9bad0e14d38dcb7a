"""Verify a store: check every file, and find cells that were computed by different code."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from qipf.study.run.store import ARRAYS, CHECKSUMS, FOLDERS, RECORDS, DamagedError, Store, StoreError, explained, unseal

UNKNOWN = "unknown"
"""Source given for a cell whose source note is missing or damaged."""


PACKAGE = Path(__file__).parents[2]
"""The folder of the running package."""


@cache
def source_digest() -> str:
    """Return a digest of the Python and TOML files of the running package, except the plans."""
    return digest_of(PACKAGE)


def digest_of(package: Path) -> str:
    files = {file.relative_to(package).as_posix(): file for end in ("py", "toml") for file in package.rglob(f"*.{end}")}
    digest = hashlib.sha256()
    for name in sorted(files):
        if not name.startswith("study/plan/plans/"):
            text = files[name].read_bytes().replace(b"\r\n", b"\n")
            digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:16]


def other_sources(store: Store, index: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count the finished cells computed by different code, keyed by its digest."""
    finished = store.finished()
    keys = {entry["key"] for entry in index} & finished
    made_by = Counter(store.note("sources", key) or UNKNOWN for key in keys)
    del made_by[source_digest()]
    return dict(sorted(made_by.items()))


def note_of(environment: Mapping[str, Any]) -> str:
    """Return a note about cells computed by different code, or "" if there are none."""
    others = environment.get("other_sources")
    if not isinstance(others, Mapping) or not others:
        return ""
    count = sum(number for number in others.values() if isinstance(number, int))
    listed = ", ".join(f"{number} by {_called(source)}" for source, number in others.items())
    return (
        f"{count} {'cell was' if count == 1 else 'cells were'} computed by code other than that of the last run "
        f"({_called(str(environment.get('source', UNKNOWN)))}): {listed}; for comparable results, run the plan in an "
        "empty store (-o)"
    )


def _called(source: str) -> str:
    return "an unknown version" if source == UNKNOWN else f"source {source}"


NOTES = ("failed", "seconds", "sources")
KEY = re.compile("[0-9a-f]{32}")
"""Pattern of the key of a cell."""
CHECKPOINT = re.compile(r"(safetensors|qipf)(\.\d+)?")
TEMPORARY = re.compile(r"\.([0-9a-f]{32}|[a-z]+)\.[a-z]+(\.\d+)?\.[0-9a-f]{8}\.part")
"""Pattern of the names of temporary files from `qipf._common.files.atomic_write`."""


class Damage(NamedTuple):
    """A damaged file, a description, and the key of its cell, if any."""

    file: Path
    why: str
    cell: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"


def damages(store: Store) -> Iterator[Damage]:
    """Yield every damaged or missing file in a store."""
    yield from _documents(store)
    for kind in sorted((store.path / "cells").glob("*/")):
        for file in sorted(kind.glob("*.json")):
            yield from _cell(store, kind.name, file.stem)
    for folder in NOTES:
        for file in sorted(file for file in (store.path / folder).glob("*.json") if KEY.fullmatch(file.stem)):
            try:
                unseal(file.read_bytes())
            except ValueError as error:
                yield Damage(file, str(error))
    yield from _checkpoints(store)


def _documents(store: Store) -> Iterator[Damage]:
    """Yield damaged and missing documents, and missing records."""
    try:
        sums = store.documents.checksums()
    except DamagedError as error:
        yield Damage(store.path / CHECKSUMS, error.why)
        return
    for name in sorted({*sums, *(name for name in ("plan.json", "index.json") if store.documents.has(name))}):
        try:
            store.documents.read(name)
        except StoreError as error:
            yield Damage(store.path / name, error.why if isinstance(error, DamagedError) else "it is missing")
            if name == RECORDS:
                return
    for kind, key in store.lost_records():
        yield Damage(store.file(kind, key, ".json"), "it is missing", key)


def _cell(store: Store, kind: str, key: str) -> Iterator[Damage]:
    try:
        suffixes = store.record(kind, key)["files"]
    except DamagedError as error:
        yield Damage(store.file(kind, key, ".json"), error.why, key)
        return
    for suffix in suffixes:
        try:
            store.content(kind, key, suffix)
        except DamagedError as error:
            yield Damage(store.file(kind, key, suffix), error.why, key)


def _checkpoints(store: Store) -> Iterator[Damage]:
    files = [
        file for file in (store.path / "scratch").glob(f"*{ARRAYS}*") if KEY.fullmatch(file.name.partition(".")[0])
    ]
    if not files:
        return
    from qipf.training.state import read_state

    for file in sorted(files):
        try:
            read_state(file)
        except ValueError as error:
            yield Damage(file, str(error).removeprefix(f"{file} "))


def repair(store: Store) -> tuple[set[str], list[str]]:
    """Move every damaged file and the rest of its cell to the folder "damaged".

    Returns:
        The keys of the cells to compute again, and one note per damaged file.
    """
    cells: set[str] = set()
    notes = []
    for damage in list(damages(store)):
        there = damage.file.exists()
        if damage.cell:
            cells.add(damage.cell)
            for file in sorted(damage.file.parent.glob(f"{damage.cell}.*")):
                store.set_aside(file)
        elif there:
            store.set_aside(damage.file)
        else:
            store.documents.remove(damage.file.name)
        moved = f" and was moved to {store.path / 'damaged'}" if there else ""
        fate = "; its cell will be rerun" if damage.cell else "" if there else "; it will be written again"
        state = f"damaged ({damage.why})" if there else "missing"
        notes.append(f"{damage.file} is {state}{moved}{fate}")
    if cells and store.documents.has(RECORDS):
        store.seal_records()
    return cells, notes


def clean(store: Store, unfinished: Iterable[str]) -> None:
    """Remove temporary files, running-cell markers and unused checkpoints left by killed runs."""
    # only files with names that a store creates, because a folder may be a link to a folder with other files
    keys = set(unfinished)
    folders = [store.path, *(store.path / name for name in FOLDERS), *(store.path / "cells").glob("*/")]
    with explained(store.path):
        for folder in folders:
            for file in folder.glob(".*.part"):
                if TEMPORARY.fullmatch(file.name):
                    file.unlink(missing_ok=True)
        for file in (store.path / "running").iterdir():
            if KEY.fullmatch(file.name):
                file.unlink(missing_ok=True)
        for file in (store.path / "scratch").iterdir():
            key, _, ending = file.name.partition(".")
            if KEY.fullmatch(key) and CHECKPOINT.fullmatch(ending) and key not in keys:
                file.unlink(missing_ok=True)
