"""Which estimate of accuracy should `Monitor` use by default? Asked of training images alone.

    python benchmarks/probe/choose_estimate.py mnist kmnist --data FOLDER --out results/probe/estimates.json

A LeNet is trained as in the study, but on 50,000 of the training images; 5,000 others are held out, and 2,000 of the
remaining 5,000 play the test set, in the conditions of the study. Ten minutes on one core.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from conditions import conditions, load
from networks import perturbed

from decisions import Judge
from qipf.models.collect import collect
from qipf.models.outputs import Outputs
from qipf.models.split import Split
from qipf.scores.default import default
from qipf.study import nets, shifts
from qipf.study.recipes import recipe
from qipf.study.run.study_data import StudyData
from qipf.training import train

PLAYS_TEST = 5000


def errors(dataset: str, data: StudyData, epochs: int, shown: int) -> dict[str, float]:
    """Mean absolute error of every estimate over the shifted conditions."""
    order = torch.randperm(len(data.train.inputs), generator=torch.Generator().manual_seed(1))
    test, rest = (
        Split(data.train.inputs[rows], data.train.targets[rows]) for rows in (order[:shown], order[PLAYS_TEST:])
    )
    net, how = nets.build("lenet", seed=1), recipe("lenet", dataset)
    train(net, rest, epochs=epochs, batch_size=how.batch_size, learning_rate=how.learning_rate, seed=1, progress=False)
    net.eval()
    probe = default(net, rest, progress=False)

    def read(split: Split, labels: bool = True) -> Outputs:
        given = (split.inputs, split.targets) if labels else split.inputs
        return collect(net, given, layers=probe.layers, progress=False)

    judge = Judge(probe, read(data.held_out), read(perturbed(data.held_out, seed=0)))
    found: dict[str, list[float]] = defaultdict(list)
    for condition in conditions(dataset):
        if condition.group in ("clean", "ood"):
            continue
        images = shifts.apply(test.inputs, condition.family, condition.intensity)
        judged = judge(read(Split(images, test.targets), labels=False), test.targets)
        for name, value in judged["estimates"].items():
            found[name].append(abs(value - judged["accuracy"]))
    means = {name: round(float(np.mean(values)), 4) for name, values in found.items()}
    return {"held-out accuracy": judge.facts()["accuracy"], **dict(sorted(means.items(), key=lambda item: item[1]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", choices=("mnist", "kmnist"))
    parser.add_argument("--data")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--shown", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result = {}
    for pair in given.pairs:
        result[pair] = errors(pair, load(pair, given.data, "cpu"), given.epochs, given.shown)
        print(pair, result[pair], flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
