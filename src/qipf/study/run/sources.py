"""Which code made the cells of a store: a digest of the source of the package, kept for every cell.

The key of a cell changes only with the version number of its kind, so a store that is resumed keeps what older code
made. That is right after a change that does not touch results, but it must always be said: results of two versions may
not be comparable.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from qipf.study.run.store import Store

UNKNOWN = "unknown"
"""The source of a cell whose note is missing or damaged."""


@cache
def source_digest() -> str:
    """A digest of all Python files of the running package except the plans; line endings do not matter."""
    return digest_of(Path(__file__).parents[2])


def digest_of(package: Path) -> str:
    """The digest of a package's folder."""
    files = {file.relative_to(package).as_posix(): file for file in package.rglob("*.py")}
    digest = hashlib.sha256()
    for name in sorted(files):
        if not name.startswith("study/plan/plans/"):
            text = files[name].read_bytes().replace(b"\r\n", b"\n")
            digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:16]


def other_sources(store: Store, index: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Number of finished cells of the index that other code than the running one made, by its digest."""
    finished = store.finished()
    keys = {entry["key"] for entry in index} & finished
    made_by = Counter(store.source(key) or UNKNOWN for key in keys)
    del made_by[source_digest()]
    return dict(sorted(made_by.items()))


def note_of(environment: Mapping[str, Any]) -> str:
    """A sentence about the cells of other code that the run of an environment.json found; empty if there were none."""
    others = environment.get("other_sources")
    if not isinstance(others, Mapping) or not others:
        return ""
    count = sum(number for number in others.values() if isinstance(number, int))
    listed = ", ".join(f"{number} by {_called(source)}" for source, number in others.items())
    return (
        f"{count} {'cell was' if count == 1 else 'cells were'} made by other code than the last run's "
        f"({_called(str(environment.get('source', UNKNOWN)))}): {listed}; they are kept as they are and may not "
        "be comparable with the others; to measure everything with one version, start an empty store (another -o)"
    )


def _called(source: str) -> str:
    return "an unknown version" if source == UNKNOWN else f"source {source}"
