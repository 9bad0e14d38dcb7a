"""The probe on vision transformers: one with a class token, and one with two heads as a distilled DeiT has.

    python benchmarks/probe/transformers.py --data FOLDER --out results/probe/transformers.json

Both are trained here on 20,000 images of MNIST, from two seeds each, and judged on 2,000 of the test images that no
prototype has seen: clean, under the paper's five shifts at every second intensity, and in the eleven unseen families
at severity 3. The bar: not below entropy or the max logit by more than .005 ROC-AUC. Half an hour on one core.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from conditions import conditions, load
from measures import detection
from torch import Tensor, nn

import qipf
from qipf.models.split import Split
from qipf.study import shifts
from qipf.training import train

SEEDS = (0, 1)
WIDTH, PATCH, DEPTH = 64, 7, 3


class Transformer(nn.Module):
    """Patches, class tokens, blocks and one linear head per class token; the logits are the mean of the heads'."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.tokens = nn.Parameter(torch.randn(1, heads, WIDTH) / 50)
        self.places = nn.Parameter(torch.randn(1, heads + (28 // PATCH) ** 2, WIDTH) / 50)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, DEPTH, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, 10) for _ in range(heads))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.tokens.expand(len(x), -1, -1), tokens], dim=1)
        found = self.blocks(tokens + self.places)
        return torch.stack([head(found[:, number]) for number, head in enumerate(self.heads)]).mean(0)


def measure(heads: int, seed: int, split: Split, test: Split) -> dict[str, object]:
    """Mean ROC-AUC and average precision of every score in every group of conditions."""
    torch.manual_seed(seed)
    net = Transformer(heads)
    train(net, split, epochs=8, batch_size=128, learning_rate=2e-3, seed=seed, progress=False)
    net.eval()
    probe = qipf.default(net, split, progress=False)
    scorers = {"probe": probe, "entropy": qipf.Entropy(), "max logit": qipf.MaxLogit(), "energy": qipf.Energy()}
    values: dict[str, dict[str, list[Tensor]]] = {name: {} for name in scorers}
    accuracy: dict[str, list[float]] = {}
    for condition in conditions("mnist"):
        group, family, intensity = condition
        if group == "ood" or (group in ("unseen", "resembling") and intensity != 3):
            continue
        if group == "shift" and list(shifts.SHIFTS[family]).index(intensity) % 2 == 0:
            continue
        images = test.inputs if group == "clean" else shifts.apply(test.inputs, family, intensity)
        outputs = qipf.collect(net, images, layers=probe.layers, progress=False)
        wrong = (outputs.predicted != test.targets)[None]
        accuracy.setdefault(group, []).append(1 - float(wrong.double().mean()))
        for name, scorer in scorers.items():
            found = torch.stack(detection(scorer(outputs)[None], wrong)[:2])[:, 0]
            values[name].setdefault(group, []).append(found)
    means = {
        name: {group: [round(float(v), 4) for v in torch.stack(found).nanmean(0)] for group, found in of_score.items()}
        for name, of_score in values.items()
    }
    right = {group: round(sum(found) / len(found), 4) for group, found in accuracy.items()}
    return {"heads": heads, "seed": seed, "reads": probe.space, "accuracy": right, "scores": means}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = load("mnist", given.data, "cpu")
    split = Split(data.train.inputs[:20_000], data.train.targets[:20_000])
    test = Split(data.test.inputs[:2000], data.test.targets[:2000])
    found = []
    for heads in (1, 2):
        for seed in SEEDS:
            found.append(measure(heads, seed, split, test))
            print(json.dumps(found[-1]), flush=True)
            if given.out is not None:
                given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
