"""What the cells do: train a network, fit a method, predict and score under a shift."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from qipf import training
from qipf.arrays import to_numpy
from qipf.models.collect import collect
from qipf.models.outputs import Outputs
from qipf.models.split import Split
from qipf.study.plan import methods
from qipf.study.run import inputs, own_data
from qipf.study.run.context import Context, Parents, Result
from qipf.study.run.inputs import Data, Group

SCORES = {
    "std": "std_of_base_class",
    "entropy": "entropy_of_mean",
    "mutual_information": "mutual_information",
    "std_mean_class": "std_of_mean_class",
    "contrast": "contrast_of_base_class",
    "max_logit_one_pass": "minus_max_logit_of_one_pass",
}
"""The scores of a many-pass method and where `qipf.predictive.Summary` has them; the first is the paper's."""
BATCH_NORM_INPUTS = 10000
"""How many training inputs SWAG's batch-norm statistics are taken from, for every draw anew."""


# --- networks ----------------------------------------------------------------------------------------------------


def train(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Train one network; a kill loses at most one epoch."""
    del parents
    data = _data(context, params)
    net = inputs.new_network(params["net"], data, params["seed"])
    checkpoint = context.store.scratch(context.key).with_suffix(".safetensors")
    training.train(
        net,
        data.train,
        **params["train"],
        seed=params["seed"],
        device=params["device"],
        checkpoint=checkpoint if params["device"] == "cpu" else None,
        cuda_graph=True,
        progress=False,
    )
    arrays = {name: to_numpy(tensor) for name, tensor in net.state_dict().items()}
    return Result({"accuracy": training.accuracy(net, data.test)}, arrays)


def model(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Load the user's own model, to know that it works before anything is built on it."""
    del parents
    data = _data(context, params)
    net = inputs.own_network(params["model"], params["weights"])
    logits = collect(net, data.test.inputs[:500], features=False, progress=False).logits
    own_data.check_labels(params["data"]["dataset"], logits.shape[1])
    found = Outputs(logits, labels=data.test.targets[:500].to(logits.device))
    return Result({"accuracy": float(np.mean(to_numpy(found.correct))), "note": _held_out_note(params["data"], data)})


def _held_out_note(params: Mapping[str, Any], data: Data) -> str:
    if params["held_out_of"] != "test" or inputs.brings_held_out(params["dataset"]):
        return ""
    return (
        f"calibrated on {len(data.held_out.inputs)} inputs of the test data, which are not evaluated: the model may "
        "have seen all training data; an .npz with x_held_out and y_held_out says what it has not seen"
    )


def network_of(context: Context, parent: Mapping[str, str]) -> tuple[nn.Module, Data, str]:
    """A trained network, its data and the device, from the cell that made it."""
    return _cached(("network", parent["key"]), lambda: _load_network(context, parent))


def _load_network(context: Context, parent: Mapping[str, str]) -> tuple[nn.Module, Data, str]:
    params = context.record(parent)["params"]
    data, device = _data(context, params), params["device"]
    if parent["kind"] == "model":
        net = inputs.own_network(params["model"], params["weights"])
        return (net if params["model"].endswith(".pt2") else net.to(device)), data, device
    net = inputs.new_network(params["net"], data, params["seed"])
    net.load_state_dict({name: torch.from_numpy(array) for name, array in context.arrays(parent).items()})
    net = net.to(device).eval()
    if device == "cuda" and data.test.inputs.ndim == 4:
        net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return net, data, device


# --- methods -----------------------------------------------------------------------------------------------------


def fit(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Fit a scorer to a network and its outputs, or a many-pass method to the training data."""
    if params["kind"] in methods.MANY_PASSES:
        return _fit_many(context, params, parents)
    net, data, device = network_of(context, parents["network"])
    settings, note = params["settings"], ""
    if params["kind"] == "default":
        from qipf.scores.old_default import default

        size = params["reference_size"] or len(data.train.inputs)
        scorer: Any = default(net, data.train, size=size, device=device, progress=False, **settings)
    else:
        scorer = methods.build(params["kind"], settings)
        size = 0 if params["fit_on"] == "held-out" else params["reference_size"]
        outputs = _outputs(context, parents["network"], Group(params["fit_on"], (0.0,), size), scorer.layers)[0]
        try:
            scorer.fit(net, outputs)
        except ValueError as error:
            if getattr(scorer, "factor", None) != "cv":
                raise
            from qipf.scores.weight_field import UNLABELLED_FACTOR

            note = f"factor {UNLABELLED_FACTOR:g} was taken: {error}"
            scorer = methods.build(params["kind"], {**settings, "factor": UNLABELLED_FACTOR}).fit(net, outputs)
    path = context.store.file(context.kind, context.key, ".qipf")
    path.parent.mkdir(parents=True, exist_ok=True)
    scorer.save(path)
    found = {key: value for key, value in scorer.fitted.facts.items() if isinstance(value, int | float | str)}
    return Result({"note": note or found.pop("note", ""), "facts": found})


def _fit_many(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    data = _data(context, params)
    settings = dict(params["settings"])
    if "network" not in parents:
        start: Any = partial(inputs.new_network, params["net"], data)
        if params["device"] == "cpu":
            settings["checkpoint"] = context.store.scratch(context.key).with_suffix(".safetensors")
    else:
        start = network_of(context, parents["network"])[0]
    if params["kind"] in methods.TRAINED and parents.get("network", {}).get("kind") != "model":
        settings["cuda_graph"] = True  # our own networks decide nothing from step to step
    method = methods.build(params["kind"], settings)
    method.fit(start, data.train, seed=params["seed"], device=params["device"], progress=False)
    return Result({"passes": method.passes}, {name: to_numpy(tensor) for name, tensor in method.state().items()})


def scorer_of(context: Context, parent: Mapping[str, str]) -> Any:
    """A fitted single-pass scorer."""
    from qipf.scores.persistence import load

    return _cached(("scorer", parent["key"]), lambda: load(context.store.file(parent["kind"], parent["key"], ".qipf")))


def many_of(context: Context, params: Mapping[str, Any], parents: Parents) -> Any:
    """A fitted many-pass method: from the cell that fitted it, or an ensemble of the pool's networks."""
    keys = tuple(parents[role]["key"] for role in sorted(parents) if role != "base")
    return _cached(("many", *keys), lambda: _load_many(context, params, parents))


def _load_many(context: Context, params: Mapping[str, Any], parents: Parents) -> Any:
    net, data, _ = network_of(context, parents["network"])
    if params["kind"] == "ensemble":
        from qipf.predictive.ensemble import DeepEnsemble

        members = [
            context.arrays(parents[f"member{k}"]) for k in range(sum(role.startswith("member") for role in parents))
        ]
        state = {f"members.{name}": torch.from_numpy(np.stack([m[name] for m in members])) for name in members[0]}
        state |= {"example": data.train.inputs[:2].cpu(), "classes": torch.tensor(True)}
        return DeepEnsemble(len(members)).load_state(net, state)
    fitted = context.record(parents["fit"])["params"]
    method = methods.build(params["kind"], fitted["settings"])
    state = {name: torch.from_numpy(array) for name, array in context.arrays(parents["fit"]).items()}
    return method.load_state(net, state, inputs.first(data.train, BATCH_NORM_INPUTS))


# --- predictions and scores --------------------------------------------------------------------------------------


def base(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """What the network predicts under a shift, and the truth."""
    outputs = _outputs(context, parents["network"], _group(params))
    arrays = {f"predicted/{i}": _small(found.predicted) for i, found in enumerate(outputs)}
    arrays["labels"] = _small(outputs[0].labels)
    accuracy = [float(np.mean(arrays[f"predicted/{i}"] == arrays["labels"])) for i in range(len(outputs))]
    return Result({"accuracy": accuracy}, arrays)


def score(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """The uncertainty of every prediction under a shift, as float32."""
    if params["kind"] == "scores":
        from qipf.study.plan.own_scores import read

        return Result({}, read(params, context.arrays(parents["base"])))
    if "fit" in parents and params["kind"] not in methods.MANY_PASSES:
        scorer = scorer_of(context, parents["fit"])
        outputs = _outputs(context, parents["network"], _group(params), scorer.layers)
        return Result({}, {f"score/{i}": _float32(scorer(found)) for i, found in enumerate(outputs)})
    return _score_many(context, params, parents)


def _score_many(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    method = many_of(context, params, parents)
    _, data, device = network_of(context, parents["network"])
    group = _group(params)
    predicted = context.arrays(parents["base"])
    arrays: dict[str, np.ndarray] = {}
    for some in _together(data, group):
        x = torch.cat([inputs.inputs_of(data, group, i, context.data, device).inputs for i in some])
        rows = len(x) // len(some)
        kept = inputs.common_rows(len(predicted["labels"]), group.subset)
        chosen = np.concatenate([predicted[f"predicted/{i}"][kept] for i in some]).astype(np.int64)
        found = _summarise(method, x, torch.from_numpy(chosen).to(device), params["seed"])
        for place, i in enumerate(some):
            part = slice(place * rows, (place + 1) * rows)
            for name, statistic in SCORES.items():
                if getattr(found, statistic) is not None:
                    arrays[f"{name}/{i}"] = _float32(getattr(found, statistic)[part])
            arrays[f"predicted/{i}"] = _small(found.predicted[part])
    return Result({"passes": method.passes}, arrays)


def _summarise(method: Any, x: Tensor, predicted: Tensor, seed: int) -> Any:
    """What the passes say; on a GPU in half precision, and again in single where a drawn network leaves its range."""
    on_gpu = x.device.type == "cuda"
    settings: dict[str, Any] = {"seed": seed, "base_classes": predicted, "progress": False}
    if on_gpu:  # moves ROC-AUC by less than a thousandth: docs/reproduction.md, "What was run"
        settings |= {"batch_size": max(1000, 2**23 // x[0].numel()), "memory": 2**33}
        with torch.autocast("cuda", dtype=torch.float16):
            found = method.summarise(x, **settings)
        if bool(torch.isfinite(found.mean).all()):
            return found
    return method.summarise(x, **settings)


def _together(data: Data, group: Group) -> list[list[int]]:
    """The intensities of a group in runs of at most 512 MB: drawing a network (SWAG's batch-norm) is dear."""
    rows = min(n for n in (group.size, group.subset, len(data.test.inputs)) if n)
    fit = max(1, 2**29 // max(1, 4 * rows * data.test.inputs[0].numel()))
    places = list(range(len(group.intensities)))
    return [places[start : start + fit] for start in range(0, len(places), fit)]


def _outputs(context: Context, network: Mapping[str, str], group: Group, layers: tuple[str, ...] = ()) -> list[Outputs]:
    """The network's outputs under every intensity of a group; kept for the next cell of the same task."""
    key = ("outputs", network["key"], group, layers)
    return _cached(key, lambda: _collect(context, network, group, layers))


def _collect(context: Context, network: Mapping[str, str], group: Group, layers: tuple[str, ...]) -> list[Outputs]:
    net, data, device = network_of(context, network)
    if group.name == "perturbed":
        from qipf.scores.old_default import perturbed

        split = data.reference(group.size)
        splits = [Split(perturbed(split.inputs), split.targets)]
    elif group.name == "reference":
        splits = [data.reference(group.size)]
    else:
        places = range(len(group.intensities))
        splits = (inputs.inputs_of(data, group, i, context.data, device) for i in places)  # one in memory at a time
    return [collect(net, split, layers=layers, store=device, progress=False) for split in splits]


def _group(params: Mapping[str, Any]) -> Group:
    group = params["group"]
    return Group(group["name"], tuple(group["intensities"]), group["size"], group.get("subset", 0))


def _data(context: Context, params: Mapping[str, Any]) -> Data:
    data = params["data"]
    part = data.get("held_out_of", "train")
    return inputs.load_data(data["dataset"], data["calibration_size"], context.data, params["device"], held_out_of=part)


def _small(classes: Any) -> np.ndarray:
    return to_numpy(classes).astype(np.int16)


def _float32(values: Any) -> np.ndarray:
    return to_numpy(values.float() if isinstance(values, Tensor) else values).astype(np.float32)


_CACHE: dict[str, OrderedDict[Any, Any]] = {}
_KEPT = {"network": 2, "scorer": 16, "many": 1, "outputs": 3}


def _cached(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """`make()`, remembered among the last few of its sort: the cells of a task share their network and its outputs."""
    kept = _CACHE.setdefault(key[0], OrderedDict())
    if key not in kept:
        while len(kept) >= _KEPT[key[0]]:
            kept.popitem(last=False)  # before making the next: two sets of outputs need not fit beside each other
        kept[key] = make()
    kept.move_to_end(key)
    return kept[key]


def forget() -> None:
    """Drop everything that was kept between cells."""
    _CACHE.clear()
