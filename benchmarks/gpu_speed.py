"""What a GPU does for the field: counting weights, and scoring next to a LeNet pass.

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

import torch

from qipf import Outputs, WeightQIPF, wrap
from qipf.fields import FieldSketch
from qipf.fields._gpu import count_patterns
from qipf.study.nets import build

BATCH = 2000


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Return the median wall time of a call that is waited for, after three calls to warm up."""
    for _ in range(3):
        function()
    times = []
    for _ in range(repeats):
        _wait()
        began = time.perf_counter()
        function()
        _wait()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def paired(one: Callable[[], object], other: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Return the median seconds of two calls that take turns, and the median of what the second takes more."""
    rounds = [(seconds(one, 1), seconds(other, 1)) for _ in range(repeats)]
    first, second = zip(*rounds, strict=True)
    return statistics.median(first), statistics.median(second), statistics.median(b / a - 1 for a, b in rounds)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


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
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    result: dict[str, object] = {"device": name, "torch": torch.__version__, "count": arguments.count}

    def keep(**figures: object) -> None:
        result.update(figures)
        print(json.dumps(figures), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(result, indent=1) + "\n")

    _score(device, arguments.repeats, keep)
    copy = _copy_bandwidth(arguments.count, device)
    keep(copy_bandwidth_GB_s=copy / 1e9)
    _build(normal(arguments.count, device, torch.bfloat16, 0.02), copy, keep)


def _copy_bandwidth(count: int, device: str) -> float:
    """Return bytes read and written per second by a copy within the memory of the device."""
    source = normal(count, device, torch.float32, 1.0)
    target = torch.empty_like(source)
    return 8 * count / seconds(lambda: target.copy_(source), 10)


def _build(weights: torch.Tensor, copy: float, keep: Callable[..., None]) -> None:
    if weights.is_cuda:
        patterns = weights.view(torch.int16)
        took = seconds(lambda: count_patterns(patterns), 10)
        keep(build_pass_ms=1e3 * took, build_pass_share_of_copy=2 * weights.numel() / took / copy)
    began = time.perf_counter()
    sketch = FieldSketch(factor=160).add(weights)
    added = time.perf_counter()
    field = sketch.finish(standardise=True)
    keep(build_add_s=added - began, build_whole_s=time.perf_counter() - began, build_field_error=field.error)


@torch.no_grad()
def _score(device: str, repeats: int, keep: Callable[..., None]) -> None:
    """What scoring adds to a LeNet pass of 2,000 images, as milliseconds and as a share of the pass.

    Once every batch is waited for, and once 20 batches are queued in a row, as in scoring a data set.
    """
    torch.manual_seed(0)
    net = build("lenet", channels=1, size=28).eval().to(device)
    images = torch.rand(BATCH, 1, 28, 28, device=device)
    logits = net(images)
    scorer = WeightQIPF(factor=160).fit(net, Outputs(logits=logits))
    wrapped = wrap(net, scorer).eval().to(device)
    ways = {
        "eager": (net, wrapped),
        "compiled": (torch.compile(net), torch.compile(wrapped)),
    }
    for way, (alone, scored) in ways.items():
        for queued in (1, 20):
            forward, both, share = paired(
                lambda n=alone, k=queued: [n(images) for _ in range(k)],
                lambda w=scored, k=queued: [w(images) for _ in range(k)],
                repeats,
            )
            name = f"{way}_{'waited_for' if queued == 1 else 'in_a_row'}"
            keep(
                **{
                    f"lenet_{name}_ms": 1e3 * forward / queued,
                    f"lenet_scored_{name}_ms": 1e3 * both / queued,
                    f"scoring_{name}_percent": 100 * share,
                }
            )
    exact = scorer(logits.double().cpu().numpy())
    error = abs(scorer(logits).double().cpu().numpy() - exact) / exact.mean()
    keep(scoring_call_ms=1e3 * seconds(lambda: scorer(logits), repeats), scoring_float32_error=float(error.max()))


if __name__ == "__main__":
    main()
