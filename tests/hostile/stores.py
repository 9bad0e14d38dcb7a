"""Stores whose files are lost, swapped or cut, and whose folders are links."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import numpy as np

from qipf.study.run.store import FOLDERS, RECORDS, Store, StoreError
from qipf.study.run.verify import clean, damages, repair

COVERED = ("cells", "plan.json", "index.json", "environment.json", "table.csv", "store.json", RECORDS)
"""What a checksum or the list of records covers; notes on the time and the code of a cell change no result."""
NAMES = (
    "thesis.tex",
    "notes",
    ".thesis.tex.part",
    "f" * 31,
    "f" * 33 + ".qipf",
    "e" * 32 + ".txt",
    "damaged.csv",
    "x.json",
)


def make_store(path: Path) -> None:
    """A finished store of three cells, with its documents."""
    store = Store(path, create=True)
    for number, kind in enumerate(("train", "score", "measure")):
        key = f"{number:032x}"
        store.write(kind, key, {"number": number}, {"x": np.arange(number + 2.0)})
        store.write_note("sources", key, "0" * 16)
    for name in ("plan.json", "index.json", "environment.json", "table.csv"):
        store.documents.write(name, f"content of {name}")
    store.seal_records()


def lose(path: Path, rng: random.Random) -> str:
    """Delete, cut, swap or flip files of a store: whatever a checksum covers is noticed, and never read."""
    files = sorted(file for name in COVERED for file in [path / name, *(path / name).rglob("*")] if file.is_file())
    before = {file: file.read_bytes() for file in files}
    for _ in range(rng.randint(1, 3)):
        file, other = rng.choice(files), rng.choice(files)
        kind = rng.randrange(5)
        if kind == 0:
            file.unlink(missing_ok=True)
        elif kind == 1:
            shutil.rmtree(file.parent) if file.parent != path and file.exists() else file.unlink(missing_ok=True)
        elif kind == 2 and file.is_file():
            file.write_bytes(file.read_bytes()[: rng.randrange(len(before[file]))])
        elif kind == 3 and file.is_file():
            data = bytearray(file.read_bytes() or b"x")
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            file.write_bytes(data)
        elif file.parent.is_dir():
            file.write_bytes(before[other])
    changed = {file for file in files if not file.is_file() or file.read_bytes() != before[file]}
    try:
        store = Store(path)
        found = {damage.file for damage in damages(store)}
        for kind, number in (("train", 0), ("score", 1), ("measure", 2)):
            if store.has(kind, f"{number:032x}"):
                try:
                    if store.record(kind, f"{number:032x}")["number"] != number:
                        return "WRONG RECORD"
                    if len(store.arrays(kind, f"{number:032x}")["x"]) != number + 2:
                        return "WRONG ARRAYS"
                except StoreError:
                    pass
    except StoreError:
        return "refused"
    if bool(changed) != bool(found):
        return f"changed {sorted(map(str, changed))}, found {sorted(map(str, found))}"
    return "refused" if found else "read"


def link(path: Path, rng: random.Random) -> str:
    """Move folders of a store elsewhere, among files of a user, and link to them: it works, and those files stay."""
    mine = {}
    for name in rng.sample(FOLDERS, rng.randint(1, 3)):
        elsewhere = path.with_name(f"elsewhere-{name}")
        shutil.move(path / name, elsewhere)
        (path / name).symlink_to(elsewhere)
        for own in rng.sample(NAMES, 3):
            (elsewhere / own).write_text(f"mine {name}")
            mine[elsewhere / own] = f"mine {name}"
    store, key = Store(path, create=True), f"{rng.getrandbits(128):032x}"
    with store.attempt(key):
        store.scratch(key, ".qipf").write_text("x")
        store.scratch("d" * 32, ".qipf").write_text("left by a killed run")
        store.write("train", key, {"x": 1}, {"x": np.zeros(2)})
    if rng.random() < 0.5:
        store.file("train", key, ".json").write_text("{")
        repair(store)
    clean(store, [])
    wrong = [file.name for file, text in mine.items() if not file.is_file() or file.read_text() != text]
    left = [file.name for file in (path / "scratch").glob("d" * 32 + "*")]
    bad = [str(damage) for damage in damages(store) if damage.file.name not in NAMES]
    return f"lost {wrong}, left {left}, damaged {bad}" if wrong or left or bad else "read"


STORES = {"lost": lose, "links": link}


def count(name: str, cases: int, seed: int, folder: Path) -> dict[str, object]:
    """The outcomes of one kind of change."""
    os.fsync = lambda _: None  # not what is tested, and most of the time
    whole, path = folder / "whole", folder / "work" / "store"
    make_store(whole)
    found: dict[str, object] = {"read": 0, "refused": 0, "failures": {}}
    for case in range(cases):
        shutil.rmtree(path.parent, ignore_errors=True)
        shutil.copytree(whole, path)
        try:
            outcome = STORES[name](path, random.Random(f"{name} {seed} {case}"))
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        if outcome in found:
            found[outcome] += 1
        else:
            found["failures"].setdefault(outcome, case)
    return found
