"""Time per sample (Table 3): every method next to a bare forward pass, while nothing else of the study runs."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from torch import Tensor

from qipf.models.collect import collect
from qipf.models.probabilities import numbers_expected
from qipf.study.plan import methods
from qipf.study.run import cells, several, study_data
from qipf.study.run.graph import Context, Parents, Result
from qipf.study.run.networks import network_of
from qipf.study.run.study_data import Group

SAMPLES = {"cpu": 100, "cuda": 2000}
REPEATS = 5


def time(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Milliseconds per sample of a forward pass and of the method, in one batch of `SAMPLES` or fewer.

    A method of one pass costs the forward pass and its score; one of several costs all its passes. The forward pass is
    measured right before the method, so that the ratio is fair on a machine whose speed changes.
    """
    net, data, device = network_of(context, parents["network"])
    x = study_data.inputs_of(data, Group("clean", (0.0,), SAMPLES[device]), 0, context.data, device).inputs
    if methods.KINDS[params["kind"]].passes == "many":
        many = cells.many_of(context, params, parents)
        passes, measure = many.passes, lambda x: _many_passes(net, many, x, device)
    elif data.predicts not in ("classes", "numbers"):
        scorer, batch = cells.scorer_of(context, parents["fit"]), several.one_batch(data, len(x))
        x, targets = batch
        features = params["settings"].get("features")
        passes, measure = (
            1,
            lambda x: _one_pass_of_several(net, data, scorer, features, study_data.Split(x, targets[: len(x)]), device),
        )
    else:
        scorer = cells.scorer_of(context, parents["fit"])
        passes, measure = 1, lambda x: _one_pass(net, scorer, x, device)
    while True:
        try:
            with numbers_expected(data.predicts == "numbers"):
                forward, whole = measure(x)
            break
        except torch.OutOfMemoryError:
            if len(x) == 1:
                raise
            x = x[: len(x) // 2]
    per_sample = 1000 / len(x)
    facts = {
        "passes": passes,
        "samples": len(x),
        "forward_ms": forward * per_sample,
        "method_ms": whole * per_sample,
        "extra_ms": (whole - forward) * per_sample,
        "ratio": whole / forward,
    }
    return Result(facts)


def _many_passes(net: Any, method: Any, x: Tensor, device: str) -> tuple[float, float]:
    """Seconds of a forward pass, and of all passes of the method in batches of the same size."""
    forward = _seconds(lambda: _forward(net, x), device)
    return forward, _seconds(lambda: method.summarise(x, batch_size=len(x), progress=False), device, repeats=1)


def _one_pass(net: Any, scorer: Any, x: Tensor, device: str) -> tuple[float, float]:
    """Seconds of a forward pass, and of a forward pass with the score."""
    outputs = collect(net, x, layers=scorer.layers, store=device, progress=False)
    forward = _seconds(lambda: _forward(net, x), device)
    return forward, forward + _seconds(lambda: scorer(outputs), device)


def _one_pass_of_several(
    net: Any, data: study_data.StudyData, scorer: Any, features: str | None, batch: study_data.Split, device: str
) -> tuple[float, float]:
    """Seconds of a forward pass, and of reading and scoring all predictions of a batch, the pass included."""
    forward = _seconds(lambda: _forward(net, batch.inputs), device)
    return forward, _seconds(lambda: several.score_batch(net, data, batch, scorer, features, device), device)


def _forward(net: Any, x: Tensor) -> Any:
    with torch.inference_mode():
        return net(x)


def _seconds(function: Callable[[], Any], device: str, repeats: int = REPEATS) -> float:
    """The median of several repetitions, after one that is not counted."""
    function()
    taken = []
    for _ in range(repeats):
        _wait(device)
        start = clock.perf_counter()
        function()
        _wait(device)
        taken.append(clock.perf_counter() - start)
    return median(taken)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
