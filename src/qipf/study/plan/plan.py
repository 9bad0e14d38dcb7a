"""Study plans: TOML files that are checked before anything runs.

A plan contains settings, one `[[pairs]]` table for each pair of a dataset and a network, and one `[methods.NAME]` table
for each method. A pair may override the settings. A method parameter that depends on the network is a table with one
entry per network. For example::

    name = "mine"
    seeds = [0, 1, 2]
    shifts = ["rotation", "zoom"]       # or a table of intensities: { rotation = [15, 90] }
    severities = [2, 5, 8]              # positions (1 to 10) in the grids of `qipf.study.shifts`
    shifted = { winter = ["dec.npz", "jan.npz"] }   # your own shifted inputs with labels, one file per severity

    [[pairs]]
    dataset = "mnist"
    net = "lenet"
    train = { epochs = 10 }

    [methods.mc-dropout]
    rate = { lenet = 0.1, default = 0.2 }

    [methods.svi]
    seeds = [0]                         # run an expensive method for only some of the seeds
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from qipf._common.errors import Problem
from qipf._common.printing import parse_toml
from qipf.study.datasets import NAMES
from qipf.study.nets import NETS
from qipf.study.plan.methods import (
    COVERAGE,
    MODEL_FILES,
    PREDICTS,
    PlanError,
    UnknownPlanError,
    check_fits,
    check_keys,
    check_method,
    decoded,
    did_you_mean,
    existing,
    msgspec,
    parameters,
)
from qipf.study.plan.registry import KINDS
from qipf.study.recipes import Recipe, recipe
from qipf.study.shifts import FAMILIES

__all__ = ["Method", "Pair", "Plan", "PlanError", "UnknownPlanError", "load", "parse", "shipped"]

DATASETS = tuple(name for name in NAMES if name != "regression")
"""Datasets that a plan can name; regression requires the user's own model and data."""
NETWORKS = tuple(name for name in NETS if name != "mlp-regression")
TAKEN = ("clean", "held-out", "none", "perturbed", "reference", *FAMILIES)
"""Reserved names of groups of inputs, which cannot be used in `shifted`."""
COUNTS = ("pool", "test_size", "multi_pass_size", "reference_size", "calibration_size", "bootstrap")

Natural = Annotated[int, msgspec.Meta(ge=0)]
Severity = Annotated[int, msgspec.Meta(ge=1, le=10)]
Probability = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Some = msgspec.Meta(min_length=1)


class Settings(msgspec.Struct, kw_only=True):
    """Settings of a pair, or defaults for all pairs in a plan."""

    train: dict[str, Any] = msgspec.field(default_factory=dict)
    seeds: Annotated[list[Natural], Some] = msgspec.field(default_factory=lambda: [0])
    pool: Natural = 0
    shifts: list[str] | dict[str, Any] = msgspec.field(default_factory=list)
    shifted: dict[str, Any] = msgspec.field(default_factory=dict)
    severities: Annotated[list[Severity], Some] = msgspec.field(default_factory=lambda: list(range(1, 11)))
    test_size: Natural = 0
    multi_pass_size: Natural = 0
    reference_size: Natural = 20000
    calibration_size: Natural = 1000
    bootstrap: Natural = 0
    out_of_distribution: list[str] = msgspec.field(default_factory=list)
    coverage: Probability | None = None


class PairTable(Settings, kw_only=True):
    """An entry of `[[pairs]]`."""

    dataset: str = ""
    net: str = ""
    model: str | None = None
    weights: str | None = None
    predicts: str | None = None
    task: str | None = None


class PlanTable(Settings, kw_only=True):
    """The top-level table of a plan."""

    name: str = ""
    description: str = ""
    include: list[str] = msgspec.field(default_factory=list)
    pairs: list[Any] = msgspec.field(default_factory=list)
    methods: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """One method of a pair.

    Attributes:
        name: Name in tables.
        kind: A key of `qipf.study.plan.registry.KINDS`.
        params: Parameters for the pair's network.
        seeds: Seeds of the base networks on which to measure the method; None for all.
    """

    name: str
    kind: str
    params: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None

    def measured_on(self, seed: int) -> bool:
        """Return True if the method is measured on the base network with this seed."""
        return self.seeds is None or seed in self.seeds


@dataclass(frozen=True)
class Pair:
    """A dataset and a network, with all settings resolved.

    Attributes:
        dataset: A name in `DATASETS`, or the path of an .npz file.
        net: A name in `NETWORKS`, or a name for the user's own model.
        model: The user's own model (`module:callable`, or a file with a suffix in `MODEL_FILES`).
        weights: A safetensors file for `module:callable`.
        train: Training recipe; empty for the user's own model.
        seeds: Seeds of the base networks or, with a pool, indices into it.
        pool: Size of the pool of base networks and ensemble members; 0 for no pool.
        shifts: Intensities of each shift, keyed by name.
        severity: Severities of each shift, keyed by name: 1-based positions of its intensities in the standard grid
            if the grid contains all of them, otherwise in `shifts`.
        test_size: Number of inputs to evaluate, from the start of the test set; 0 for all.
        multi_pass_size: Number of these inputs, drawn at random, for multi-pass methods; 0 for all.
        reference_size: Number of training inputs for fitting scorers; 0 for all.
        calibration_size: Number of inputs to hold out (see `qipf.study.run.study_data.held_out_of`); unused if the
            dataset file contains x_held_out.
        bootstrap: Number of resamples for confidence intervals; 0 for none.
        out_of_distribution: Datasets whose inputs should receive high uncertainty scores.
        shifted: Files with the user's own shifted inputs, one per severity, keyed by shift.
        predicts: A key of `qipf.study.plan.methods.PREDICTS`.
        coverage: Target coverage of prediction intervals.
    """

    dataset: str
    net: str
    model: str | None
    weights: str | None
    train: Mapping[str, Any]
    seeds: tuple[int, ...]
    pool: int
    shifts: Mapping[str, tuple[float, ...]]
    severity: Mapping[str, tuple[int, ...]]
    test_size: int
    multi_pass_size: int
    reference_size: int
    calibration_size: int
    bootstrap: int
    out_of_distribution: tuple[str, ...]
    methods: tuple[Method, ...]
    shifted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    predicts: str = "classes"
    coverage: float = COVERAGE

    @property
    def dataset_name(self) -> str:
        """Name of the dataset in tables; for a file, its stem."""
        return Path(self.dataset).stem if self.dataset.endswith(".npz") else self.dataset

    @property
    def name(self) -> str:
        """Name of the pair, "dataset/net"."""
        return f"{self.dataset_name}/{self.net}"

    def grid(self, group: str) -> tuple[float, ...]:
        """Return the intensities of a group; (0.0,) for unshifted inputs."""
        return self.shifts.get(group, (0.0,))

    def condition(self, group: str, place: int) -> tuple[float, int]:
        """Return the intensity and the severity at a position in the grid of a group."""
        return self.grid(group)[place], self.severity.get(group, (0,))[place]


@dataclass(frozen=True)
class Plan:
    """A validated plan."""

    name: str
    description: str
    pairs: tuple[Pair, ...]

    def __post_init__(self) -> None:
        """Check the name of the plan, which becomes part of the folder name "bench-NAME"."""
        name = self.name
        fine = name.isprintable() and name == name.strip() and not set(name) & set("/\\")
        if not fine or name[:1] in ("", ".", "-") or len(name) > 100:
            raise PlanError(
                "name: expected 1 to 100 printable characters, with no / or \\, no space at either end, and no . or - "
                f"at the start; got {name!r}"
            )

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Plan:
        """Create a plan from the values of `as_json`."""
        return msgspec.convert(values, Plan)


def shipped() -> tuple[str, ...]:
    """Return the names of the shipped plans."""
    files = resources.files("qipf.study.plan.plans").iterdir()
    return tuple(sorted(file.name[:-5] for file in files if file.name.endswith(".toml")))


def load(plan: str | Path) -> Plan:
    """Read a shipped plan by name, or a TOML file.

    Raises:
        UnknownPlanError: There is no such plan.
        PlanError: The file is not a valid plan.
    """
    name, path, folder = str(plan), Path(plan), None
    if name in shipped():
        content = resources.files("qipf.study.plan.plans").joinpath(f"{name}.toml").read_bytes()
    elif path.is_file():
        content, folder = path.read_bytes(), path.parent
    else:
        raise UnknownPlanError(
            f"there is no plan {name!r} and no TOML file with this name; {did_you_mean(name, shipped())}"
        )
    try:
        values = parse_toml(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise PlanError(f"not valid TOML: the file is not UTF-8 ({error.reason})") from None
    except Problem as problem:
        raise PlanError(problem.message) from None
    return parse(values, folder=folder)


def parse(values: Mapping[str, Any], *, folder: Path | None = None) -> Plan:
    """Create a plan from the values of a TOML file; relative paths are resolved against `folder`.

    Raises:
        PlanError: A key is invalid.
    """
    table: PlanTable = decoded(values, PlanTable)
    if not table.name:
        raise PlanError("name: missing; add a name for the plan")
    pairs: list[Pair] = []
    for name in table.include:
        own = (folder or Path()) / name
        try:
            pairs += load(own if folder is not None and own.is_file() else name).pairs
        except PlanError as error:
            raise PlanError(f"include {name}: {error}") from None
    if table.pairs:
        methods = _methods(table.methods)
        common = {name: value for name, value in values.items() if name in Settings.__struct_fields__}
        pairs += [_pair(entry, f"pairs[{i}]", common, methods, folder) for i, entry in enumerate(table.pairs)]
    if not pairs:
        raise PlanError("pairs: missing; add a [[pairs]] table with `dataset` and `net`, or an `include`")
    _check_together(pairs)
    return Plan(table.name, table.description, tuple(pairs))


def _check_together(pairs: list[Pair]) -> None:
    """Raise PlanError if two pairs have the same name, or if the plan combines regression with other tasks."""
    named: dict[str, Pair] = {}
    for pair in pairs:
        other = named.setdefault(pair.name, pair)
        if other is not pair:
            raise PlanError(
                f"pairs: two pairs ({other.dataset} and {pair.dataset}) would both appear as {pair.name} in tables; "
                "remove one, rename its dataset file, or set another `net`"
            )
    tasks = {pair.predicts: pair for pair in pairs}
    if "numbers" in tasks and len(tasks) > 1:
        other = next(pair for task, pair in tasks.items() if task != "numbers")
        raise PlanError(
            f"pairs: {tasks['numbers'].name} predicts numbers, but {other.name} predicts {other.predicts}; "
            "use separate plans"
        )


def _methods(tables: Mapping[str, Any]) -> list[Method]:
    """Return the methods of a plan; a parameter may still be a table with one entry per network."""
    if not tables:
        raise PlanError(f"methods: missing; add at least one, for example [methods.{next(iter(KINDS))}]")
    methods = []
    for name, given in tables.items():
        where = f"methods.{name}"
        params = dict(decoded(given, dict[str, Any], where))
        key = f"{where}.kind" if "kind" in params else where
        kind = params.pop("kind", name)
        if kind not in KINDS:
            raise PlanError(f"{key}: {kind!r} is not a method; {did_you_mean(str(kind), KINDS)}")
        check_keys(params, [*parameters(kind), "kind", "seeds"], where)
        methods.append(Method(name, kind, params))
    return methods


def _pair(entry: Any, where: str, common: dict[str, Any], methods: list[Method], folder: Path | None) -> Pair:
    """Create a pair from an entry of `[[pairs]]`; missing settings are taken from the plan."""
    table: PairTable = decoded(common | decoded(entry, dict[str, Any], where), PairTable, where)
    dataset = _dataset(table.dataset, f"{where}.dataset", folder)
    net, model, weights = _network(table, where, folder)
    seeds = _distinct(table.seeds, f"{where}.seeds")
    if table.pool and max(seeds) >= table.pool:
        raise PlanError(f"{where}.seeds: expected seeds below {table.pool} (the size of the pool), got {max(seeds)}")
    shifts, severity = _shifts(table.shifts, _distinct(table.severities, f"{where}.severities"), where)
    shifted = {name: _files(name, files, f"{where}.shifted.{name}", folder) for name, files in table.shifted.items()}
    places = {name: tuple(range(1, len(files) + 1)) for name, files in shifted.items()}
    others = tuple(_dataset(name, f"{where}.out_of_distribution", folder) for name in table.out_of_distribution)
    pair = Pair(
        dataset=dataset,
        net=net,
        model=model,
        weights=weights,
        train=_train(table.train, f"{where}.train", dataset, net, own=model is not None),
        seeds=seeds,
        shifts=shifts | {name: tuple(map(float, severities)) for name, severities in places.items()},
        severity=severity | places,
        out_of_distribution=others,
        methods=tuple(_method(method, net, seeds, where, model, table.pool, folder) for method in methods),
        shifted=shifted,
        predicts=_predicts(table, where),
        coverage=table.coverage or COVERAGE,
        **{name: getattr(table, name) for name in COUNTS},
    )
    check_fits(pair, where, coverage=table.coverage)
    return pair


def _predicts(table: PairTable, where: str) -> str:
    key = "task" if table.task is not None else "predicts"
    chosen = getattr(table, key) or "classes"
    if chosen not in PREDICTS:
        raise PlanError(f"{where}.{key}: {chosen!r} is not a task; {did_you_mean(chosen, PREDICTS)}")
    if table.predicts not in (None, chosen):
        raise PlanError(f"{where}.task: {chosen!r} contradicts predicts = {table.predicts!r}; remove one of them")
    return chosen


def _distinct(numbers: list[int], where: str) -> tuple[int, ...]:
    if len(set(numbers)) < len(numbers):
        raise PlanError(f"{where}: expected a list of distinct integers, got {numbers!r}")
    return tuple(numbers)


def _dataset(name: str, where: str, folder: Path | None) -> str:
    if not name:
        raise PlanError(f"{where}: missing; expected one of {', '.join(DATASETS)} or an .npz file")
    if name in DATASETS:
        return name
    if name.endswith(".npz"):
        return existing(name, folder, where)
    raise PlanError(f"{where}: {name!r} is neither a dataset nor an .npz file; {did_you_mean(name, DATASETS)}")


def _network(table: PairTable, where: str, folder: Path | None) -> tuple[str, str | None, str | None]:
    net, model, weights = table.net, table.model, table.weights
    if model is None:
        if weights is not None:
            raise PlanError(f"{where}.weights: requires `model`; set `model`, or remove `weights`")
        if net not in NETWORKS:
            raise PlanError(
                f"{where}.net: {net!r} is not a network, and `model` is not set; {did_you_mean(net, NETWORKS)}"
            )
        return net, None, None
    if model.endswith(MODEL_FILES):
        if weights is not None:
            raise PlanError(f"{where}.weights: a {Path(model).suffix} file contains its own weights; remove `weights`")
        model = existing(model, folder, f"{where}.model")
    elif ":" not in model:
        known = ", ".join(f"'file{ending}'" for ending in MODEL_FILES)
        raise PlanError(f"{where}.model: expected {known} or 'module:callable', got {model!r}")
    if weights is not None:
        weights = existing(weights, folder, f"{where}.weights")
    return net or Path(model).stem.replace(":", "."), model, weights


def _shifts(
    chosen: list[str] | dict[str, Any], severities: tuple[int, ...], where: str
) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[int, ...]]]:
    """Return the intensities and the severities of every shift."""
    shifts: dict[str, tuple[float, ...]] = {}
    severity: dict[str, tuple[int, ...]] = {}
    for name in chosen:
        if name not in FAMILIES:
            raise PlanError(f"{where}.shifts: {name!r} is not a shift; {did_you_mean(name, FAMILIES)}")
        grid = [float(value) for value in FAMILIES[name]]
        if isinstance(chosen, dict):
            intensities = decoded(chosen[name], Annotated[list[float], Some], f"{where}.shifts.{name}")
        else:
            intensities = [grid[number - 1] for number in severities if number <= len(grid)]
        shifts[name] = tuple(map(float, intensities))
        on_grid = all(value in grid for value in shifts[name])
        severity[name] = tuple(grid.index(v) + 1 if on_grid else i + 1 for i, v in enumerate(shifts[name]))
    return shifts, severity


def _files(name: str, given: Any, where: str, folder: Path | None) -> tuple[str, ...]:
    """Return the absolute paths of a user's shifted files, in order of severity."""
    if name in TAKEN or ":" in name or not name.isprintable() or name != name.strip() or not name:
        raise PlanError(f"{where}: this name is reserved or cannot be shown in tables; choose another name")
    found: str | list[str] = decoded(given, str | Annotated[list[str], Some], where)
    files = [found] if isinstance(found, str) else found
    for file in files:
        if not file.endswith(".npz"):
            raise PlanError(f"{where}: expected .npz files with x and y, got {file!r}")
    return tuple(existing(file, folder, where) for file in files)


def _train(train: Mapping[str, Any], where: str, dataset: str, net: str, *, own: bool) -> dict[str, Any]:
    """Return the training recipe with the changes made in the plan, or {} for the user's own model."""
    if own and train:
        raise PlanError(f"{where}: the study does not train your own model (`model`); remove `train`")
    if own:
        return {}
    check_keys(train, [field.name for field in fields(Recipe)], where)
    return {**asdict(recipe(net, dataset)), **train}


def _method(
    method: Method, net: str, seeds: tuple[int, ...], where: str, model: str | None, pool: int, folder: Path | None
) -> Method:
    """Return a method with its parameters for one network."""
    key = f"methods.{method.name}"
    params = {name: _for_net(value, net, f"{key}.{name}") for name, value in method.params.items()}
    wanted = None
    if "seeds" in params:
        wanted = _distinct(decoded(params.pop("seeds"), Annotated[list[Natural], Some], f"{key}.seeds"), f"{key}.seeds")
        for seed in wanted:
            if seed not in seeds:
                there = ", ".join(map(str, seeds))
                raise PlanError(f"{key}.seeds: {seed} is not a seed of {where} (net {net}), whose seeds are {there}")
        wanted = tuple(seed for seed in seeds if seed in wanted)
    return replace(method, params=check_method(method.kind, params, key, model, pool, folder), seeds=wanted)


def _for_net(value: Any, net: str, where: str) -> Any:
    if not isinstance(value, dict):
        return value
    if net not in value and "default" not in value:
        found = ", ".join(value) or "none"
        raise PlanError(f"{where}: expected an entry for the network {net!r} or `default`, got {found}")
    return value.get(net, value.get("default"))
