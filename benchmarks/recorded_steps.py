"""Compare ordinary, recorded and compiled training steps on a GPU: python benchmarks/recorded_steps.py

Prints JSON: seconds per epoch of LeNet and VGG-3 on random data with the study's recipes, for ordinary steps, for
`train(cuda_graph=True)`, and for a network compiled by `torch.compile(mode="reduce-overhead")`; and the seconds that
the first, short epoch of each takes, which includes compilation. It takes less than 90 seconds.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from gpu_passes import seconds
from qipf.models.split import Split
from qipf.study import nets
from qipf.study.recipes import recipe
from qipf.training import train

NETS = {"lenet": ("mnist", 55_000, 1, 28), "vgg3": ("cifar10", 45_000, 3, 32)}
EPOCHS = 3


def main() -> None:
    """Measure both networks and print what was found."""
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    print(json.dumps({**about, "seconds per epoch": {name: measure(name) for name in NETS}}, indent=1))


def measure(name: str) -> dict[str, Any]:
    """Seconds per epoch for each kind of step."""
    dataset, count, channels, size = NETS[name]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(count, channels, size, size, generator=generator).cuda()
    targets = torch.randint(0, 10, (count,), generator=generator).cuda()
    settings: dict[str, Any] = {key: value for key, value in asdict(recipe(name, dataset)).items() if key != "epochs"}
    whole = settings["batch_size"] * (count // settings["batch_size"])  # one shape of batch, so one compilation
    short = 10 * settings["batch_size"]
    data, few = Split(inputs[:whole], targets[:whole]), Split(inputs[:short], targets[:short])
    found: dict[str, Any] = {}
    for kind in ("ordinary", "recorded", "compiled"):
        net: nn.Module = nets.build(name, channels=channels, size=size, seed=0).cuda()
        if kind == "compiled":
            net.compile(mode="reduce-overhead")
        options = {**settings, "device": "cuda", "cuda_graph": kind == "recorded", "progress": False}
        first = seconds(lambda net=net, options=options: train(net, few, epochs=1, **options))
        taken = seconds(lambda net=net, options=options: train(net, data, epochs=EPOCHS, **options))
        found[kind] = {"epoch": taken / EPOCHS, "first short epoch": first}
    return found


if __name__ == "__main__":
    main()
