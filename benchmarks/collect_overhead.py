"""What `collect` costs over the bare forward loop: LeNet, batches of 500, both timed in turn in one run.

Run: python benchmarks/collect_overhead.py [--repetitions 30] [--limit 1.02]
Prints the median of the paired ratios collect / bare; with --limit, exits with 1 where it is above.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

from qipf.models.collect import collect
from qipf.study.nets import build


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = build("lenet").eval()
    data = [(torch.rand(500, 1, 28, 28), torch.randint(10, (500,))) for _ in range(options.batches)]

    def bare() -> None:
        with torch.no_grad():
            for inputs, _ in data:
                model(inputs)

    def collected() -> None:
        collect(model, data)

    for function in (bare, collected):
        function()
    times = []
    for repetition in range(options.repetitions):  # in turn, and in turn who goes first: drift hits both alike
        if repetition % 2:
            second, first = seconds(collected), seconds(bare)
        else:
            first, second = seconds(bare), seconds(collected)
        times.append((first, second))
    ratio = statistics.median(second / first for first, second in times)
    loop, whole = (1000 * statistics.median(column) for column in zip(*times, strict=True))
    print(f"bare {loop:.1f} ms, collect {whole:.1f} ms, median ratio {ratio:.4f} ({options.repetitions} pairs)")
    return int(options.limit is not None and ratio > options.limit)


if __name__ == "__main__":
    sys.exit(main())
