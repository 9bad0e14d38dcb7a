"""The cells that fit a method to a network, predict and score under a shift."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qipf.arrays import to_numpy
from qipf.models.collect import collect
from qipf.models.draws import Draws, draw_images
from qipf.models.outputs import Outputs
from qipf.models.split import Split
from qipf.scores import SoftmaxResponse
from qipf.study.plan import methods
from qipf.study.plan.registry import TRAINED
from qipf.study.run import numbers, several, study_data
from qipf.study.run.graph import Context, Parents, Result
from qipf.study.run.networks import cached, data_of, network_of
from qipf.study.run.own_model import read_unchanged
from qipf.study.run.study_data import Group, StudyData

SCORES = {
    "std": "std_of_base_class",
    "entropy": "entropy_of_mean",
    "mutual_information": "mutual_information",
    "std_mean_class": "std_of_mean_class",
    "contrast": "contrast_of_base_class",
    "max_logit_one_pass": "minus_max_logit_of_one_pass",
}
"""The scores of a method of several passes and their names in `qipf.predictive.Summary`; the paper's is the first."""
BATCH_NORM_INPUTS = 10000
"""Number of training inputs that the batch-norm statistics of SWAG are computed from, again for every draw."""


# --- methods -----------------------------------------------------------------------------------------------------


def fit(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Fit a scorer to a network and its outputs, or a method of several passes to the training data."""
    if methods.is_fitted_passes(params["kind"]):
        return _fit_many(context, params, parents)
    net, data, device = network_of(context, parents["network"])
    settings, note = params["settings"], ""
    if data.predicts not in ("classes", "numbers"):
        scorer: Any = several.fit_scorer(net, data, params, device)
    elif params["kind"] == "default":
        from qipf.scores.default import default

        scorer = default(
            net, data.train, size=params["reference_size"] or None, device=device, progress=False, **settings
        )
    else:
        scorer = methods.build(params["kind"], settings)
        size = 0 if params["fit_on"] == "held-out" else params["reference_size"]
        outputs = _outputs(context, parents["network"], Group(params["fit_on"], (0.0,), size), scorer.layers)[0]
        try:
            scorer.fit(net, outputs)
        except ValueError as error:
            if getattr(scorer, "factor", None) != "cv":
                raise
            from qipf.scores.weight_qipf import UNLABELLED_FACTOR

            note = f"factor {UNLABELLED_FACTOR:g} was used: {error}"
            scorer = methods.build(params["kind"], {**settings, "factor": UNLABELLED_FACTOR}).fit(net, outputs)
    path = context.store.scratch(context.key, ".qipf")
    scorer.save(path)
    found = {key: value for key, value in scorer.fitted.facts.items() if isinstance(value, int | float | str)}
    facts = {"note": note or found.pop("note", ""), "facts": found}
    return Result(facts, files={".qipf": path.read_bytes()})


def _fit_many(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    data = data_of(context, params)
    settings = dict(params["settings"])
    if "network" not in parents:
        start: Any = partial(study_data.new_network, params["net"], data)
        if params["device"] == "cpu":
            settings["checkpoint"] = context.store.checkpoint(context.key)
    else:
        start = network_of(context, parents["network"])[0]
    if params["kind"] in TRAINED and parents.get("network", {}).get("kind") != "model":
        settings["cuda_graph"] = True  # our own networks take the same steps whatever the data
    method = methods.build(params["kind"], settings)
    method.fit(start, data.train, seed=params["seed"], device=params["device"], progress=False)
    return Result({"passes": method.passes}, {name: to_numpy(tensor) for name, tensor in method.state().items()})


def scorer_of(context: Context, parent: Mapping[str, str]) -> Any:
    """A fitted scorer."""
    return cached(("scorer", parent["key"]), lambda: context.store.scorer(parent["kind"], parent["key"]))


def many_of(context: Context, params: Mapping[str, Any], parents: Parents) -> Any:
    """A fitted method of several passes: from the cell that fitted it, or an ensemble of networks of the pool."""
    keys = tuple(parents[role]["key"] for role in sorted(parents) if role != "base")
    return cached(("many", *keys), lambda: _load_many(context, params, parents))


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
    return method.load_state(net, state, study_data.first(data.train, BATCH_NORM_INPUTS))


# --- predictions and scores --------------------------------------------------------------------------------------


def base(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """The predictions of the network under a shift, the probabilities that they are wrong, and the true labels."""
    predicts = _predicts(context, parents)
    if predicts not in ("classes", "numbers"):
        return several.predict(context, parents["network"], _group(params))
    outputs = _outputs(context, parents["network"], _group(params))
    if predicts == "numbers":
        return numbers.predict(outputs, params["group"]["name"])
    arrays = {f"predicted/{i}": _small(found.predicted) for i, found in enumerate(outputs)}
    arrays |= {f"error_probability/{i}": _float32(SoftmaxResponse()(found)) for i, found in enumerate(outputs)}
    arrays["labels"] = _small(outputs[0].labels)
    accuracy = [float(np.mean(arrays[f"predicted/{i}"] == arrays["labels"])) for i in range(len(outputs))]
    return Result({"accuracy": accuracy}, arrays)


def score(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """The uncertainty of every prediction under a shift, as float32."""
    if params["kind"] == "scores":
        from qipf.study.plan.own_scores import read

        content = read_unchanged(params["file"], params["digest"])
        return Result({}, read(params, context.arrays(parents["base"]), content))
    if _predicts(context, parents) == "numbers":
        scorer = scorer_of(context, parents["fit"]) if "fit" in parents else None
        return numbers.score(_outputs(context, parents["network"], _group(params)), scorer)
    if "fit" in parents and not methods.is_fitted_passes(params["kind"]):
        scorer = scorer_of(context, parents["fit"])
        if _predicts(context, parents) != "classes":
            features, maps = params.get("features"), "maps" in params
            return several.score(context, parents["network"], _group(params), scorer, features, maps=maps)
        outputs = _outputs(context, parents["network"], _group(params), scorer.layers)
        return Result({}, {f"score/{i}": _float32(scorer(found)) for i, found in enumerate(outputs)})
    return _score_many(context, params, parents)


def _predicts(context: Context, parents: Parents) -> str:
    return network_of(context, parents["network"])[1].predicts


def _score_many(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    method = many_of(context, params, parents)
    _, data, device = network_of(context, parents["network"])
    group = _group(params)
    predicted = context.arrays(parents["base"])
    arrays: dict[str, np.ndarray] = {}
    for some in _together(data, group):
        x = torch.cat([study_data.inputs_of(data, group, i, context.data, device).inputs for i in some])
        rows = len(x) // len(some)
        kept = study_data.common_rows(len(predicted["labels"]), group.subset)
        chosen = np.concatenate([predicted[f"predicted/{i}"][kept] for i in some]).astype(np.int64)
        found = _summarise(method, x, torch.from_numpy(chosen).to(device), params["seed"])
        for place, i in enumerate(some):
            part = slice(place * rows, (place + 1) * rows)
            for name, statistic in SCORES.items():
                if getattr(found, statistic) is not None:
                    arrays[f"{name}/{i}"] = _float32(getattr(found, statistic)[part])
            arrays[f"predicted/{i}"] = _small(found.predicted[part])
            arrays[f"error_probability/{i}"] = _float32(1 - found.mean[part].amax(1).clamp(max=1))
    return Result({"passes": method.passes}, arrays)


def _summarise(method: Any, x: Tensor, predicted: Tensor, seed: int) -> Any:
    """The summary of the passes: on a GPU in half precision, and again in single precision if a value overflows."""
    on_gpu = x.device.type == "cuda"
    settings: dict[str, Any] = {"seed": seed, "base_classes": predicted, "progress": False}
    if on_gpu:  # moves ROC-AUC by less than a thousandth: docs/reproduction.md, "What was run"
        settings |= {"batch_size": max(1000, 2**23 // x[0].numel()), "memory": 2**33}
        with torch.autocast("cuda", dtype=torch.float16):
            found = method.summarise(x, **settings)
        if bool(torch.isfinite(found.mean).all()):
            return found
    return method.summarise(x, **settings)


def _together(data: StudyData, group: Group) -> list[list[int]]:
    """The intensities of a group in runs of at most 512 MB: drawing a network is expensive (batch-norm of SWAG)."""
    rows = min(n for n in (group.size, group.subset, len(data.test.inputs)) if n)
    fit = max(1, 2**29 // max(1, 4 * rows * data.test.inputs[0].numel()))
    places = list(range(len(group.intensities)))
    return [places[start : start + fit] for start in range(0, len(places), fit)]


def _outputs(context: Context, network: Mapping[str, str], group: Group, layers: tuple[str, ...] = ()) -> list[Outputs]:
    """The outputs of the network under every intensity of a group, kept for the next cell of the same task."""
    key = ("outputs", network["key"], group, layers)
    return cached(key, lambda: _collect(context, network, group, layers))


def _collect(context: Context, network: Mapping[str, str], group: Group, layers: tuple[str, ...]) -> list[Outputs]:
    net, data, device = network_of(context, network)
    if group.name == "perturbed":
        split = data.reference(group.size)
        drawn = _perturbed(split.inputs)
        splits = [Split(torch.cat([split.inputs, drawn]), torch.cat([split.targets, split.targets]))]
    elif group.name == "reference":
        splits = [data.reference(group.size)]
    else:
        places = range(len(group.intensities))
        splits = (study_data.inputs_of(data, group, i, context.data, device) for i in places)  # one in memory at a time
    return [collect(net, split, layers=layers, store=device, progress=False) for split in splits]


def _perturbed(values: Tensor) -> Tensor:
    generator = torch.Generator(values.device).manual_seed(0)
    return draw_images(values, generator) if values.ndim == 4 else Draws(None, generator)(values)


def _group(params: Mapping[str, Any]) -> Group:
    group = params["group"]
    return Group(
        group["name"], tuple(group["intensities"]), group["size"], group.get("subset", 0), group.get("digest", ""),
        tuple(group.get("files", ())), tuple(group.get("digests", ())),
    )  # fmt: skip


def _small(classes: Any) -> np.ndarray:
    return to_numpy(classes).astype(np.int16)


def _float32(values: Any) -> np.ndarray:
    return to_numpy(values.float() if isinstance(values, Tensor) else values).astype(np.float32)
