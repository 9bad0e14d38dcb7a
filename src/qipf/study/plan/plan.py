"""What a study measures: a TOML file that is checked key by key before anything runs.

A plan has settings that hold for all its pairs, `[[pairs]]` of a dataset and a network (each may override any setting),
and `[methods.NAME]` tables. A parameter of a method that depends on the network is a table with one entry per network::

    name = "mine"
    seeds = [0, 1, 2]
    shifts = ["rotation", "zoom"]       # or a table: rotation = [15, 90]
    severities = [2, 5, 8]              # positions in the documented grids, 1 to 10
    shifted = { winter = ["dec.npz", "jan.npz"] }   # your own shifted inputs with labels, one file per severity

    [[pairs]]
    dataset = "mnist"
    net = "lenet"
    train = { epochs = 10 }

    [methods.mc-dropout]
    rate = { lenet = 0.1, default = 0.2 }

    [methods.svi]
    seeds = [0]                         # an expensive method, on some of the base networks only
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from qipf._common.errors import Problem
from qipf._common.text import parse_toml
from qipf.study.plan.checks import (
    PlanError,
    UnknownPlanError,
    check_keys,
    check_name,
    did_you_mean,
    expect,
    strings,
)
from qipf.study.plan.pairs import SETTINGS, Method, Pair, read_pair

__all__ = ["Method", "Pair", "Plan", "PlanError", "UnknownPlanError", "load", "parse", "shipped"]


@dataclass(frozen=True)
class Plan:
    """A checked plan."""

    name: str
    description: str
    pairs: tuple[Pair, ...]

    def __post_init__(self) -> None:
        check_name(self.name)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values with all settings resolved; `from_json` reads them back."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Plan:
        """The plan that `as_json` wrote."""
        pairs = tuple(
            Pair(
                **{
                    **pair,
                    "seeds": tuple(pair["seeds"]),
                    "shifts": {name: tuple(grid) for name, grid in pair["shifts"].items()},
                    "severity": {name: tuple(grid) for name, grid in pair["severity"].items()},
                    "out_of_distribution": tuple(pair["out_of_distribution"]),
                    "methods": tuple(_method_from_json(method) for method in pair["methods"]),
                    "shifted": {name: tuple(files) for name, files in pair.get("shifted", {}).items()},
                }
            )
            for pair in values["pairs"]
        )
        return Plan(values["name"], values["description"], pairs)


def _method_from_json(values: Mapping[str, Any]) -> Method:
    seeds = values.get("seeds")  # the published plans are older than this setting
    return Method(**{**values, "seeds": None if seeds is None else tuple(seeds)})


TOP = ("name", "description", "include", "pairs", "methods", *SETTINGS)


def shipped() -> tuple[str, ...]:
    """Names of the plans that come with the package."""
    return tuple(
        sorted(
            file.name[:-5] for file in resources.files("qipf.study.plan.plans").iterdir() if file.name.endswith(".toml")
        )
    )


def load(plan: str | Path) -> Plan:
    """Read a shipped plan by name, or a TOML file.

    Raises:
        UnknownPlanError: there is no such plan.
        PlanError: the file is not valid TOML, or a key is wrong.
    """
    text, folder = _source(plan)
    try:
        values = parse_toml(text)
    except Problem as problem:
        raise PlanError(problem.message) from None
    return parse(values, folder=folder)


def _source(plan: str | Path) -> tuple[str, Path | None]:
    name = str(plan)
    if name in shipped():
        return resources.files("qipf.study.plan.plans").joinpath(f"{name}.toml").read_text(encoding="utf-8"), None
    path = Path(plan)
    if not path.is_file():
        hint = f"{did_you_mean(name, shipped())}, or give the path of a TOML file"
        raise UnknownPlanError(f"there is no plan {name!r}: {hint}")
    try:
        return path.read_text(encoding="utf-8"), path.parent
    except UnicodeDecodeError as error:
        raise PlanError(f"not valid TOML: it is not UTF-8 text ({error.reason})") from None


def parse(values: Mapping[str, Any], *, folder: Path | None = None) -> Plan:
    """Check the values of a TOML file; relative paths in it are relative to `folder`.

    Raises:
        PlanError: naming the key that is wrong and what was expected.
    """
    check_keys(values, TOP, "the plan")
    name = expect(values, "name", str, "")
    if not name:
        raise PlanError("name: missing; a plan needs a name")
    pairs = [pair for other in strings(values, "include") for pair in _included(other, folder)]
    entries = expect(values, "pairs", list, [])
    if entries:
        methods = _methods(expect(values, "methods", dict, {}))
        defaults = {key: values[key] for key in SETTINGS if key in values}
        pairs += [read_pair(entry, f"pairs[{i}]", defaults, methods, folder) for i, entry in enumerate(entries)]
    if not pairs:
        raise PlanError(
            "pairs: missing; a plan needs at least one [[pairs]] with `dataset` and `net` (or an `include`)"
        )
    _check_different(pairs)
    _check_one_question(pairs)
    return Plan(name, expect(values, "description", str, ""), tuple(pairs))


def _check_different(pairs: list[Pair]) -> None:
    """Raise PlanError for two pairs that would have the same name in the tables."""
    named: dict[str, Pair] = {}
    for pair in pairs:
        other = named.setdefault(pair.name, pair)
        if other is pair:
            continue
        if other.dataset == pair.dataset:
            raise PlanError(f"pairs: {pair.dataset} with {pair.net} occurs twice; remove one, or give it another `net`")
        raise PlanError(
            f"pairs: {other.dataset} and {pair.dataset} with {pair.net} are both called {pair.name} in tables; "
            "rename one of the files"
        )


def _check_one_question(pairs: list[Pair]) -> None:
    """Raise PlanError for numbers next to predictions that are right or wrong, because no table has both."""
    kinds = {pair.predicts: pair for pair in pairs}
    if "numbers" in kinds and len(kinds) > 1:
        other = next(pair for kind, pair in kinds.items() if kind != "numbers")
        raise PlanError(
            f"pairs: {kinds['numbers'].name} predicts numbers, which are not right or wrong, and {other.name} predicts "
            f"{other.predicts}; make two plans"
        )


def _included(name: str, folder: Path | None) -> tuple[Pair, ...]:
    own = (folder or Path()) / name
    try:
        return load(own if folder is not None and own.is_file() else name).pairs
    except PlanError as error:
        raise PlanError(f"include {name}: {error}") from None


def _methods(tables: Mapping[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    from qipf.study.plan.methods import KINDS

    if not tables:
        raise PlanError(f"methods: missing; name at least one, for instance [methods.{next(iter(KINDS))}]")
    methods = []
    for name, table in tables.items():
        where = f"methods.{name}"
        if not isinstance(table, dict):
            raise PlanError(f"{where}: expected a table of parameters, got {table!r}")
        kind = table.get("kind", name)
        if kind not in KINDS:
            key = f"{where}.kind" if "kind" in table else where
            raise PlanError(f"{key}: {kind!r} is not a method; {did_you_mean(kind, KINDS)}")
        params = {key: value for key, value in table.items() if key != "kind"}
        check_keys(params, KINDS[kind].parameters(), where, also=("kind", "seeds"))
        methods.append((name, kind, params))
    return methods
