"""Cells: work that is a pure function of parameters and of the results of other cells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from qipf.study.run.store import Store


@dataclass(frozen=True, eq=False)
class Cell:
    """One unit of work. The key of its result is a hash of everything that determines it.

    Attributes:
        kind: Folder of the result in the store.
        function: "module:name", called as `function(context, params, parents)`.
        version: Changes when the code of this kind changes its results.
        params: JSON values; nothing else but the parents affects the result.
        parents: Cells whose results are read, by role.
        task: Cells of one task run one after another in one process and share what they load.
        cost: Expected work, for the progress bar.
        exclusive: Run alone (timing).
        light: Needs no accelerator and can run beside cells that do.
    """

    kind: str
    function: str
    version: str
    params: Mapping[str, Any]
    parents: Mapping[str, Cell] = field(default_factory=dict)
    task: str = ""
    label: str = ""
    cost: float = 1.0
    exclusive: bool = False
    light: bool = False

    @cached_property
    def key(self) -> str:
        """The hash of kind, version, parameters and keys of the parents."""
        parts = {
            "kind": self.kind,
            "version": self.version,
            "params": self.params,
            "parents": {role: parent.key for role, parent in self.parents.items()},
        }
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def spec(self) -> dict[str, Any]:
        """Return what a worker needs to run this cell, as JSON values."""
        return {
            "kind": self.kind,
            "key": self.key,
            "function": self.function,
            "params": dict(self.params),
            "parents": {role: {"kind": parent.kind, "key": parent.key} for role, parent in self.parents.items()},
            "label": self.label,
        }


@dataclass(eq=False)
class WorkItem:
    """Cells that run one after another in one process."""

    name: str
    cells: list[Cell]

    @property
    def cost(self) -> float:
        """Expected work of all its cells."""
        return sum(cell.cost for cell in self.cells)

    @property
    def exclusive(self) -> bool:
        """True if it runs alone."""
        return any(cell.exclusive for cell in self.cells)

    @property
    def light(self) -> bool:
        """True if no cell needs an accelerator."""
        return all(cell.light for cell in self.cells)

    def needs(self) -> set[str]:
        """Return the keys of cells of other tasks that must be finished first."""
        own = {cell.key for cell in self.cells}
        return {parent.key for cell in self.cells for parent in cell.parents.values()} - own


def needed(targets: Iterable[Cell], done: Collection[str] = ()) -> list[Cell]:
    """Return the targets and what they need, each once and without what is `done`, parents first."""
    todo: dict[str, Cell] = {}

    def visit(cell: Cell) -> None:
        if cell.key in done or cell.key in todo:
            return
        for parent in cell.parents.values():
            visit(parent)
        todo[cell.key] = cell

    for target in targets:
        visit(target)
    return list(todo.values())


def as_tasks(cells: Iterable[Cell]) -> list[WorkItem]:
    """Group cells by task, in order; a cell without a task is one of its own."""
    tasks: dict[str, WorkItem] = {}
    for cell in cells:
        name = cell.task or cell.key
        tasks.setdefault(name, WorkItem(name, [])).cells.append(cell)
    return list(tasks.values())


Parents = Mapping[str, Mapping[str, str]]
"""Kind and key of each parent, by role."""


@dataclass(frozen=True)
class Context:
    """The store, the kind and key of the running cell, and the folder with data."""

    store: Store
    kind: str
    key: str
    data: str | None = None

    def record(self, parent: Mapping[str, str]) -> dict[str, Any]:
        """Return the record of a parent."""
        return self.store.record(parent["kind"], parent["key"])

    def arrays(self, parent: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Return the arrays of a parent."""
        return self.store.arrays(parent["kind"], parent["key"])


@dataclass(frozen=True)
class Result:
    """The result of a cell: JSON `facts` for its record, `arrays` by name, and other `files` by suffix."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] | None = None
    files: Mapping[str, bytes] | None = None
