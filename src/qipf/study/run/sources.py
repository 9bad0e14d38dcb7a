"""Which code made the cells of a store: a digest of the package's source, beside every cell.

Keys change with a kind's version number only, so a store that is resumed keeps what older code made. That is wanted
after a change that touches no result, and must be said after any: results of two versions may not compare.
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
"""The source of cells from before it was kept."""


@cache
def source_digest() -> str:
    """A digest of all Python files of the running package but the plans, whatever their line ends; once a process."""
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
    """How many finished cells of the index other code than the running one has made, by its digest."""
    finished = store.finished()
    made_by = Counter(store.source(entry["key"]) or UNKNOWN for entry in index if entry["key"] in finished)
    del made_by[source_digest()]
    return dict(sorted(made_by.items()))


def note_of(environment: Mapping[str, Any]) -> str:
    """The sentence about an environment.json whose run found cells of other code; empty where there were none."""
    others = environment.get("other_sources")
    if not isinstance(others, Mapping) or not others:
        return ""
    count = sum(number for number in others.values() if isinstance(number, int))
    listed = ", ".join(f"{number} by {_called(source)}" for source, number in others.items())
    return (
        f"{count} {'cell was' if count == 1 else 'cells were'} made by other code than the last run's "
        f"({_called(str(environment.get('source', UNKNOWN)))}): {listed}; they are kept as they are, and may not "
        "compare with the others; to measure everything with one version, start an empty store (another -o)"
    )


def _called(source: str) -> str:
    return "an unknown version" if source == UNKNOWN else f"source {source}"
