"""Functions that the cells of a study run: train or load a network, fit a method, predict, score and measure times.

If a model makes several predictions per input, only their correctness is stored: all labels and correct predictions are
stored as 0, and wrong predictions as 1. The array `groups` contains the index of each prediction's input, because
predictions for the same input are not independent.
"""

from __future__ import annotations

import time as clock
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from qipf import training
from qipf.arrays import to_numpy
from qipf.data.tables import check_values, csv_columns
from qipf.scores import SoftmaxResponse
from qipf.scores.base import check_rows
from qipf.scores.default import default
from qipf.study.plan import methods
from qipf.study.plan.methods import check_keys
from qipf.study.plan.registry import TRAINED
from qipf.study.run import own_model, study_data
from qipf.study.run.graph import Context, Parents, Result
from qipf.study.run.maps import SUFFIX, map_some
from qipf.study.run.measure import ERROR, SCORES, numbers_of
from qipf.study.run.store import ARRAYS
from qipf.study.run.study_data import Group, StudyData, common_rows
from qipf.tasks.collect import collect
from qipf.tasks.outputs import Outputs
from qipf.tasks.perturb import Perturber
from qipf.tasks.task import Task
from qipf.training.loop import Split

BATCH_NORM_INPUTS = 10000
"""Maximum number of training inputs from which SWAG computes batch-norm statistics for each sample of the weights."""
SOME = {True: 500, False: 64}
"""Maximum number of inputs on which a model is tried; the key is True if the model makes one prediction per input."""
SEEN = 0.5
"""A regression model was probably trained on x_train if its error there is below this fraction of its test error."""
MOST = 10_000
"""Maximum number of tokens or pixels per set of inputs; if there are more, a random sample is scored."""

_CACHE: dict[str, OrderedDict[Any, Any]] = {}
_LARGEST = {"network": 2, "scorer": 16, "many": 1, "outputs": 3}


def cached(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return the cached result of `make()`; a few results per kind (`key[0]`) are kept."""
    kept = _CACHE.setdefault(key[0], OrderedDict())
    if key not in kept:
        while len(kept) >= _LARGEST[key[0]]:
            kept.popitem(last=False)  # before `make()`, so that both results need not fit in memory
        kept[key] = make()
    kept.move_to_end(key)
    return kept[key]


# --- networks ----------------------------------------------------------------------------------------------------


def train(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Train one network; on the CPU, save a checkpoint after every epoch."""
    del parents
    data = data_of(context, params)
    net = study_data.new_network(params["net"], data, params["seed"])
    checkpoint = context.store.scratch(context.key, ARRAYS) if params["device"] == "cpu" else None
    settings = {**params["train"], "seed": params["seed"], "device": params["device"]}
    training.train(net, data.train, **settings, checkpoint=checkpoint, cuda_graph=True, progress=False)
    arrays = {name: to_numpy(tensor) for name, tensor in net.state_dict().items()}
    return Result({"accuracy": training.accuracy(net, data.test)}, arrays)


def model(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Load the user's own model and try it on a few inputs."""
    del parents
    data, given = data_of(context, params), params["data"]
    net = own_model.load(params["model"], params["weights"], params["digests"])
    notes = study_data.notes_of(data)
    if given["held_out_of"] == "test" and not study_data.brings_held_out(
        given["dataset"], given["digest"], data.predicts
    ):
        notes.insert(
            0,
            f"{len(data.held_out.inputs)} test inputs are used for calibration instead of evaluation, because the "
            "model may have seen all training data; to evaluate all test inputs, use an .npz file that contains "
            "x_held_out and y_held_out",
        )
    if data.predicts == "numbers":
        known, new = (mean_error(net, part, given["dataset"]) for part in (data.train, data.test))
        if known < SEEN * new:
            notes.append(
                f"the mean absolute error is {known:.3g} on x_train and {new:.3g} on the test data: the model was "
                "probably trained on x_train, to which scales are fitted; choose an x_train that the model has not seen"
            )
        return Result({"note": "; ".join(notes)})
    one = data.task.independent
    some = study_data.first if one else partial(study_data.some_labelled, predicts=data.predicts)
    few = some(data.test, SOME[one])
    right = to_numpy(read_rows(data, net, few, features=False).correct)
    return Result({"accuracy": float(np.mean(right)), "note": "; ".join(notes)})


def mean_error(net: Any, split: Split, where: str) -> float:
    """Return the mean absolute error of a regression model on the first `SOME[True]` inputs."""
    few = study_data.first(split, SOME[True])
    predicted = collect(net, few.inputs, task="numbers", features=False, progress=False).logits
    check_numbers(predicted, few.targets, where)
    return float(np.mean(np.abs(to_numpy(few.targets).reshape(predicted.shape) - to_numpy(predicted))))


def check_numbers(predicted: Any, targets: Any, where: object) -> None:
    """Raise ValueError unless there is one finite prediction per target."""
    wanted = targets.shape[1] if targets.ndim == 2 else 1
    if predicted.shape[1] != wanted:
        raise ValueError(
            f"{where}: expected a model that predicts {wanted} value{'s' if wanted > 1 else ''} per input, got "
            f"{predicted.shape[1]}; for a classifier, remove `predicts` and store the classes as integers"
        )
    check_rows(predicted, f"{where}: predictions")


def network_of(context: Context, parent: Mapping[str, str]) -> tuple[nn.Module, StudyData, str]:
    """Return the network of a finished cell, with its data and its device."""
    return cached(("network", parent["key"]), lambda: _load_network(context, parent))


def _load_network(context: Context, parent: Mapping[str, str]) -> tuple[Any, StudyData, str]:
    params = context.record(parent)["params"]
    data, device = data_of(context, params), params["device"]
    if parent["kind"] == "model":
        net = own_model.load(params["model"], params["weights"], params["digests"])
        return (net if params["model"].endswith(methods.ONE_PASS_FILES) else net.to(device)), data, device
    net = study_data.new_network(params["net"], data, params["seed"])
    net.load_state_dict({name: torch.from_numpy(array) for name, array in context.arrays(parent).items()})
    net = net.to(device).eval()
    if device == "cuda" and data.test.inputs.ndim == 4:
        net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return net, data, device


def data_of(context: Context, params: Mapping[str, Any]) -> StudyData:
    """Return the data of a cell."""
    return study_data.load_data(folder=context.data, device=params["device"], **params["data"])


# --- methods -----------------------------------------------------------------------------------------------------


def fit(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Fit a scorer or a multi-pass method."""
    if methods.is_fitted_passes(params["kind"]):
        return _fit_many(context, params, parents)
    net, data, device = network_of(context, parents["network"])
    settings, note = params["settings"], ""
    if params["kind"] == "default":
        size = params["reference_size"]
        # except for classification, use the first inputs, so that all scorers are fitted to the same inputs
        split = data.train if data.predicts == "classes" else study_data.first(data.train, size)
        settings = {**settings, "size": size or None} if data.predicts == "classes" else settings
        scorer: Any = default(net, split, task=data.task, device=_run_on(net, device), progress=False, **settings)
    else:
        scorer = methods.build(params["kind"], settings)
        size = 0 if params["fit_on"] == "held-out" else params["reference_size"]
        outputs = _rows(context, parents["network"], Group(params["fit_on"], (0.0,), size), scorer.layers)[0]
        try:
            scorer.fit(net, outputs)
        except ValueError as error:
            if getattr(scorer, "factor", None) != "cv":
                raise
            from qipf.scores.weight_qipf import UNLABELLED_FACTOR

            note = f"used factor {UNLABELLED_FACTOR:g}: {error}"
            scorer = methods.build(params["kind"], {**settings, "factor": UNLABELLED_FACTOR}).fit(net, outputs)
    path = context.store.scratch(context.key, ".qipf")
    scorer.save(path)
    found = {key: value for key, value in scorer.fitted.facts.items() if isinstance(value, int | float | str)}
    facts = {"note": note or found.pop("note", ""), "facts": found}
    return Result(facts, files={".qipf": path.read_bytes()})


def _fit_many(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    data, settings = data_of(context, params), dict(params["settings"])
    if "network" not in parents:
        start: Any = partial(study_data.new_network, params["net"], data)
        if params["device"] == "cpu":
            settings["checkpoint"] = context.store.scratch(context.key, ARRAYS)
    else:
        start = network_of(context, parents["network"])[0]
    if params["kind"] in TRAINED and parents.get("network", {}).get("kind") != "model":
        settings["cuda_graph"] = True  # the control flow of the study's networks does not depend on the data
    method = methods.build(params["kind"], settings)
    method.fit(start, data.train, seed=params["seed"], device=params["device"], progress=False)
    return Result({"passes": method.passes}, {name: to_numpy(tensor) for name, tensor in method.state().items()})


def scorer_of(context: Context, parent: Mapping[str, str]) -> Any:
    """Return a fitted scorer."""
    return cached(("scorer", parent["key"]), lambda: context.store.scorer(parent["kind"], parent["key"]))


def many_of(context: Context, params: Mapping[str, Any], parents: Parents) -> Any:
    """Return a fitted multi-pass method, or an ensemble of trained networks."""
    keys = tuple(parents[role]["key"] for role in sorted(parents) if role != "base")
    return cached(("many", *keys), lambda: _load_many(context, params, parents))


def _load_many(context: Context, params: Mapping[str, Any], parents: Parents) -> Any:
    net, data, _ = network_of(context, parents["network"])
    if params["kind"] == "ensemble":
        from qipf.predictive.ensemble import DeepEnsemble

        count = sum(role.startswith("member") for role in parents)
        members = [context.arrays(parents[f"member{k}"]) for k in range(count)]
        state = {f"members.{name}": torch.from_numpy(np.stack([m[name] for m in members])) for name in members[0]}
        state |= {"example": data.train.inputs[:2].cpu(), "classes": torch.tensor(True)}
        return DeepEnsemble(len(members)).load_state(net, state)
    method = methods.build(params["kind"], context.record(parents["fit"])["params"]["settings"])
    state = {name: torch.from_numpy(array) for name, array in context.arrays(parents["fit"]).items()}
    return method.load_state(net, state, study_data.first(data.train, BATCH_NORM_INPUTS))


# --- predictions and scores --------------------------------------------------------------------------------------


def base(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Compute the predictions for the inputs of a group at all its intensities."""
    found, predicts = _rows(context, parents["network"], group_of(params)), _predicts(context, parents)
    arrays: dict[str, np.ndarray] = {}
    if predicts == "numbers":
        for place, outputs in enumerate(found):
            check_numbers(outputs.logits, outputs.labels, params["group"]["name"])
            arrays[f"predicted/{place}"] = to_numpy(outputs.logits).astype(np.float64)
            arrays["targets"] = to_numpy(outputs.labels).astype(np.float64).reshape(outputs.logits.shape)
        return Result({ERROR: [numbers_of(arrays, {}, place).error for place in range(len(found))]}, arrays)
    several = predicts != "classes"
    for place, outputs in enumerate(found):
        predicted = ~to_numpy(outputs.correct) if several else to_numpy(outputs.predicted)
        labels = np.zeros(len(predicted), np.int16) if several else to_numpy(outputs.labels).astype(np.int16)
        if len(predicted) != len(arrays.setdefault("labels", labels)):
            raise ValueError(
                f"{params['group']['name']}: expected the same number of labelled predictions at every severity, got "
                f"{len(arrays['labels'])} and {len(predicted)}"
            )
        arrays[f"predicted/{place}"] = predicted.astype(np.int16)
        arrays[f"error_probability/{place}"] = _float32(SoftmaxResponse()(outputs))
    if several:
        arrays["groups"] = to_numpy(found[0].groups).astype(np.int32)
    accuracy = [float(np.mean(arrays[f"predicted/{i}"] == arrays["labels"])) for i in range(len(found))]
    return Result({"accuracy": accuracy}, arrays)


def score(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Score the predictions for a group at all its intensities."""
    if params["kind"] == "scores":
        with own_model.unchanged(params["file"], params["digest"]):
            return Result({}, read_scores(params, context.arrays(parents["base"])))
    fitted = "fit" in parents and not methods.is_many(params["kind"])
    scorer: Any = scorer_of(context, parents["fit"]) if fitted else None
    group, predicts = group_of(params), _predicts(context, parents)
    if not fitted and predicts != "numbers":
        return _score_many(context, params, parents)
    layers = () if scorer is None or predicts != "classes" else scorer.layers
    found = _rows(context, parents["network"], group, layers, params.get("features"))
    arrays: dict[str, np.ndarray] = {}
    for place, outputs in enumerate(found):
        if predicts != "numbers":
            arrays[f"score/{place}"] = _float32(scorer(outputs))  # pyright: ignore[reportOptionalCall]
        elif scorer is None:  # intervals of constant width
            arrays |= {f"scale/{place}": np.ones(outputs.logits.shape), f"score/{place}": np.zeros(len(outputs))}
        else:
            arrays[f"scale/{place}"] = to_numpy(scorer.scales(outputs)).astype(np.float64)
            arrays[f"score/{place}"] = to_numpy(scorer(outputs)).astype(np.float64)
    if "maps" not in params:
        return Result({}, arrays)
    net, data, device = network_of(context, parents["network"])
    place = len(found) // 2
    split = study_data.inputs_of(data, group, place, context.data, device)
    kept = map_some(
        net, split, found[place], arrays[f"score/{place}"], scorer, params.get("features"), _run_on(net, device)
    )
    return Result({"maps_place": place}, arrays, {SUFFIX: kept.as_bytes()})


def _predicts(context: Context, parents: Parents) -> str:
    return network_of(context, parents["network"])[1].predicts


def _score_many(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    method = many_of(context, params, parents)
    _, data, device = network_of(context, parents["network"])
    group = group_of(params)
    predicted = context.arrays(parents["base"])
    arrays: dict[str, np.ndarray] = {}
    for some in _together(data, group):
        x = torch.cat([study_data.inputs_of(data, group, i, context.data, device).inputs for i in some])
        rows = len(x) // len(some)
        kept = common_rows(len(predicted["labels"]), group.subset)
        chosen = np.concatenate([predicted[f"predicted/{i}"][kept] for i in some]).astype(np.int64)
        found = _summarise(method, x, torch.from_numpy(chosen).to(device), params["seed"])
        for place, i in enumerate(some):
            part = slice(place * rows, (place + 1) * rows)
            for name, statistic in SCORES.items():
                if getattr(found, statistic) is not None:
                    arrays[f"{name}/{i}"] = _float32(getattr(found, statistic)[part])
            arrays[f"predicted/{i}"] = to_numpy(found.predicted[part]).astype(np.int16)
            arrays[f"error_probability/{i}"] = _float32(1 - found.mean[part].amax(1).clamp(max=1))
    return Result({"passes": method.passes}, arrays)


def _summarise(method: Any, x: Tensor, predicted: Tensor, seed: int) -> Any:
    """Summarise the passes; on a GPU, use half precision unless a value overflows."""
    settings: dict[str, Any] = {"seed": seed, "base_classes": predicted, "progress": False}
    if x.device.type == "cuda":  # changes ROC-AUC by < 0.001; see docs/reproduction-tables.md, "What was run"
        settings |= {"batch_size": max(1000, 2**23 // x[0].numel()), "memory": 2**33}
        with torch.autocast("cuda", dtype=torch.float16):
            found = method.summarise(x, **settings)
        if bool(torch.isfinite(found.mean).all()):
            return found
    return method.summarise(x, **settings)


def _together(data: StudyData, group: Group) -> list[list[int]]:
    """Combine intensities of a group into batches of at most 512 MiB, because SWAG samples weights for every batch."""
    rows = min(n for n in (group.size, group.subset, len(data.test.inputs)) if n)
    most = max(1, 2**29 // max(1, 4 * rows * data.test.inputs[0].numel()))
    places = list(range(len(group.intensities)))
    return [places[start : start + most] for start in range(0, len(places), most)]


def _rows(
    context: Context, network: Mapping[str, str], group: Group, layers: tuple[str, ...] = (), features: Any = None
) -> list[Any]:
    """Return the outputs at every intensity of a group, and cache them for the next cell of the task."""

    def read() -> list[Outputs]:
        net, data, device = network_of(context, network)
        return [
            read_rows(data, net, split, layers=layers, features=features, device=device)
            for split in _splits(data, group, context.data, device)
        ]

    return cached(("outputs", network["key"], group, layers, features), read)


def _splits(data: StudyData, group: Group, folder: str | None, device: str) -> Any:
    if group.name not in ("reference", "perturbed"):
        places = range(len(group.intensities))
        return (study_data.inputs_of(data, group, i, folder, device) for i in places)  # one in memory at a time
    split = study_data.first(data.train, group.size)
    if group.name == "reference":
        return [split]
    drawn = Perturber(torch.Generator(split.inputs.device).manual_seed(0))(split.inputs)
    return [Split(torch.cat([split.inputs, drawn]), torch.cat([split.targets, split.targets]))]


def read_rows(
    data: StudyData, net: Any, split: Split, *, layers: tuple[str, ...] = (), features: Any = None, device: Any = None
) -> Outputs:
    """Return the outputs for labelled inputs; if there are more than `MOST` tokens or pixels, use a random sample."""
    device = _run_on(net, device)
    store = (device or "cpu") if data.task.independent else "cpu"
    read: dict[str, Any] = {"layers": layers, "features": features, "device": device, "store": store}
    return collect(net, split, task=data.task, most=MOST if data.task.whole else None, progress=False, **read)


def _run_on(net: Any, device: str | None) -> str | None:
    """Return the device, or None for a model that chooses its own because it is not a torch module."""
    return device if isinstance(net, nn.Module) else None


def group_of(params: Mapping[str, Any]) -> Group:
    """Return the group in the parameters of a cell."""
    found: dict[str, Any] = params["group"]
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return Group(**given)


def _float32(values: Any) -> np.ndarray:
    return to_numpy(values.float() if isinstance(values, Tensor) else values).astype(np.float32)


# --- scores from a file -------------------------------------------------------------------------------------------

SCORE_KEYS = ("dataset", "net", "seed", "shift", "severity")


def read_scores(params: Mapping[str, Any], base: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Read the scores of one group from a CSV file, keyed by `score/0`, `score/1` and so on.

    The file has the columns `score` (higher is less certain) and `index` (of the evaluated input). The optional columns
    `dataset`, `net`, `seed`, `shift` ("clean", "held-out", a shift, or "ood:" followed by a dataset) and `severity`
    restrict a row to certain conditions. Conditions without rows are omitted.

    Raises:
        ValueError: The file is invalid, or lacks some scores of a condition.
    """
    file, count = params["file"], len(base["labels"])
    columns = csv_columns(file, Path(file))
    check_keys(columns, (*SCORE_KEYS, "index", "score"), f"{Path(file).name}, columns")
    for needed in ("index", "score"):
        if needed not in columns:
            raise ValueError(f"{file}: expected a column {needed!r}, got {', '.join(columns) or 'no columns'}")
    found: dict[str, np.ndarray] = {}
    for i, severity in enumerate(params["severity"]):
        wanted = {**params["where"], "shift": params["group"]["name"], "severity": severity}
        here = np.arange(len(columns["index"]))
        for key, value in wanted.items():
            if key in columns:
                given = columns[key].astype(str) if isinstance(value, str) else _numbers(columns[key], key, file)
                here = here[given[here] == value]
        index, values = (_numbers(columns[name], name, file, here) for name in ("index", "score"))
        outside = here[~np.isin(index, np.arange(count))]
        if len(outside):
            there = columns["index"][outside[0]]
            raise ValueError(f"{file}, row {outside[0]}: expected an index from 0 to {count - 1}, got {there}")
        scores = np.full(count, np.nan)
        scores[index.astype(int)] = values
        missing = int(np.isnan(scores).sum())
        if 0 < missing < count:
            raise ValueError(f"{file}: expected {count} scores for {wanted}, got {count - missing}")
        if not missing:
            found[f"score/{i}"] = scores.astype(np.float32)
    return found


def _numbers(column: np.ndarray, name: str, file: str, rows: Any = slice(None)) -> np.ndarray:
    """Return the given rows of a column as finite numbers."""
    values = np.zeros(len(column))
    try:
        values[rows] = column[rows].astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: column {name!r}: expected finite numbers ({error})") from None
    check_values(name, column, ~np.isfinite(values), f"finite numbers in {file}")
    return values[rows]


# --- time per sample (Table 3 of the paper) -------------------------------------------------------------------------

SAMPLES = {"cpu": 100, "cuda": 2000}
REPEATS = 5


def time(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Measure the time per sample of a forward pass and of a method with all its passes."""
    net, data, device = network_of(context, parents["network"])
    x = study_data.inputs_of(data, Group("clean", (0.0,), SAMPLES[device]), 0, context.data, device).inputs
    many, several = methods.is_many(params["kind"]), not data.task.independent
    method = many_of(context, params, parents) if many else scorer_of(context, parents["fit"])
    targets, features = None, params.get("settings", {}).get("features")
    if several:
        size = min(len(x), data.task.batch_size)
        x, targets = study_data.some_labelled(data.test, size, data.predicts)

    def measure(count: int) -> tuple[float, float]:
        """Return the duration in seconds of a forward pass and of the method, measured one right after the other."""
        some, outputs = x[:count], None
        if not many and not several:
            outputs = collect(net, some, task=data.task, layers=method.layers, store=device, progress=False)
        forward = _seconds(lambda: _forward(net, some, data.task), device)
        if many:
            run = lambda: method.summarise(some, batch_size=count, progress=False)  # noqa: E731
            return forward, _seconds(run, device, repeats=1)
        if outputs is not None:
            return forward, forward + _seconds(lambda: method(outputs), device)
        split = Split(some, targets[:count])  # pyright: ignore[reportOptionalSubscript]
        run = lambda: method(read_rows(data, net, split, features=features, device=device))  # noqa: E731
        return forward, _seconds(run, device)

    count = len(x)
    while True:
        try:
            forward, whole = measure(count)
            break
        except torch.OutOfMemoryError:
            if count == 1:
                raise
            count //= 2
    per_sample = 1000 / count
    facts = {
        "passes": method.passes if many else 1,
        "samples": count,
        "forward_ms": forward * per_sample,
        "method_ms": whole * per_sample,
        "extra_ms": (whole - forward) * per_sample,
        "ratio": whole / forward,
    }
    return Result(facts)


def _forward(net: Any, x: torch.Tensor, task: Task) -> Any:
    if not isinstance(net, torch.nn.Module):
        return collect(net, x, task=task, features=False, progress=False)  # for example an ONNX session
    with torch.inference_mode():
        return net(x)


def _seconds(function: Callable[[], Any], device: str, repeats: int = REPEATS) -> float:
    """Return the median duration of several calls, after a warm-up call."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    function()
    taken = []
    for _ in range(repeats):
        wait()
        start = clock.perf_counter()
        function()
        wait()
        taken.append(clock.perf_counter() - start)
    return median(taken)
