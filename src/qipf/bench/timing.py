"""Time per sample (Table 3): every method beside a bare forward pass, while nothing else of the benchmark runs."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

from qipf.bench import cells, inputs, methods
from qipf.bench.context import Context, Parents, Result
from qipf.bench.inputs import Group
from qipf.outputs import collect

SAMPLES = {"cpu": 100, "cuda": 2000}
REPEATS = 5


def time(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Milliseconds per sample of a forward pass and of the method, in one batch of `SAMPLES`.

    A single-pass method costs the forward pass and its score; a many-pass method all its passes. The forward pass is
    measured right before the method, so that the ratio is fair on a machine whose speed changes.
    """
    net, data, device = cells.network_of(context, parents["network"])
    x = inputs.inputs_of(data, Group("clean", (0.0,), SAMPLES[device]), 0, context.data, device).inputs

    def forward() -> Any:
        with torch.inference_mode():
            return net(x)

    if params["kind"] in methods.MANY_PASSES or params["kind"] == "ensemble":
        many = cells.many_of(context, params, parents)
        passes = many.passes
        alike = {"batch_size": len(x), "progress": False}
        pair = (_seconds(forward, device), _seconds(lambda: many.summarise(x, **alike), device, repeats=1))
        whole = pair[1]
    else:
        scorer = cells.scorer_of(context, parents["fit"])
        passes = 1
        outputs = collect(net, x, layers=scorer.layers, store=device, progress=False)
        pair = (_seconds(forward, device), _seconds(lambda: scorer(outputs), device))
        whole = pair[0] + pair[1]
    per_sample = 1000 / len(x)
    facts = {
        "passes": passes,
        "samples": len(x),
        "forward_ms": pair[0] * per_sample,
        "method_ms": whole * per_sample,
        "extra_ms": (whole - pair[0]) * per_sample,
        "ratio": whole / pair[0],
    }
    return Result(facts)


def _seconds(function: Callable[[], Any], device: str, repeats: int = REPEATS) -> float:
    """The median over some repetitions, after one that is not counted."""
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
