"""Several views of one pass: python views.py NET DATASET WEIGHTS TARGET SEED [SEED ...], a csv of scores.

For every network: the spaces at its end (before and after activation, and below), a class field in each at several
bandwidths from clean and perturbed references, and means of their posteriors and the head's.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import torch
from dump import perturbed
from explore import Space, contrast, log_fields, mean_by_shift
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from qipf.study import shifts
from qipf.study.run import study_data

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HELD_OUT, REFERENCES, PERTURBED, KEPT, IMAGES = 5000, 12_000, 10_000, 9000, 400
DEVELOPMENT = ("rotation", "shear", "brightness")
BANDWIDTHS = (0.14, 0.2, 0.28, 0.4, 0.56)
HOW = {"after": "centred-unit", "before": "unit", "lower": "unit"}


def lenet(net: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The last layers of LeNet."""
    maps = net.pool(torch.tanh(net.conv2(net.pool(torch.tanh(net.conv1(x)))))).flatten(1)
    before = net.dense2(torch.tanh(net.dense1(maps)))
    return {"lower": maps, "before": before, "after": torch.tanh(before), "logits": net.dense3(torch.tanh(before))}


def vgg3(net: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The last layers of VGG-3, its feature maps pooled to 2 x 2."""
    maps = net[2](net[1](net[0](x)))
    before = net[4](maps.flatten(1))
    after = functional.relu(before)
    return {
        "lower": functional.avg_pool2d(maps, 2).flatten(1), "before": before, "after": after, "logits": net[7](after)
    }  # fmt: skip


@torch.no_grad()
def spaces(net: nn.Module, kind: str, x: Tensor) -> dict[str, Tensor]:
    """Every space of `x`, batch by batch."""
    parts = [{"lenet": lenet, "vgg3": vgg3}[kind](net, batch) for batch in x.split(1000)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def pooled(posteriors: list[Tensor], predicted: Tensor) -> Tensor:
    """The contrast of the mean of posteriors."""
    return contrast((sum(posteriors[1:], posteriors[0]) / len(posteriors)).log().clamp_min(-700), predicted)


def main(kind: str, dataset: str, weights: str, target: str, *seeds: str) -> None:
    """Write the scores of every network to the file `target`."""
    data = study_data.load_data(dataset, HELD_OUT, None, DEVICE)
    cells = [("clean", 0.0)] + [(name, level) for name in DEVELOPMENT for level in shifts.SHIFTS[name]]
    groups = [name for name, _ in cells]
    test = study_data.first(data.test, IMAGES)
    x = torch.cat([test.inputs if n == "clean" else shifts.apply(test.inputs, n, level) for n, level in cells])
    labels = test.targets.repeat(len(cells))
    clean, noisy = study_data.first(data.train, REFERENCES), perturbed(study_data.first(data.train, PERTURBED))
    step = max(1, (len(clean.targets) + len(noisy.targets)) // KEPT)
    reference_labels = torch.cat([clean.targets, noisy.targets])[::step]
    rows: list[list[object]] = [["network", "score", "group", "roc_auc", "average_precision"]]
    for seed in seeds:
        net = study_data.new_network(kind, data, 0)
        net.load_state_dict(load_file(Path(weights) / f"{kind}-{dataset}-{seed}.safetensors"))
        net = net.to(DEVICE).eval()
        queries = spaces(net, kind, x)
        predicted = queries["logits"].argmax(1)
        wrong = (predicted != labels).reshape(len(cells), -1)
        references = [spaces(net, kind, part.inputs) for part in (clean, noisy)]
        posteriors = {"head": (queries["logits"] / 2).double().softmax(1)}
        for name, how in HOW.items():
            made = Space(torch.cat([part[name] for part in references])[::step], queries[name], how)
            fields, _ = log_fields(made, reference_labels, BANDWIDTHS)
            posteriors |= {f"{name} {s}": fields[j].double().softmax(1) for j, s in enumerate(BANDWIDTHS)}
        views = [[name] for name in posteriors]
        views += [["head", f"{name} {s}"] for name in HOW for s in BANDWIDTHS]
        views += [["head", f"before {s}", f"lower {s}"] for s in BANDWIDTHS]
        for names in views:
            score = pooled([posteriors[name] for name in names], predicted).reshape(len(cells), -1)
            for group, (auc, ap) in mean_by_shift(score, wrong, groups).items():
                rows.append([f"{kind}-{dataset}-{seed}", " + ".join(names), group, round(auc, 5), round(ap, 5)])
    with Path(target).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
