"""The cells of models that make several predictions per input: fit, predict and score tokens, pixels or labels.

Predictions are kept as what a study is about, right or wrong: all labels are 0, and a prediction is 0 where it is right
and 1 where it is wrong. `groups` says which input each belongs to, because those of one input depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qipf.arrays import to_numpy
from qipf.metrics import METRICS, evaluate
from qipf.models.kinds.predictions import BATCHES, PredictionRows
from qipf.scores import SoftmaxResponse
from qipf.scores.kind_probes import mark, probe_labels, probe_pixels, probe_tokens
from qipf.study.plan import methods
from qipf.study.plan.predicts import OF_TOKENS
from qipf.study.run import study_data
from qipf.study.run.graph import Context, Result
from qipf.study.run.maps import SUFFIX, map_some
from qipf.study.run.networks import cached, network_of
from qipf.study.run.several_rows import kind_of, read_rows
from qipf.study.run.study_data import Group, StudyData

PROBES = {"tokens": probe_tokens, "pixels": probe_pixels, "labels": probe_labels}


def fit_scorer(net: Any, data: StudyData, params: Mapping[str, Any], device: str) -> Any:
    """A fitted scorer of several predictions per input.

    Args:
        net: the network.
        data: of which the training inputs, or the held-out ones, are read.
        params: of the cell.
        device: where the network runs.
    """
    kind, settings = kind_of(data), dict(params["settings"])
    split = data.held_out if params["fit_on"] == "held-out" else data.reference(params["reference_size"])
    if params["kind"] == "default":
        extra = {"features": settings["features"]} if "features" in settings else {}
        if kind == "tokens":
            extra["shift"] = OF_TOKENS[data.predicts]
        return PROBES[kind](net, split, device=device, batch_size=BATCHES[kind], progress=False, **extra)
    scorer = methods.build(params["kind"], settings)
    if kind == "tokens":
        return mark(scorer.fit(None, None), kind)
    return mark(scorer.fit(net, read_rows(data, net, split, device=device).outputs), kind)


def predict(context: Context, network: Mapping[str, str], group: Group) -> Result:
    """Which predictions are wrong under a shift, and the probabilities of the network that they are."""
    found = _rows(context, network, group)
    arrays: dict[str, np.ndarray] = {"labels": np.zeros(len(found[0].correct), dtype=np.int16)}
    arrays["groups"] = np.asarray(found[0].groups, dtype=np.int32)
    for place, rows in enumerate(found):
        if len(rows.correct) != len(arrays["labels"]):
            raise ValueError(
                f"{group.name}: expected the same number of labelled predictions at every severity, got "
                f"{len(arrays['labels'])} and {len(rows.correct)}"
            )
        arrays[f"predicted/{place}"] = (~rows.correct).astype(np.int16)
        arrays[f"error_probability/{place}"] = rows.scored(SoftmaxResponse()).astype(np.float32)
    return Result({"accuracy": [float(np.mean(rows.correct)) for rows in found]}, arrays)


def score(
    context: Context, network: Mapping[str, str], group: Group, scorer: Any, features: str | None, *, maps: bool
) -> Result:
    """The uncertainty of every prediction under a shift.

    Args:
        context: where the cell runs.
        network: the cell of the network.
        group: the inputs.
        scorer: the fitted score.
        features: the module that the score reads; None for what enters the layer that makes the logits.
        maps: whether to keep the maps of a few images, at the intensity in the middle of the group.
    """
    found = _rows(context, network, group, features)
    arrays = {f"score/{i}": rows.scored(scorer).astype(np.float32) for i, rows in enumerate(found)}
    if not maps:
        return Result({}, arrays)
    net, data, device = network_of(context, network)
    place = len(found) // 2
    split = study_data.inputs_of(data, group, place, context.data, device)
    kept = map_some(net, split, found[place], arrays[f"score/{place}"], scorer, features, device)
    return Result({"maps_place": place}, arrays, {SUFFIX: kept.as_bytes()})


def _rows(
    context: Context, network: Mapping[str, str], group: Group, features: str | None = None
) -> list[PredictionRows]:
    """The predictions under every intensity of a group, kept for the next cell of the same task."""
    net, data, device = network_of(context, network)

    def read(place: int) -> PredictionRows:
        split = study_data.inputs_of(data, group, place, context.data, device)
        return read_rows(data, net, split, features=features, device=device)

    key = ("outputs", network["key"], group, ("several", features))
    return cached(key, lambda: [read(i) for i in range(len(group.intensities))])


def with_intervals(
    uncertainty: np.ndarray, correct: np.ndarray, probability: np.ndarray | None, groups: np.ndarray, bootstrap: int
) -> dict[str, Any]:
    """What `qipf.metrics.evaluate` returns, with intervals from resampled inputs instead of predictions."""
    found = evaluate(uncertainty, correct, probability=probability, bootstrap=0)
    order = np.argsort(groups, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    if len(members) == 1:
        return found  # one input says nothing about others
    random = np.random.default_rng(0)
    drawn: dict[str, list[float]] = {name: [] for name in METRICS}
    for _ in range(bootstrap):
        rows = np.concatenate([members[group] for group in random.integers(0, len(members), len(members))])
        chances = None if probability is None else probability[rows]
        again = evaluate(uncertainty[rows], correct[rows], probability=chances, bootstrap=0)
        for name in METRICS:
            drawn[name].append(again[name])
    for name in METRICS if bootstrap else ():
        known = np.asarray(drawn[name])[np.isfinite(drawn[name])]
        ends = np.quantile(known, [0.025, 0.975]) if known.size and np.isfinite(found[name]) else (np.nan, np.nan)
        found |= {f"{name}_low": float(ends[0]), f"{name}_high": float(ends[1])}
    return found


def one_batch(data: StudyData, size: int) -> study_data.Split:
    """A batch of labelled test inputs of the size in which such models run."""
    return study_data.some_labelled(data.test, min(size, BATCHES[kind_of(data)]), data.predicts)


def score_batch(
    net: Any, data: StudyData, split: study_data.Split, scorer: Any, features: str | None, device: str
) -> np.ndarray:
    """The scores of one batch, with the forward pass."""
    rows = read_rows(data, net, split, features=features, device=device)
    return to_numpy(rows.scored(scorer))
