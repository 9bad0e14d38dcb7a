"""One pair of a plan: a dataset and a network, with every setting checked and resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from qipf.study.plan.checks import PlanError, check_keys, did_you_mean, existing, expect, strings, whole
from qipf.study.plan.own_shifts import read_shifted
from qipf.study.plan.predicts import COVERAGE, read_coverage, read_predicts


@dataclass(frozen=True)
class Method:
    """One method of a pair.

    Attributes:
        name: its name in the tables.
        kind: which method it is, a name in `qipf.study.plan.methods.KINDS`.
        params: its parameters for the network of the pair.
        seeds: the base networks that it is measured on, for expensive methods; None for all of them.
    """

    name: str
    kind: str
    params: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None

    def measured_on(self, seed: int) -> bool:
        """Whether the method is measured on the base network with this seed."""
        return self.seeds is None or seed in self.seeds


@dataclass(frozen=True)
class Pair:
    """A dataset and a network with all settings resolved.

    Attributes:
        dataset: a name that `qipf.study.datasets.load` knows, or an .npz file with x_train, y_train, x_test, y_test,
            and perhaps x_held_out, y_held_out.
        net: a name that `qipf.study.nets.build` knows, or the name that the user's own model gets in the tables.
        model: the user's own model (`file.pt2`, `file.h5` or `module:callable`), or None.
        weights: a safetensors file for `module:callable`, or None.
        train: how networks are trained: the recipe of the pair (`qipf.study.recipes`) with the changes of the plan.
        seeds: the base networks. With a pool, member `seed` of the pool is the base network.
        pool: how many networks are trained and shared between base models and ensembles.
        shifts: intensities by shift name.
        severity: position in the documented grid (1 to 10) for each of `shifts`.
        test_size: number of test inputs that are evaluated, from the first (0: all).
        multi_pass_size: number of these that methods of several passes see, drawn at random once per dataset (0: all).
            All other methods are measured on them as well, and compared there.
        reference_size: number of training inputs that scorers are fitted on (0: all).
        calibration_size: number of inputs that are set apart for calibration and for choosing factors, so that no
            network sees them. They come from the training data or, for a model that was trained elsewhere, from the
            test data, which is then evaluated without them. Not used where the file has x_held_out.
        bootstrap: resamples for the intervals (0: none).
        out_of_distribution: other datasets whose inputs should get high uncertainty.
        methods: what is compared.
        shifted: files with shifted inputs of the user's own by name, one per severity; the names are in `shifts` too.
        predicts: what the user's own model predicts, one of `qipf.study.plan.predicts.PREDICTS`.
        coverage: of numbers, the probability with which each target is to be in its interval.
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
        """The name of the dataset in tables: for a file, its name without folder and suffix."""
        return Path(self.dataset).stem if self.dataset.endswith(".npz") else self.dataset

    @property
    def name(self) -> str:
        """The name of the pair in the progress display, "dataset/net"."""
        return f"{self.dataset_name}/{self.net}"


SETTINGS: dict[str, Any] = {
    "train": {},
    "seeds": [0],
    "pool": 0,
    "shifts": [],
    "shifted": {},
    "severities": list(range(1, 11)),
    "test_size": 0,
    "multi_pass_size": 0,
    "reference_size": 20000,
    "calibration_size": 1000,
    "bootstrap": 0,
    "out_of_distribution": [],
    "coverage": None,
}
PAIR = ("dataset", "net", "model", "weights", "predicts", *SETTINGS)
COUNTS = ("pool", "test_size", "multi_pass_size", "reference_size", "calibration_size", "bootstrap")


def read_pair(
    entry: Any,
    where: str,
    defaults: Mapping[str, Any],
    methods: list[tuple[str, str, dict[str, Any]]],
    folder: Path | None,
) -> Pair:
    """Check one entry of `[[pairs]]`. Settings that it leaves out come from `defaults`."""
    from qipf.study.plan.methods import KINDS

    if not isinstance(entry, dict):
        raise PlanError(f"{where}: expected a table, got {entry!r}")
    check_keys(entry, PAIR, where)
    values = {**SETTINGS, **defaults, **entry}
    dataset = _dataset(expect(values, "dataset", str, "", where), f"{where}.dataset", folder)
    net, model, weights = _network(values, where, folder)
    counts = {}
    for key in COUNTS:
        counts[key] = expect(values, key, int, 0, where)
        if counts[key] < 0:
            raise PlanError(f"{where}.{key}: expected a whole number >= 0, got {counts[key]}")
    seeds = whole(values, "seeds", where, 0)
    if counts["pool"] and max(seeds) >= counts["pool"]:
        raise PlanError(
            f"{where}.seeds: seed {max(seeds)} is not in a pool of {counts['pool']} (0 to {counts['pool'] - 1})"
        )
    shifts, severity = _shifts(values, where)
    shifted = read_shifted(values, where, folder)
    places = {name: tuple(range(1, len(files) + 1)) for name, files in shifted.items()}
    shifts |= {name: tuple(map(float, severities)) for name, severities in places.items()}
    train = _train(expect(values, "train", dict, {}, where), f"{where}.train", dataset, net, own=model is not None)
    chosen = tuple(_method(*method, net, seeds, where) for method in methods)
    for method in chosen:
        problem = KINDS[method.kind].problem(method, model, counts["pool"], folder)
        if problem:
            raise PlanError(f"methods.{method.name}{problem}")
    chosen = tuple(replace(m, params=KINDS[m.kind].resolve(m.params, folder)) for m in chosen)
    predicts = read_predicts(values, where, model, dataset, severity, chosen)
    return Pair(
        dataset=dataset,
        net=net,
        model=model,
        weights=weights,
        train=train,
        seeds=seeds,
        shifts=shifts,
        severity=severity | places,
        out_of_distribution=tuple(
            _dataset(name, f"{where}.out_of_distribution", folder)
            for name in strings(values, "out_of_distribution", where)
        ),
        methods=chosen,
        shifted=shifted,
        predicts=predicts,
        coverage=read_coverage(values, where, predicts),
        **counts,
    )


def dataset_names() -> tuple[str, ...]:
    """The datasets that a plan can name. Numbers need a model and data of the user's own, so regression is not one."""
    from qipf.study.datasets import NAMES

    return tuple(name for name in NAMES if name != "regression")


def net_names() -> tuple[str, ...]:
    """The networks that a plan can name."""
    from qipf.study.nets import NETS

    return tuple(name for name in NETS if name != "mlp-regression")


def _dataset(name: str, where: str, folder: Path | None) -> str:
    known = dataset_names()
    if not name:
        raise PlanError(f"{where}: missing; expected one of {', '.join(known)} or an .npz file")
    if name in known:
        return name
    if name.endswith(".npz"):
        return existing(name, folder, where)
    raise PlanError(f"{where}: {name!r} is not a dataset; {did_you_mean(name, known)}, or give an .npz file")


def _network(values: Mapping[str, Any], where: str, folder: Path | None) -> tuple[str, str | None, str | None]:
    known = net_names()
    model = values.get("model")
    weights = values.get("weights")
    net = expect(values, "net", str, "", where)
    if model is None:
        if weights is not None:
            raise PlanError(f"{where}.weights: can only be used together with `model`")
        if net not in known:
            raise PlanError(f"{where}.net: {net!r} is not a network; {did_you_mean(net, known)}, or give `model`")
        return net, None, None
    if not isinstance(model, str) or not (model.endswith((".pt2", ".h5")) or ":" in model):
        raise PlanError(f"{where}.model: expected 'file.pt2', 'file.h5' or 'module:callable', got {model!r}")
    if model.endswith((".pt2", ".h5")):
        if weights is not None:
            raise PlanError(f"{where}.weights: a {Path(model).suffix} file contains its own weights; remove `weights`")
        model = existing(model, folder, f"{where}.model")
    if weights is not None:
        weights = existing(weights, folder, f"{where}.weights")
    return net or Path(model).stem.replace(":", "."), model, weights


def _shifts(values: Mapping[str, Any], where: str) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[int, ...]]]:
    from qipf.study.shifts import FAMILIES

    severities = whole(values, "severities", where, 1)
    chosen = values["shifts"]
    if isinstance(chosen, list):
        chosen = {
            name: [FAMILIES[name][s - 1] for s in _on_grid(severities, where) if s <= len(FAMILIES[name])]
            if name in FAMILIES
            else []
            for name in chosen
        }
    if not isinstance(chosen, dict):
        raise PlanError(f"{where}.shifts: expected a list of names or a table of intensities, got {chosen!r}")
    shifts: dict[str, tuple[float, ...]] = {}
    severity: dict[str, tuple[int, ...]] = {}
    for name, intensities in chosen.items():
        if name not in FAMILIES:
            raise PlanError(f"{where}.shifts: {name!r} is not a shift; {did_you_mean(str(name), FAMILIES)}")
        numbers = isinstance(intensities, list) and all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in intensities
        )
        if not numbers or not intensities:
            raise PlanError(f"{where}.shifts.{name}: expected a list of intensities, got {intensities!r}")
        shifts[name] = tuple(float(value) for value in intensities)
        grid = [float(value) for value in FAMILIES[name]]
        on_grid = all(value in grid for value in shifts[name])
        severity[name] = tuple(grid.index(v) + 1 if on_grid else i + 1 for i, v in enumerate(shifts[name]))
    return shifts, severity


def _on_grid(severities: tuple[int, ...], where: str) -> tuple[int, ...]:
    if max(severities) > 10:
        raise PlanError(f"{where}.severities: expected positions 1 to 10, got {max(severities)}")
    return severities


def _train(train: Mapping[str, Any], where: str, dataset: str, net: str, *, own: bool) -> dict[str, Any]:
    """The recipe of the pair with the changes of the plan; empty for a user's model, which is not trained."""
    from qipf.study.recipes import Recipe, recipe

    if own and train:
        raise PlanError(f"{where}: your own model (`model`) is used as it is and is not trained; remove `train`")
    if own:
        return {}
    check_keys(train, [field.name for field in fields(Recipe)], where)
    return {**asdict(recipe(net, dataset)), **train}


def _method(name: str, kind: str, table: Mapping[str, Any], net: str, seeds: tuple[int, ...], where: str) -> Method:
    """A method with its parameters for one network. Its seeds are in the order of the pair's."""
    params = {key: _for_net(value, net, f"methods.{name}.{key}") for key, value in table.items()}
    if "seeds" not in params:
        return Method(name, kind, params)
    wanted = whole(params, "seeds", f"methods.{name}", 0)
    for seed in wanted:
        if seed not in seeds:
            there = ", ".join(map(str, seeds))
            raise PlanError(
                f"methods.{name}.seeds: {seed} is not a seed of {where} with the net {net}, which has {there}"
            )
    del params["seeds"]
    return Method(name, kind, params, tuple(seed for seed in seeds if seed in wanted))


def _for_net(value: Any, net: str, where: str) -> Any:
    if not isinstance(value, dict):
        return value
    if net in value:
        return value[net]
    if "default" in value:
        return value["default"]
    raise PlanError(f"{where}: a table by network needs an entry for {net!r} or `default`; it has {', '.join(value)}")
