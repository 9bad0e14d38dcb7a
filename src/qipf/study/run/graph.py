"""Cells: units of work that are pure functions of their parameters and of the results of other cells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from qipf.study.run.store import Store


@dataclass(frozen=True, eq=False)
class Cell:
    """One unit of work. Its result is kept under a key that is a hash of everything that determines it.

    Attributes:
        kind: what is done; the folder of the result in the store.
        function: where the code is, as "module:name"; called as `function(context, params, parents)`.
        version: changes whenever the code of this kind changes its results.
        params: JSON values; the function depends on nothing else apart from its parents.
        parents: the cells whose results it reads, by role.
        task: cells with the same task run one after another in one process, so that they share what they load.
        label: its name in the progress display.
        cost: expected work in arbitrary units, for the progress bar only.
        exclusive: whether it runs alone (timing).
        light: whether it does not need an accelerator and can run next to cells that do.
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
        """A hash of the kind, its version, the parameters and the keys of the parents."""
        parts = {
            "kind": self.kind,
            "version": self.version,
            "params": self.params,
            "parents": {role: parent.key for role, parent in self.parents.items()},
        }
        return hashlib.sha256(canonical(parts).encode()).hexdigest()[:32]

    def spec(self) -> dict[str, Any]:
        """What a worker needs to run this cell, as plain JSON values."""
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
        """The expected work of all its cells."""
        return sum(cell.cost for cell in self.cells)

    @property
    def exclusive(self) -> bool:
        """Whether it has to run alone."""
        return any(cell.exclusive for cell in self.cells)

    @property
    def light(self) -> bool:
        """Whether none of its cells needs an accelerator."""
        return all(cell.light for cell in self.cells)

    def needs(self) -> set[str]:
        """Keys of the cells of other tasks that have to be finished first."""
        own = {cell.key for cell in self.cells}
        return {parent.key for cell in self.cells for parent in cell.parents.values()} - own


def canonical(value: Any) -> str:
    """JSON in which equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def in_order(targets: Iterable[Cell]) -> list[Cell]:
    """The targets and everything they need, each once, parents before children."""
    ordered: dict[str, Cell] = {}

    def visit(cell: Cell) -> None:
        if cell.key in ordered:
            return
        for parent in cell.parents.values():
            visit(parent)
        ordered[cell.key] = cell

    for target in targets:
        visit(target)
    return list(ordered.values())


def needed(targets: Iterable[Cell], done: set[str]) -> list[Cell]:
    """The cells that are still to run: unfinished targets and the unfinished cells that they need, parents first."""
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
    """Group cells by their task name (a cell without one is a task of its own), keeping the order."""
    tasks: dict[str, WorkItem] = {}
    for cell in cells:
        name = cell.task or cell.key
        tasks.setdefault(name, WorkItem(name, [])).cells.append(cell)
    return list(tasks.values())


Parents = Mapping[str, Mapping[str, str]]
"""The kind and the key of each parent, by role."""


@dataclass(frozen=True)
class Context:
    """Where a cell runs: the store with the results of its parents, its own kind and key, and the folder with data."""

    store: Store
    kind: str
    key: str
    data: str | None = None

    def record(self, parent: Mapping[str, str]) -> dict[str, Any]:
        """The record of a parent."""
        return self.store.record(parent["kind"], parent["key"])

    def arrays(self, parent: Mapping[str, str]) -> dict[str, np.ndarray]:
        """The arrays of a parent."""
        return self.store.arrays(parent["kind"], parent["key"])


@dataclass(frozen=True)
class Result:
    """What a cell leaves in the store.

    Attributes:
        facts: JSON values for its record.
        arrays: arrays by name.
        files: the bytes of other files by suffix, for instance ".qipf".
    """

    facts: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] | None = None
    files: Mapping[str, bytes] | None = None
