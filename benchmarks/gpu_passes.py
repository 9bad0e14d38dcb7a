"""Measure what passes cost on a GPU: python benchmarks/gpu_passes.py results/paper/gpu-passes.json

The file gets the seconds that passes of every method and a bare forward pass take for 10,000 random images in batches
of 2,000, in single precision, and the seconds that an epoch of training takes with and without recorded steps. Nothing
else should run on the GPU.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from qipf import training
from qipf.models.split import Split
from qipf.predictive import METHODS
from qipf.study import nets
from qipf.study.recipes import recipe

NETS = {"lenet": ("mnist", 55_000, 1, 28), "vgg3": ("cifar10", 45_000, 3, 32), "resnet18": ("cifar10", 45_000, 3, 32)}
IMAGES, BATCH, EPOCHS = 10_000, 2_000, 3
RANDOM_LAYERS = {"svi": 20, "svi-ll": 20}
OTHER_WEIGHTS = {"mc-dropout": 4, "swag": 4, "sgd-iterates": 4}


def main(output: str) -> None:
    """Measure all networks and write the file."""
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "images": IMAGES, "batch": BATCH}
    found = {**about, "nets": {name: measure(name) for name in NETS}}
    Path(output).write_text(json.dumps(found, indent=1) + "\n")


def measure(name: str) -> dict[str, Any]:
    """Return the seconds of every method's passes, of forward passes and of epochs for one network."""
    dataset, count, channels, size = NETS[name]
    drawn = torch.Generator().manual_seed(0)
    data = Split(
        torch.rand(count, channels, size, size, generator=drawn).cuda(),
        torch.randint(0, 10, (count,), generator=drawn).cuda(),
    )
    settings = {key: value for key, value in asdict(recipe(name, dataset)).items() if key != "epochs"}
    net = nets.build(name, channels=channels, size=size, seed=0)
    epoch = {}
    for recorded in (False, True):
        options = {**settings, "device": "cuda", "cuda_graph": recorded, "progress": False}
        training.train(net, Split(data.inputs[:2000], data.targets[:2000]), epochs=1, **options)
        taken = seconds(lambda options=options: training.train(net, data, epochs=EPOCHS, **options))
        epoch["recorded" if recorded else "ordinary"] = taken / EPOCHS
    net = net.eval().to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    x = data.inputs[:IMAGES].contiguous(memory_format=torch.channels_last)

    def forward() -> None:
        with torch.no_grad():
            for batch in x.split(BATCH):
                net(batch)

    forward()
    passes = {}
    for method, count in {**RANDOM_LAYERS, **OTHER_WEIGHTS}.items():
        if method in RANDOM_LAYERS:
            fitted = METHODS[method](epochs=2, **settings)
            start: Any = partial(nets.build, name, channels=channels, size=size)
        elif method == "mc-dropout":
            fitted, start = METHODS[method](rate=0.2), net
        else:
            fitted, start = METHODS[method](iterates=4, every=5, batch_size=250), net
        fitted.fit(start, Split(data.inputs[:IMAGES], data.targets[:IMAGES]), device="cuda", progress=False)
        options = {"batch_size": BATCH, "memory": 2**33, "progress": False}
        fitted.summarise(x[: 2 * BATCH], 2, **options)
        taken = seconds(lambda fitted=fitted, count=count, options=options: fitted.summarise(x, count, **options))
        passes[method] = {"passes": count, "seconds": taken}
    return {"forward": seconds(forward), "passes": passes, "epoch": epoch}


def seconds(function: Callable[[], Any]) -> float:
    """Return how long a call takes, including the GPU's work."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(sys.argv[1])
