"""Measure the cost of the recommended scorers and `WeightQIPF` relative to that of a network, on one CPU core.

    python benchmarks/speed.py --nets lenet                        # ten minutes
    python benchmarks/speed.py --out results/speed/cpu.json        # about 40 minutes

Times are processor times of one thread. The scorers of LeNet are fitted to 55,000 images, as in the study, and those of
the larger networks to fewer (`IMAGES`). The training time is extrapolated from one epoch. Each class is a pattern in
noise, so that the heads learn and are not left out of the posterior. The twin study measures the same costs on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
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

NETS = {"lenet": ("mnist", 1, 28), "vgg3": ("cifar10", 3, 32), "resnet18": ("cifar10", 3, 32)}
"""The dataset of each network, and the number of channels and the side of its images."""
IMAGES = {"lenet": 55_000, "vgg3": 1_500, "resnet18": 500}
EFFORTS = {"lenet": ("quick", "standard", "thorough"), "resnet18": ("quick", "standard")}
EFFORTS["vgg3"] = EFFORTS["lenet"]
BATCHES = {"lenet": (1, 32, 500, 2000), "vgg3": (1, 32, 500, 2000), "resnet18": (1, 32, 500)}
FACTOR = 160.0
BUDGET = 30.0
"""The approximate time in seconds for one batch size, unless five rounds take longer."""

Work = Callable[[], object]


def seconds(work: Work) -> float:
    """Return the processor time of a call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def shortest(work: Work, budget: float = 2.0) -> float:
    """Return the shortest time of many calls, after a warm-up."""
    work()
    taken = [seconds(work)]
    while sum(taken) < budget:
        taken.append(seconds(work))
    return min(taken)


def per_prediction() -> dict[str, float]:
    """Return the nanoseconds per prediction of the authors' loop, the exact formula in NumPy and `WeightQIPF`.

    `WeightQIPF` also computes the coordinate from ten logits.
    """
    generator = np.random.default_rng(0)
    samples, y = generator.standard_normal(3552), generator.standard_normal(400)
    field = Field(samples, FACTOR * silverman(samples))
    found = {
        "authors' loop": shortest(lambda: modes_by_loop(samples, y[:40], field.bandwidth)) / 40,
        "exact NumPy": shortest(lambda: uncertainty_modes(field, y)) / 400,
    }
    net = nets.build("lenet", seed=0)
    logits = torch.randn(2**20, 10, generator=torch.Generator().manual_seed(0))
    scorer = qipf.WeightQIPF(factor=FACTOR).fit(net, qipf.Outputs(logits=logits[:5000]))
    for count in (500, 2**14, 2**20):
        taken = shortest(lambda x=logits[:count]: scorer(x))
        found[f"WeightQIPF, {count:,} predictions"] = taken / count
    return {name: 1e9 * value for name, value in found.items()}


def images_of(name: str, count: int) -> tuple[Tensor, Tensor]:
    """Return images and labels of ten classes."""
    _, channels, size = NETS[name]
    generator = torch.Generator().manual_seed(0)
    patterns, noise = (torch.rand(n, channels, size, size, generator=generator) for n in (10, count))
    labels = torch.randint(0, 10, (count,), generator=generator)
    return (patterns[labels] + noise) / 2, labels


def fitted(name: str, net: nn.Module) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the scorers and their fitting times."""
    data, how = images_of(name, IMAGES[name]), recipe(name, NETS[name][0])
    settings: dict[str, Any] = {"batch_size": how.batch_size, "augment": how.augment, "learning_rate": 1e-6}
    epoch = min(seconds(lambda: train(net, data, epochs=1, progress=False, **settings)) for _ in range(2))
    training = how.epochs * epoch
    found: dict[str, float] = {"images": IMAGES[name], "training_seconds_extrapolated": training}
    scorers: dict[str, Any] = {}

    def fit(effort: Any) -> None:
        scorers[effort] = qipf.default(net, data, effort=effort, batch_size=500, progress=False)

    for effort in EFFORTS[name]:
        taken = seconds(partial(fit, effort))
        if scorers[effort].share > 0.9:
            raise SystemExit(f"{name}, {effort}: the head has learned nothing, so scoring would leave it out")
        found |= {f"fit_{effort}_seconds": taken, f"fit_{effort}_in_trainings": taken / training}
    return scorers, found


@torch.no_grad()
def beside_a_pass(name: str, net: nn.Module, scorers: dict[str, Any]) -> dict[str, Any]:
    """Return the time that `wrap` adds to a forward pass, in percent, by batch size and scorer."""
    found = {}
    modules: dict[str, nn.Module] = {way: qipf.wrap(net, scorer).eval() for way, scorer in scorers.items()}
    modules = {"pass": net, **modules}
    for batch in BATCHES[name]:
        images, times = images_of(name, batch)[0], 100 if batch == 1 else 1
        works = {way: (lambda m=module, n=times, x=images: [m(x) for _ in range(n)]) for way, module in modules.items()}
        once = sum(seconds(work) for work in works.values())
        rounds = max(5, min(50, int(BUDGET / once)))
        taken = [{way: seconds(work) for way, work in works.items()} for _ in range(rounds)]
        extra = {way: 100 * (statistics.median(one[way] / one["pass"] for one in taken) - 1) for way in scorers}
        found[str(batch)] = {"pass_ms": 1e3 * statistics.median(one["pass"] for one in taken) / times, **extra}
    return found


def write(path: Path | None, found: dict[str, Any]) -> None:
    """Print and write the results with four significant digits."""
    text = json.dumps(json.loads(json.dumps(found), parse_float=lambda digits: float(f"{float(digits):.4g}")), indent=1)
    print(text, flush=True)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def main() -> None:
    """Measure the times and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    machine = {"device": f"one core of {platform.machine()}", "torch": torch.__version__, "load": os.getloadavg()[0]}
    found: dict[str, Any] = {"environment": machine, "ns per prediction": per_prediction()}
    write(given.out, found)
    for name in given.nets:
        net = nets.build(name, seed=0)
        scorers, cost = fitted(name, net)
        reference = qipf.Outputs(logits=net(images_of(name, 100)[0]).detach())
        field = qipf.WeightQIPF(factor=FACTOR).fit(net, reference)
        ways = {"WeightQIPF": field, "qipf.default": scorers["standard"]}
        ways |= {"twin": scorers["thorough"]} if "thorough" in scorers else {}
        found[name] = {**cost, "wrap, by batch": beside_a_pass(name, net, ways)}
        write(given.out, found)


if __name__ == "__main__":
    main()
