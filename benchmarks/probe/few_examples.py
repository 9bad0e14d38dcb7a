"""How many examples per class the probe needs, on training images alone: python benchmarks/probe/few_examples.py

A LeNet learns from 20,000 training images of MNIST or K-MNIST. Probes with several shares of the network's softmax are
fitted to a few of these per class, and find its errors on 5,000 other training images, clean and under the shifts of
the paper. Test images are not read. Writes results/probe/few-examples.json; some minutes on one core.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import qipf
from qipf import training
from qipf.metrics import roc_auc
from qipf.models.split import Split
from qipf.study import datasets, nets, shifts

COUNTS, SHARES, REPEATS = (2, 4, 8, 16, 32, 64, 128), (0.2, 0.5, 0.8), 2
SHIFTED = (("rotation", 30), ("rotation", 60), ("brightness", 0.3), ("shear", 30), ("zoom", 0.6), ("shift", 0.15))
OUT = Path(__file__).parents[2] / "results" / "probe" / "few-examples.json"


def main() -> None:
    """Measure both data sets and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    given = parser.parse_args()
    found = {name: measure(name, given.data) for name in ("mnist", "kmnist")}
    OUT.write_text(json.dumps({"shares": SHARES, "repeats": REPEATS, "rows": found}, indent=1) + "\n")


def measure(name: str, folder: str | None) -> list[dict[str, object]]:
    """Mean ROC-AUC over clean and shifted images, by examples per class and share."""
    data = datasets.load(name, data=folder, progress=False).train
    order = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(0))
    learnt, judged = (Split(data.inputs[rows], data.targets[rows]) for rows in (order[:20000], order[20000:25000]))
    net = nets.build("lenet", seed=0)
    training.train(net, learnt, epochs=6, seed=0, progress=False)
    net.eval()
    images = [judged.inputs, *(shifts.apply(judged.inputs, *one) for one in SHIFTED)]
    rows: list[dict[str, object]] = [
        {"examples": 0, "entropy": _mean(qipf.Entropy().fit(net, None), net, images, judged)}
    ]
    for count in COUNTS:
        values: dict[float, list[float]] = {share: [] for share in SHARES}
        for repeat in range(REPEATS):
            some = _few(learnt, count, repeat)
            probe = qipf.default(net, some, seed=repeat, progress=False)
            for share in SHARES:
                probe.share = share
                values[share].append(_mean(probe, net, images, judged))
        rows.append({"examples": count, "roc_auc": [round(float(np.mean(v)), 4) for v in values.values()]})
        print(name, rows[0], rows[-1], flush=True)
    return rows


def _few(data: Split, count: int, seed: int) -> Split:
    order = torch.randperm(len(data.targets), generator=torch.Generator().manual_seed(seed))
    places = torch.cat([order[data.targets[order] == label][:count] for label in range(10)])
    return Split(data.inputs[places], data.targets[places])


def _mean(scorer: qipf.Scorer, net: torch.nn.Module, images: list[torch.Tensor], judged: Split) -> float:
    found = []
    for shown in images:
        outputs = qipf.collect(net, Split(shown, judged.targets), layers=scorer.layers, progress=False)
        found.append(roc_auc(scorer(outputs), outputs.correct))
    return round(float(np.mean(found)), 4)


if __name__ == "__main__":
    main()
