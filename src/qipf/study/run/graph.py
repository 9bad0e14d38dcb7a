"""The cells of a plan, which train networks, fit methods, predict, score, evaluate and measure times.

The result of a cell depends only on its parameters and on the results of other cells.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from qipf.decisions.comparison import ONE_WIDTH
from qipf.study.plan.methods import fit_on, is_many
from qipf.study.plan.plan import Method, Pair, Plan
from qipf.study.plan.registry import FROM_SCRATCH, TRAINED
from qipf.study.run import own_model
from qipf.study.run.own_model import digest
from qipf.study.run.store import Store
from qipf.study.run.study_data import Group, held_out_of


@dataclass(frozen=True, eq=False)
class Cell:
    """One unit of work.

    Attributes:
        kind: Folder of the result in the store.
        function: "module:name", called as `function(context, params, parents)`.
        version: Code version; change it if the results change.
        params: JSON values; only these and the parents affect the result.
        parents: Cells whose results are read, keyed by role.
        task: Name of the cell's `WorkItem`.
        cost: Expected work, for scheduling and the progress bar.
        exclusive: True if no other cell may run at the same time.
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

    @cached_property
    def key(self) -> str:
        """Hash of everything that determines the result."""
        parts = {
            "kind": self.kind,
            "version": self.version,
            "params": self.params,
            "parents": {role: parent.key for role, parent in self.parents.items()},
        }
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def spec(self) -> dict[str, Any]:
        """Return this cell as JSON values for a worker."""
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
        """Expected work."""
        return sum(cell.cost for cell in self.cells)

    @property
    def exclusive(self) -> bool:
        """True if no other task may run at the same time."""
        return any(cell.exclusive for cell in self.cells)

    def needs(self) -> set[str]:
        """Return the keys of the cells in other tasks that must finish first."""
        own = {cell.key for cell in self.cells}
        return {parent.key for cell in self.cells for parent in cell.parents.values()} - own


def needed(targets: Iterable[Cell], done: Collection[str] = ()) -> list[Cell]:
    """Return the targets and their dependencies, parents first, except those in `done`."""
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
    """Group cells by task; a cell without a task name forms its own."""
    tasks: dict[str, WorkItem] = {}
    for cell in cells:
        name = cell.task or cell.key
        tasks.setdefault(name, WorkItem(name, [])).cells.append(cell)
    return list(tasks.values())


Parents = Mapping[str, Mapping[str, str]]
"""Kind and key of each parent, keyed by role."""


@dataclass(frozen=True)
class Context:
    """The store, the kind and key of the running cell, and the folder with dataset files."""

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
    """Result of a cell: JSON `facts`, `arrays` keyed by name, and other `files` keyed by suffix."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] | None = None
    files: Mapping[str, bytes] | None = None


VERSIONS = {"train": "1", "model": "2", "fit": "2", "base": "2", "score": "3", "measure": "3", "time": "3"}
"""Version of each kind of cell. Increase it when results change; all cells of this kind and the cells that depend on
them are then computed again.
"""
MAPS = "1"
"""Version of the maps in score cells."""


@dataclass(frozen=True)
class IndexEntry:
    """A cell with its dataset, network, seed, group and method."""

    cell: Cell
    dataset: str
    net: str
    seed: int
    group: str = ""
    method: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the entry for index.json."""
        about = {name: value for name, value in vars(self).items() if name != "cell"}
        return {"kind": self.cell.kind, "key": self.cell.key, **about}


def entries(plan: Plan, device: str = "cpu") -> list[IndexEntry]:
    """Return an entry for every cell of a plan, in table order."""
    return [entry for pair in plan.pairs for entry in _PairCells(pair, device).entries()]


def targets(all_entries: list[IndexEntry], *, times: bool = True) -> list[Cell]:
    """Return the cells needed for tables and reports."""
    kinds = ("measure", "base", "score", *(("time",) if times else ()))
    return [entry.cell for entry in all_entries if entry.cell.kind in kinds]


def groups(pair: Pair) -> list[Group]:
    """Return the groups to evaluate: clean test inputs, every shift, and out-of-distribution datasets."""
    found = [Group("clean", (0.0,), pair.test_size)]
    for name, intensities in pair.shifts.items():
        found.append(Group(name, intensities, pair.test_size, files=pair.shifted.get(name, ())))
    return found + [Group(f"ood:{name}", (0.0,), pair.test_size) for name in pair.out_of_distribution]


HELD_OUT = Group("held-out", (0.0,), 0)


class _PairCells:
    """The cells of one pair."""

    def __init__(self, pair: Pair, device: str) -> None:
        self.pair, self.device = pair, device
        self.digest = lru_cache(maxsize=None)(digest)  # each file is read once per pair
        self.data = {
            "dataset": pair.dataset,
            "digest": self.digest(pair.dataset),
            "calibration_size": pair.calibration_size,
        }
        if pair.model is not None:
            self.data["held_out_of"] = held_out_of(pair)
        if pair.predicts != "classes":
            self.data["predicts"] = pair.predicts
        self.networks: dict[int, Cell] = {}

    def entries(self) -> Iterator[IndexEntry]:
        seen: set[tuple[Any, ...]] = set()
        for seed in self.pair.seeds:
            for entry in self._of_seed(seed):
                # a network shared by seeds has one entry; a cell shared by methods has one entry per method
                about = tuple(entry.as_json().values())
                if about not in seen:
                    seen.add(about)
                    yield entry

    def _of_seed(self, seed: int) -> Iterator[IndexEntry]:
        pair, about = self.pair, {"dataset": self.pair.dataset_name, "net": self.pair.net, "seed": seed}
        network = self.network(seed)
        yield IndexEntry(network, **about)
        base = {group.name: self._base(network, seed, group) for group in (HELD_OUT, *groups(pair))}
        for name, cell in base.items():
            yield IndexEntry(cell, **about, group=name)
        for method in pair.methods:
            if not method.measured_on(seed):
                continue
            fitted = self._fitted(method, seed)
            for cell in dict.fromkeys(fitted.values()):
                if cell is not network:
                    member = cell.params["seed"] if cell.kind == "train" else seed
                    yield IndexEntry(
                        cell, **{**about, "seed": member}, method="" if cell.kind == "train" else method.name
                    )
            first = pair.seeds[0] if method.seeds is None else method.seeds[0]
            if seed == first and method.kind not in ("scores", ONE_WIDTH):
                yield IndexEntry(self._time(method, seed, fitted), **about, method=method.name)
            scores = {group.name: self._score(method, seed, group, fitted, base) for group in (HELD_OUT, *groups(pair))}
            for group in (HELD_OUT, *groups(pair)):
                yield IndexEntry(scores[group.name], **about, group=group.name, method=method.name)
                if group is not HELD_OUT:
                    yield IndexEntry(
                        self._measure(method, seed, group, scores, base), **about, group=group.name, method=method.name
                    )

    def network(self, seed: int) -> Cell:
        """Return the cell of the network with this seed."""
        if seed not in self.networks:
            self.networks[seed] = self._model(self.pair.model) if self.pair.model is not None else self._train(seed)
        return self.networks[seed]

    def _train(self, seed: int) -> Cell:
        params = {"data": self.data, "net": self.pair.net, "train": dict(self.pair.train), "seed": seed}
        return self._cell("train", params, self._about(seed), cost=10.0 * self.pair.train["epochs"])

    def _model(self, model: str) -> Cell:
        files = own_model.digests(model, self.pair.weights)
        params = {"data": self.data, "model": model, "weights": self.pair.weights, "digests": files}
        return self._cell("model", params, self.pair.name)

    def _members(self, method: Method, seed: int) -> list[Cell]:
        """Return the members of an ensemble: the base network, and others that are taken from the pool or trained."""
        count = method.params.get("members", 10)
        if self.pair.pool:
            return [self.network((seed + k) % self.pair.pool) for k in range(count)]
        return [self.network(seed), *(self.network(1000 * (seed + 1) + k) for k in range(1, count))]

    def _fitted(self, method: Method, seed: int) -> dict[str, Cell]:
        """Return the cells that a method needs for scoring, keyed by role."""
        network = self.network(seed)
        if method.kind in ("scores", ONE_WIDTH):
            return {"network": network}
        if method.kind == "ensemble":
            return {"network": network, **{f"member{k}": cell for k, cell in enumerate(self._members(method, seed))}}
        params: dict[str, Any] = {"data": self.data, "kind": method.kind, "settings": dict(method.params), "seed": seed}
        parents = {"network": network}
        if not is_many(method.kind):
            params["settings"].pop("fit_on", None)
            params |= {"fit_on": fit_on(method.kind, method.params), "reference_size": self.pair.reference_size}
            fit = self._cell("fit", params, self._about(seed, method), parents, task=f"fit {self._about(seed)}")
            return {"network": network, "fit": fit}
        cost = 20.0
        if method.kind in TRAINED:
            recipe = {key: value for key, value in self.pair.train.items() if key != "epochs"}
            params["settings"] = {**recipe, **params["settings"]}
        if method.kind in FROM_SCRATCH:
            params["net"] = self.pair.net
            cost = 10.0 * params["settings"].get("epochs", 100)
            parents = {} if method.params.get("start", "scratch") == "scratch" else parents
        fit = self._cell("fit", params, self._about(seed, method), parents, cost=cost)
        return {"network": network, "fit": fit}

    def _base(self, network: Cell, seed: int, group: Group) -> Cell:
        params = {"group": self._group_params(group)}
        about, task = self._about(seed, None, group), self._task(seed, group)
        return self._cell("base", params, about, {"network": network}, cost=len(group.intensities), task=task)

    def _score(
        self, method: Method, seed: int, group: Group, fitted: Mapping[str, Cell], base: Mapping[str, Cell]
    ) -> Cell:
        many = is_many(method.kind)
        if many and self.pair.multi_pass_size and group is not HELD_OUT:
            group = group._replace(subset=self.pair.multi_pass_size)
        params: dict[str, Any] = {"group": self._group_params(group), "kind": method.kind}
        parents = dict(fitted)
        if self.pair.predicts == "pixels" and group is not HELD_OUT:
            params["maps"] = MAPS
        if self.pair.predicts != "classes" and "features" in method.params:
            params["features"] = method.params["features"]
        if many:
            params |= {"seed": seed, "settings": dict(method.params)}
            parents["base"] = base[group.name]
        if method.kind == "scores":
            params |= {
                "file": method.params["file"],
                "digest": self.digest(method.params["file"]),
                "where": {"dataset": self.pair.dataset_name, "net": self.pair.net, "seed": seed},
                "severity": list(self.pair.severity.get(group.name, (0,))),
            }
            parents = {"base": base[group.name]}
        task = self._task(seed, group, method if many else None)
        cost = (10.0 if many else 0.5) * len(group.intensities)
        return self._cell("score", params, self._about(seed, method, group), parents, cost=cost, task=task)

    def _measure(
        self, method: Method, seed: int, group: Group, scores: Mapping[str, Cell], base: Mapping[str, Cell]
    ) -> Cell:
        params: dict[str, Any] = {"group": group.name, "bootstrap": self.pair.bootstrap}
        many = any(is_many(other.kind) for other in self.pair.methods)
        subset = (
            self.pair.multi_pass_size if many else 0
        )  # number of inputs on which all methods are compared; 0 for all
        params |= {"intensities": list(group.intensities), "subset": subset}
        if self.pair.predicts == "numbers":
            params["coverage"] = self.pair.coverage
        parents = {
            "base": base[group.name],
            "base_held_out": base["held-out"],
            "score": scores[group.name],
            "score_held_out": scores["held-out"],
        }
        if group.name.startswith("ood:"):
            parents |= {"score_clean": scores["clean"], "base_clean": base["clean"]}
        task, cost = self._task(seed, group, method if is_many(method.kind) else None), 0.5 * len(group.intensities)
        return self._cell("measure", params, self._about(seed, method, group), parents, cost=cost, task=task)

    def _time(self, method: Method, seed: int, fitted: Mapping[str, Cell]) -> Cell:
        params = {"kind": method.kind, "settings": dict(method.params), "data": self.data, "seed": seed}
        about, task = self._about(seed, method), f"time {self.pair.name}"
        cell = self._cell("time", params, about, fitted, cost=3.0, task=task)
        return replace(cell, exclusive=True)

    def _about(self, seed: int, method: Method | None = None, group: Group | None = None) -> str:
        parts = [method.name if method else "", f"{self.pair.name} #{seed}", group.name if group else ""]
        return " ".join(part for part in parts if part)

    def _task(self, seed: int, group: Group, method: Method | None = None) -> str:
        if group is HELD_OUT and method is None:
            return f"fit {self._about(seed)}"  # scorers are also fitted on these inputs
        return self._about(seed, method, group)

    def _cell(
        self, kind: str, params: Mapping[str, Any], about: str, parents: Mapping[str, Cell] | None = None, *,
        cost: float = 1.0, task: str = "",
    ) -> Cell:  # fmt: skip
        where = f"qipf.study.run.{'measure' if kind == 'measure' else 'cells'}:{kind}"
        known = params if kind == "measure" else {**params, "device": self.device}
        verb = {"model": "load", "base": "predict"}.get(kind, kind)
        return Cell(kind, where, VERSIONS[kind], known, parents or {}, task, f"{verb} {about}", cost)

    def _group_params(self, group: Group) -> dict[str, Any]:
        params: dict[str, Any] = {"name": group.name, "intensities": list(group.intensities), "size": group.size}
        if group.subset:
            params["subset"] = group.subset
        if group.name.startswith("ood:"):
            params["digest"] = self.digest(group.name.removeprefix("ood:"))
        if group.files:
            params |= {"files": list(group.files), "digests": [self.digest(file) for file in group.files]}
        return params
