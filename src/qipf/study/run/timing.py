"""Time per sample (Table 3): every method beside a bare forward pass, while nothing else runs."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

from qipf.study.plan import methods
from qipf.study.run import cells, study_data
from qipf.study.run.graph import Context, Parents, Result
from qipf.study.run.study_data import Group, Split
from qipf.tasks.collect import collect
from qipf.tasks.task import Task

SAMPLES = {"cpu": 100, "cuda": 2000}
REPEATS = 5


def time(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Measure milliseconds per sample of a forward pass and of the method, in one batch.

    A method of one pass costs the forward pass and its score; one of several, all its passes. Both are measured one
    after the other, so that the ratio is fair if the speed of the machine changes.
    """
    net, data, device = cells.network_of(context, parents["network"])
    x = study_data.inputs_of(data, Group("clean", (0.0,), SAMPLES[device]), 0, context.data, device).inputs
    many, several = methods.is_many(params["kind"]), not data.task.independent
    method = cells.many_of(context, params, parents) if many else cells.scorer_of(context, parents["fit"])
    targets, features = None, params.get("settings", {}).get("features")
    if several:
        size = min(len(x), data.task.batch_size)
        x, targets = study_data.some_labelled(data.test, size, data.predicts)

    def measure(count: int) -> tuple[float, float]:
        """Return the seconds of a forward pass and of the method with its passes."""
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
        run = lambda: method(cells.read_rows(data, net, split, features=features, device=device))  # noqa: E731
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
        return collect(net, x, task=task, features=False, progress=False)  # of ONNX
    with torch.inference_mode():
        return net(x)


def _seconds(function: Callable[[], Any], device: str, repeats: int = REPEATS) -> float:
    """Return the median of several calls, after one that is not counted."""
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
