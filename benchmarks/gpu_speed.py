"""How close the GPU paths come to the memory's bandwidth, measured in one run.

python benchmarks/gpu_speed.py [--count 1000000000] [--out results/speed-gpu.json]; without a GPU it runs the same steps
on the CPU at whatever size is given, to try the script itself.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from qipf.fields._gpu import count_patterns, mode_kernel
from qipf.fields.field import Field
from qipf.fields.potential import potentials
from qipf.fields.sketch import FieldSketch

ORDERS = (2, 4, 6, 8)


def seconds(function: Callable[[], object], repeats: int) -> float:
    """The median time of a call, after two to warm up."""
    for _ in range(2):
        function()
    times = []
    for _ in range(repeats):
        if torch.cuda.is_available():
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            function()
            stop.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(stop) / 1e3)
        else:
            began = time.perf_counter()
            function()
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def normal(count: int, device: str, dtype: torch.dtype, scale: float) -> torch.Tensor:
    values = torch.empty(count, device=device, dtype=dtype)
    generator = torch.Generator(device).manual_seed(1)
    for start in range(0, count, 2**27):
        part = values[start : start + 2**27]
        part.copy_(torch.randn(part.numel(), device=device, generator=generator) * scale)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count, repeats = arguments.count, arguments.repeats
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    result: dict[str, object] = {"device": name, "torch": torch.__version__, "count": count}

    def keep(**figures: object) -> None:
        result.update(figures)
        print(json.dumps(figures), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(result, indent=1) + "\n")

    source = normal(count, device, torch.float32, 1.0)
    target = torch.empty_like(source)
    copy = 8 * count / seconds(lambda: target.copy_(source), repeats)
    keep(copy_bandwidth_GB_s=copy / 1e9)
    target = None

    weights = normal(count, device, torch.bfloat16, 0.02)
    bandwidth = _build(weights, copy, repeats, keep)
    del weights
    _score(source, copy, repeats, bandwidth, keep)


def _build(weights: torch.Tensor, copy: float, repeats: int, keep: Callable[..., None]) -> float:
    if weights.is_cuda:
        patterns = weights.view(torch.int16)
        counts = count_patterns(patterns)
        expected = torch.zeros(2**16, dtype=torch.int64, device=weights.device)
        for start in range(0, weights.numel(), 2**27):
            expected += torch.bincount(patterns[start : start + 2**27].to(torch.int32) & 0xFFFF, minlength=2**16)
        keep(build_counts_are_exact=bool((counts == expected).all()))
        odd = torch.cat([torch.zeros(5003), torch.tensor([1e-40, -0.0, 3e38, -2e-30])]).to("cuda", torch.bfloat16)
        rest = torch.bincount(odd.view(torch.int16).to(torch.int32) & 0xFFFF, minlength=2**16)
        keep(build_counts_odd_values=bool((count_patterns(odd.view(torch.int16)) == rest).all()))
        took = seconds(lambda: count_patterns(patterns), repeats)
        bytes_a_second = 2 * weights.numel() / took
        keep(build_pass_ms=1e3 * took, build_pass_share_of_copy=bytes_a_second / copy)
    began = time.perf_counter()
    sketch = FieldSketch(factor=160).add(weights)
    added = time.perf_counter()
    field = sketch.finish(standardise=True)
    whole = time.perf_counter() - began
    keep(build_add_s=added - began, build_whole_s=whole, build_field_error=field.error)
    return field.bandwidth


def _score(y: torch.Tensor, copy: float, repeats: int, bandwidth: float, keep: Callable[..., None]) -> None:
    samples = np.random.default_rng(0).standard_normal(3552)
    field = Field(samples, 28.0).compile()
    few = y[: 10**6].double().cpu().numpy()
    expected = field.neighbourhood_modes(few, ORDERS, True, 0.2)
    around = np.stack([few - 0.2, few, few + 0.2]).ravel()
    size = np.abs(potentials(field, around, ORDERS)).reshape(3, -1, len(ORDERS)).max(axis=0)

    def report(
        name: str, function: Callable[[torch.Tensor], torch.Tensor], bytes_each: int, part: torch.Tensor
    ) -> None:
        found = function(part[: 10**6]).double().cpu().numpy()
        reference, scale = (expected, size) if found.ndim == 2 else (expected.mean(axis=1), size.mean(axis=1))
        reference, scale = reference[: len(found)], scale[: len(found)]
        error = np.abs(found - reference)
        took = seconds(lambda: function(part), repeats)
        keep(
            **{
                f"{name}_predictions": part.numel(),
                f"{name}_ms": 1e3 * took,
                f"{name}_ps_a_prediction": 1e12 * took / part.numel(),
                f"{name}_share_of_copy": bytes_each * part.numel() / took / copy,
                f"{name}_error_relative_to_potentials": float((error / scale).max()),
                f"{name}_error_relative_to_modes_99_percent": float(
                    np.quantile((error / np.maximum(reference, 1e-30)).ravel(), 0.99)
                ),
            }
        )

    if y.is_cuda:
        kernel = mode_kernel(field, ORDERS, True, 0.2, y.device)
        assert kernel is not None
        keep(kernel_shared_bytes=kernel.shared)
        report("modes_kernel", kernel, 20, y)
        report("uncertainty_kernel", lambda part: kernel(part, mean=True), 8, y)
    part = y[: max(1, y.numel() // 8)]
    field.log(y[:2])
    compiled = torch.compile(lambda queries: field.neighbourhood_modes(queries, ORDERS, True, 0.2), dynamic=False)
    report("modes_torch_compile", compiled, 20, part)
    report(
        "modes_eager_double",
        lambda queries: field.neighbourhood_modes(queries.double(), ORDERS, True, 0.2),
        20,
        part[: 2**25],
    )


if __name__ == "__main__":
    main()
