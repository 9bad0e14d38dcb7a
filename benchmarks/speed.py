"""Measure the cost of scores of images beside the network itself, on one CPU core or on a GPU.

    python benchmarks/speed.py --quick                                  # two minutes on a CPU
    python benchmarks/speed.py --out results/speed/cpu.json             # about twenty minutes
    python benchmarks/speed.py --device cuda --out results/speed/cuda.json

Images are random and networks untrained, which does not change what is computed. Times on a CPU are processor time of
one thread.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import qipf
from authors_loop import modes_by_loop
from qipf.fields import Field, silverman, uncertainty_modes
from qipf.study import nets
from qipf.study.recipes import recipe
from qipf.training import train
from timing import environment, paired, seconds, shortest, write

NETS = {"lenet": ("mnist", 1, 28), "vgg3": ("cifar10", 3, 32), "resnet18": ("cifar10", 3, 32)}
"""The dataset of a network, and the channels and side of its images."""
IMAGES = {"cuda": {"lenet": 55_000, "vgg3": 15_000, "resnet18": 10_000}}
IMAGES["cpu"] = {"lenet": 5_500, "vgg3": 1_500, "resnet18": 750}
"""How many images a probe is fitted to; all times are by the image."""
BATCHES = (1, 32, 500, 2000)
FACTOR = 160.0


def per_prediction(device: str, budget: float) -> dict[str, float]:
    """Return nanoseconds per prediction of the paper's score: authors' loop, exact NumPy, and `WeightQIPF`.

    The loop and the exact formula begin at a coordinate, `WeightQIPF` at ten logits.
    """
    generator = np.random.default_rng(0)
    samples, y = generator.standard_normal(3552), generator.standard_normal(400)
    field = Field(samples, FACTOR * silverman(samples))
    found = {
        "authors' loop": shortest(lambda: modes_by_loop(samples, y[:40], field.bandwidth), budget=budget) / 40,
        "exact NumPy": shortest(lambda: uncertainty_modes(field, y), budget=budget) / 400,
    }
    scorer = qipf.WeightQIPF(factor=FACTOR).fit(nets.build("lenet", seed=0), _logits(5000, "cpu"))
    for count in (500, 2**14, 2**20):
        logits = _logits(count, device).logits
        found[f"WeightQIPF, {count:,} predictions"] = shortest(lambda x=logits: scorer(x), device, budget) / count
    return {name: 1e9 * value for name, value in found.items()}


def by_weights(device: str, budget: float, most: int) -> dict[str, dict[str, float]]:
    """Return what the number of weights changes: seconds of fitting, and nanoseconds per prediction."""
    found = {}
    for count in [10**power for power in range(3, 8) if 10**power <= most]:
        net, reference = nn.Linear(count // 10, 10, bias=False), _logits(5000, "cpu")
        scorer = qipf.WeightQIPF(factor=FACTOR, pool=None)
        fitting = seconds(lambda s=scorer, n=net, r=reference: s.fit(n, r))
        logits = _logits(2**16, device).logits
        scoring = 1e9 * shortest(lambda s=scorer, x=logits: s(x), device, budget) / 2**16
        found[f"{count:,}"] = {"fit_seconds": fitting, "nanoseconds": scoring}
    return found


def _logits(count: int, device: str) -> qipf.Outputs:
    return qipf.Outputs(logits=torch.randn(count, 10, generator=torch.Generator().manual_seed(0)).to(device))


def images_of(name: str, count: int, device: str) -> tuple[Tensor, Tensor]:
    """Return random images and labels."""
    _, channels, size = NETS[name]
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(count, channels, size, size, generator=generator)
    return images.to(device), torch.randint(0, 10, (count,), generator=generator).to(device)


def fitting(name: str, device: str) -> tuple[Any, dict[str, float]]:
    """Return a fitted probe, and its cost: seconds and trainings of the network by effort, and the size of its file."""
    data, how = images_of(name, IMAGES[device][name], device), recipe(name, NETS[name][0])
    net, epochs = nets.build(name, seed=0).to(device), how.epochs if device == "cuda" else 1

    def learn(recorded: bool) -> None:
        train(
            net, data, epochs=epochs, batch_size=how.batch_size, learning_rate=1e-6, augment=how.augment,
            cuda_graph=recorded, progress=False,
        )  # fmt: skip

    learn(True) if device == "cuda" else None  # warms up
    training = min(seconds(lambda: learn(True), device) for _ in range(2)) * how.epochs / epochs
    found = {"training_seconds": training}
    if device == "cuda":
        found["training_without_recorded_steps_seconds"] = seconds(lambda: learn(False), device)
    scorer: Any = None
    for effort in ("quick", "standard", "thorough"):
        made: list[Any] = []
        batch = 4000 if device == "cuda" else 500
        options: dict[str, Any] = {"effort": effort, "batch_size": batch, "progress": False}
        taken = seconds(lambda m=made, o=options: m.append(qipf.default(net, data, **o)), device)
        found |= {f"fit_{effort}_seconds": taken, f"fit_{effort}_in_trainings": taken / training}
        scorer = made[0] if effort == "standard" else scorer
    with tempfile.TemporaryDirectory() as folder:
        scorer.save(Path(folder) / "probe.qipf")
        found["file_megabytes"] = (Path(folder) / "probe.qipf").stat().st_size / 1e6
    return qipf.wrap(net.eval(), scorer).eval(), found


@torch.no_grad()
def beside_a_pass(name: str, probe: nn.Module, device: str, rounds: int) -> dict[str, Any]:
    """Return what `wrap` and `collect` add to a forward pass, by the size of a batch, in per cent of the pass."""
    net, found = nets.build(name, seed=0).to(device).eval(), {}
    reference = qipf.Outputs(logits=net(images_of(name, 100, device)[0]))
    field = qipf.wrap(net, qipf.WeightQIPF(factor=FACTOR).fit(net, reference))
    ways = {"pass": net, "WeightQIPF": field.eval().to(device), "qipf.default": probe}
    for batch in BATCHES:
        images, times = images_of(name, batch, device)[0], 100 if batch == 1 else 1
        works = {way: (lambda m=module, x=images, n=times: [m(x) for _ in range(n)]) for way, module in ways.items()}
        measured = paired(works, device, rounds)
        milliseconds = 1e3 * measured["seconds"]["pass"] / times
        found[str(batch)] = {"pass_ms": milliseconds, **measured["extra_percent"]}
    batches = images_of(name, 20 * 500, device)[0].split(500)
    bare = paired(
        {
            "pass": lambda: [net(part) for part in batches],
            "collect": lambda: qipf.collect(net, [(part,) for part in batches], progress=False),
        },
        device,
        rounds,
    )
    return {"wrap, by batch": found, "collect, batches of 500": bare["extra_percent"]["collect"]}


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="LeNet alone, fewer weights, fewer rounds")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(1)
    budget, rounds, most = (0.3, 5, 10**5) if given.quick else (2.0, 25, 10**7)
    found: dict[str, Any] = {"environment": environment(given.device)}
    found["ns per prediction"] = per_prediction(given.device, budget)
    write(given.out, found)
    found["by weights"] = by_weights(given.device, budget, most)
    write(given.out, found)
    for name in ("lenet",) if given.quick else given.nets:
        probe, cost = fitting(name, given.device)
        found[name] = {**cost, **beside_a_pass(name, probe, given.device, rounds)}
        write(given.out, found)


if __name__ == "__main__":
    main()
