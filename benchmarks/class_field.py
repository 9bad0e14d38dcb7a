"""Kernel sums against the bare matrix product of their size, and scoring against a forward pass, each in one run.

python benchmarks/class_field.py [--queries 10000] [--samples 50000] [--dimensions 512] [--device cuda] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qipf.scores.kernel_sums import Packed, log_fields, pack


def measure(calls: dict[str, Callable[[], Any]], device: str, repeats: int) -> dict[str, float]:
    """The median time of each call in seconds; the calls take turns, so that all see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            if device == "cuda":
                torch.cuda.synchronize()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Measure and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((given.samples, given.dimensions)).astype(np.float32) / 8
    y = rng.standard_normal((given.queries, given.dimensions)).astype(np.float32) / 8
    labels = rng.integers(0, given.classes, given.samples)
    packed = pack(samples, labels, given.classes)
    y_t, samples_t = torch.from_numpy(y).to(given.device), torch.from_numpy(samples).to(given.device)
    packed_t = placed(packed, given.device)
    calls: dict[str, Callable[[], Any]] = {
        "torch matmul": lambda: torch.mm(y_t, samples_t.T),
        "torch log fields": lambda: log_fields(y_t, packed_t),
    }
    if given.device == "cpu":
        calls |= {
            "numpy matmul": lambda: y @ samples.T,
            "numpy log fields": lambda: log_fields(y, packed),
        }
    times = measure(calls, given.device, given.repeats)
    result: dict[str, Any] = {"sizes": [given.queries, given.samples, given.dimensions], "seconds": times}
    result["ratios"] = {
        name: times[name] / times[f"{name.split()[0]} matmul"] for name in times if "matmul" not in name
    }
    if given.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        log_fields(y_t, packed_t)
        exact = log_fields(y_t[:500].double(), Packed(*(part.double() for part in packed_t[:3]), *packed_t[3:]))
        result["largest error"] = float((log_fields(y_t[:500], packed_t).double() - exact).abs().max())
        result["scratch MiB"] = (torch.cuda.max_memory_allocated() - before) / 2**20
        result["resnet18"] = scoring_share(packed_of(20_000, 512, rng), given.repeats)
    print(json.dumps(result, indent=1))
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


def packed_of(count: int, dimensions: int, rng: np.random.Generator) -> Packed:
    """Random packed samples on the GPU."""
    made = pack(rng.standard_normal((count, dimensions)).astype(np.float32) / 8, rng.integers(0, 10, count), 10)
    return placed(made, "cuda")


def placed(packed: Packed, device: str) -> Packed:
    """The same on a device of torch."""
    keys, squares, weights = (torch.from_numpy(part).to(device) for part in packed[:3])
    return packed._replace(keys=keys, squares=squares, weights=weights)


@torch.no_grad()
def scoring_share(packed: Packed, repeats: int) -> dict[str, float]:
    """The class fields' time over a ResNet-18 forward pass on a batch of 1,000, in three precisions of the network."""
    from qipf.study import nets

    net = nets.build("resnet18", seed=0).cuda().eval()
    x = torch.rand(1000, 3, 32, 32, device="cuda")
    y = torch.randn(1000, packed.keys.shape[1], device="cuda") / 8

    def forward(tf32: bool, half: bool) -> None:
        torch.backends.cudnn.allow_tf32 = tf32
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            net(x)

    times = measure(
        {
            "forward float32": lambda: forward(False, False),
            "forward tf32": lambda: forward(True, False),
            "forward bfloat16": lambda: forward(True, True),
            "fields": lambda: log_fields(y, packed),
        },
        "cuda",
        repeats,
    )
    return {**times, **{f"share of {name}": times["fields"] / value for name, value in times.items()}}


if __name__ == "__main__":
    main()
