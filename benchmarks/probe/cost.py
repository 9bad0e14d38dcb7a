"""What the probe costs: fitting in trainings of the network, scoring in forward passes, and the size of its file.

    python benchmarks/probe/cost.py --out results/probe/cost-cpu.json              # one CPU core
    python benchmarks/probe/cost.py --device cuda --out results/probe/cost-cuda.json

Ratios of times measured in one run, on random images: the time does not depend on what they show.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import qipf
from qipf.models.split import Split
from qipf.study import nets
from qipf.study.recipes import recipe
from qipf.training import train

NETS = {"lenet": ("mnist", 55_000, 5_500), "vgg3": ("cifar10", 15_000, 1_500), "resnet18": ("cifar10", 10_000, 750)}
"""The network's dataset, and how many images a GPU and a CPU measure; all times are by the image."""


def seconds(work: Callable[[], Any], repeats: int, device: str) -> float:
    """The least time of several runs: other processes only add to it."""

    def once() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    return min(once() for _ in range(repeats))


def measure(name: str, device: str) -> dict[str, float]:
    dataset, whole, few = NETS[name]
    count = whole if device == "cuda" else few
    channels, size = (1, 28) if name == "lenet" else (3, 32)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(count, channels, size, size, generator=generator).to(device)
    split = Split(images, torch.randint(0, 10, (count,), generator=generator).to(device))
    net = nets.build(name, seed=0).to(device)
    how = recipe(name, dataset)
    epochs = how.epochs if device == "cuda" else 1

    def learn(recorded: bool) -> None:
        train(
            net, split, epochs=epochs, batch_size=how.batch_size, learning_rate=1e-6, augment=how.augment,
            cuda_graph=recorded, progress=False,
        )  # fmt: skip

    learn(True) if device == "cuda" else None  # warms up
    training = seconds(lambda: learn(True), 2, device) * how.epochs / epochs
    plain = seconds(lambda: learn(False), 1, device) * how.epochs / epochs if device == "cuda" else training
    found: dict[str, float] = {"training_seconds": training, "training_without_recorded_steps_seconds": plain}
    probe = None
    for effort in ("quick", "standard", "thorough"):
        begin = time.perf_counter()
        probe = qipf.default(net, split, effort=effort, batch_size=4000 if device == "cuda" else 500, progress=False)  # pyright: ignore
        if device == "cuda":
            torch.cuda.synchronize()
        found[f"fit_{effort}_in_trainings"] = (time.perf_counter() - begin) / training
    assert probe is not None
    with tempfile.TemporaryDirectory() as folder:
        probe.save(Path(folder) / "probe.qipf")
        found["file_megabytes"] = (Path(folder) / "probe.qipf").stat().st_size / 1e6
    guarded = qipf.wrap(net.eval(), probe).eval()
    with torch.no_grad():
        batch = images[: 2000 if device == "cuda" else 500]
        pairs = [(seconds(lambda: net(batch), 3, device), seconds(lambda: guarded(batch), 3, device)) for _ in range(7)]
        found["added_passes_per_batch"] = statistics.median(b / a for a, b in pairs) - 1
        one = images[:1]
        singles = [(_many(net, one, device), _many(guarded, one, device)) for _ in range(7)]
        found["added_milliseconds_batch_1"] = 1000 * (min(b for _, b in singles) - min(a for a, _ in singles))
    return {key: float(f"{value:.4g}") for key, value in found.items()}


def _many(module: Any, one: torch.Tensor, device: str, count: int = 100) -> float:
    return seconds(lambda: [module(one) for _ in range(count)], 3, device) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    if chosen.device == "cpu":
        torch.set_num_threads(1)
    machine = torch.cuda.get_device_name() if chosen.device == "cuda" else f"one core of {platform.machine()}"
    result: dict[str, Any] = {"machine": machine, "torch": torch.__version__}
    for name in NETS:
        result[name] = measure(name, chosen.device)
        print(name, result[name], flush=True)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
