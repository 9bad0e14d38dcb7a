"""Cells that make networks (train one, or load the user's own), and how other cells get them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from qipf import training
from qipf.arrays import to_numpy
from qipf.models.collect import collect
from qipf.models.outputs import Outputs
from qipf.models.probabilities import numbers_expected
from qipf.study.run import numbers, own_model, study_data
from qipf.study.run.graph import Context, Parents, Result
from qipf.study.run.several_rows import read_rows
from qipf.study.run.study_data import StudyData, notes_of

_CACHE: dict[str, OrderedDict[Any, Any]] = {}
_LARGEST = {"network": 2, "scorer": 16, "many": 1, "outputs": 3}


def cached(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """`make()`, kept until a few others of its sort were made; the first part of the key is the sort."""
    kept = _CACHE.setdefault(key[0], OrderedDict())
    if key not in kept:
        while len(kept) >= _LARGEST[key[0]]:
            kept.popitem(last=False)  # before making the next: memory need not hold both
        kept[key] = make()
    kept.move_to_end(key)
    return kept[key]


FEW = 64
"""Inputs that show whether a model with several predictions per input works."""
SOME = 500
"""Inputs that show whether a model with one prediction per input works."""
SEEN = 0.5
"""A model whose error on x_train is below this share of its error on test data was probably trained on x_train."""


def train(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Train one network. A kill costs at most one epoch."""
    del parents
    data = data_of(context, params)
    net = study_data.new_network(params["net"], data, params["seed"])
    checkpoint = context.store.checkpoint(context.key)
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
    """Load the user's own model, to know that it works before other cells need it."""
    del parents
    data = data_of(context, params)
    net = own_model.load(params["model"], params["weights"], params["digests"])
    note = "; ".join(filter(None, (_held_out_note(params["data"], data), *notes_of(data))))
    if data.predicts == "numbers":
        found = [
            _mean_error(net, study_data.first(part, SOME), params["data"]["dataset"])
            for part in (data.train, data.test)
        ]
        return Result({"note": "; ".join(filter(None, (note, _seen_note(*found))))})
    if data.predicts != "classes":
        right = read_rows(data, net, study_data.some_labelled(data.test, FEW, data.predicts)).correct
        return Result({"accuracy": float(np.mean(right)), "note": note})
    logits = collect(net, data.test.inputs[:SOME], features=False, progress=False).logits
    found = Outputs(logits, labels=data.test.targets[:SOME].to(logits.device))
    return Result({"accuracy": float(np.mean(to_numpy(found.correct))), "note": note})


def _mean_error(net: Any, split: study_data.Split, where: str) -> float:
    """The mean absolute error of a regression."""
    with numbers_expected(True):
        predicted = collect(net, split.inputs, features=False, progress=False).logits
    numbers.check_shapes(predicted, split.targets, where)
    return float(np.mean(np.abs(to_numpy(split.targets).reshape(predicted.shape) - to_numpy(predicted))))


def _seen_note(known: float, new: float) -> str:
    if known >= SEEN * new:
        return ""
    return (
        f"the mean absolute error is {known:.3g} on x_train and {new:.3g} on the test data: the model was probably "
        "trained on x_train, where its errors say little about new inputs; scales are fitted there, so put inputs "
        "into x_train that the model has not seen"
    )


def _held_out_note(params: Mapping[str, Any], data: StudyData) -> str:
    if params["held_out_of"] != "test" or study_data.brings_held_out(
        params["dataset"], params["digest"], data.predicts
    ):
        return ""
    return (
        f"calibrated on {len(data.held_out.inputs)} inputs of the test data, which are not evaluated: the model may "
        "have seen all training data; put inputs that it has not seen into x_held_out and y_held_out of an .npz file"
    )


def network_of(context: Context, parent: Mapping[str, str]) -> tuple[nn.Module, StudyData, str]:
    """A trained network, its data and the device, from the cell that made it."""
    return cached(("network", parent["key"]), lambda: _load_network(context, parent))


def _load_network(context: Context, parent: Mapping[str, str]) -> tuple[nn.Module, StudyData, str]:
    params = context.record(parent)["params"]
    data, device = data_of(context, params), params["device"]
    if parent["kind"] == "model":
        net = own_model.load(params["model"], params["weights"], params["digests"])
        return (net if params["model"].endswith(".pt2") else net.to(device)), data, device
    net = study_data.new_network(params["net"], data, params["seed"])
    net.load_state_dict({name: torch.from_numpy(array) for name, array in context.arrays(parent).items()})
    net = net.to(device).eval()
    if device == "cuda" and data.test.inputs.ndim == 4:
        net = net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return net, data, device


def data_of(context: Context, params: Mapping[str, Any]) -> StudyData:
    """The data that a cell was made for."""
    data = params["data"]
    return study_data.load_data(
        data["dataset"],
        data["calibration_size"],
        context.data,
        params["device"],
        held_out_of=data.get("held_out_of", "train"),
        digest=data["digest"],
        predicts=data.get("predicts", "classes"),
    )
