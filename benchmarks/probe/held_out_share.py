"""Whether the softmax's share in the probe is better chosen on held-out inputs.

    python benchmarks/probe/held_out_share.py [--data DIR] [--images DIR --packages DIR] [TASK ...]

Tasks: `mnist` and `kmnist` (a LeNet that learns here), `resnet20` (of `real/cifar.py`, with the test images that
calibrate its rivals) and `imagenet` (EfficientNet-Lite0 of `real/imagenet.py`, with its held-out images; `--images` and
`--packages` as there). No image is read that is judged in another study. A part of what the head would learn from is
held out, with perturbed copies. It chooses the share by the likelihood of right and wrong predictions, or a logistic
regression of four numbers takes the place of the average. Both are compared with fixed shares. Writes
results/probe/held-out-share.json; half an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import entr, expit
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

import qipf
from qipf import training
from qipf.metrics import roc_auc
from qipf.models.augmented import collect_augmented
from qipf.models.outputs import Outputs
from qipf.models.split import Split
from qipf.scores.coordinates import contrast, softmax
from qipf.scores.probe import Probe
from qipf.study import datasets, nets, shifts
from qipf.study.run.study_data import common_rows
from real import imagenet, lite, resnets

SHIFTED = (("rotation", 30), ("rotation", 60), ("brightness", 0.3), ("shear", 30), ("zoom", 0.6), ("shift", 0.15))
LARGE = (("rotation", 45), ("brightness", 0.4), ("zoom", 0.6))
FIXED, GRID = (0.0, 0.2, 0.5, 0.8, 1.0), np.linspace(0, 1, 21)
OUT = Path(__file__).parents[2] / "results" / "probe" / "held-out-share.json"


class Task(NamedTuple):
    """A network, what its head learns from, what chooses, and what tells how good the choice is."""

    net: nn.Module
    fit: Split
    held_out: Split
    judged: Split
    shifted: tuple[tuple[str, float], ...] = SHIFTED
    draws: int = 4
    batch: int = 500


class Read(NamedTuple):
    """What the network and the head say: their probabilities, which class the network predicts, and the true one."""

    own: Tensor
    head: Tensor
    predicted: Tensor
    labels: Tensor

    @property
    def right(self) -> np.ndarray:
        """Which predictions are right."""
        return (self.predicted == self.labels).numpy()


def main() -> None:
    """Measure the chosen tasks, and write them next to those that were measured before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "images", "packages"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("tasks", nargs="*", default=["mnist", "kmnist"])
    given = parser.parse_args()
    made: dict[str, Callable[[], Task]] = {
        "mnist": lambda: lenet("mnist", given.data),
        "kmnist": lambda: lenet("kmnist", given.data),
        "resnet20": lambda: resnet20(given.data),
        "imagenet": lambda: photographs(given.images, given.packages),
    }
    found = json.loads(OUT.read_text()) if OUT.is_file() else {}
    for name in given.tasks:
        found[name] = measure(made[name]())
        print(name, found[name], flush=True)
        OUT.write_text(json.dumps(found, indent=1) + "\n")


def lenet(name: str, folder: Path | None) -> Task:
    """A LeNet that learns from 20,000 training images, judged on 5,000 others."""
    data = datasets.load(name, data=folder, progress=False).train
    order = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(0))
    known, fit, held_out, judged = (
        Split(data.inputs[rows], data.targets[rows])
        for rows in (order[:20000], order[:18000], order[18000:20000], order[20000:25000])
    )
    net = nets.build("lenet", seed=0)
    training.train(net, known, epochs=6, seed=0, progress=False)
    return Task(net.eval(), fit, held_out, judged)


def resnet20(folder: Path | None) -> Task:
    """The published ResNet-20, judged on the test images that calibrate rivals in `real/cifar.py`."""
    data = datasets.load("cifar10", data=folder, download=False, progress=False)
    order = torch.randperm(len(data.train.inputs), generator=torch.Generator().manual_seed(0))[:12000]
    seen = torch.from_numpy(common_rows(10_000, 2000))
    fit, held_out = (
        Split(data.train.inputs[rows], data.train.targets[rows]) for rows in (order[:10000], order[10000:])
    )
    judged = Split(data.test.inputs[seen], data.test.targets[seen])
    return Task(resnets.load("resnet20", folder), fit, held_out, judged)


def photographs(images: Path, packages: Path | None) -> Task:
    """EfficientNet-Lite0 with four images for each of 1,000 classes, judged on those that calibrate its rivals."""
    parts = imagenet.parts(images)
    known, judged = (imagenet.photographs(parts[part]) for part in ("train", "held_out"))
    order = torch.randperm(len(known.labels), generator=torch.Generator().manual_seed(0))
    fit, held_out = (
        Split(known.pixels[rows].float() / 255, known.labels[rows]) for rows in (order[:3500], order[3500:])
    )
    last = Split(judged.pixels.float() / 255, judged.labels)
    return Task(lite.load("lite0", packages), fit, held_out, last, LARGE, draws=2, batch=50)


def measure(task: Task) -> dict[str, Any]:
    """ROC-AUC on clean images, and its mean over the shifts, by the way of averaging."""
    learnt = _copies(task, task.fit, None, 0)
    (space,) = learnt.layers
    probe = Probe(space=space, share=0.0, epochs=8, seed=0).fit(None, learnt)
    known = _said(probe, _copies(task, task.held_out, space, 1))
    losses = [_log_loss(expit(-_averaged(known, share)), known.right) for share in GRID]
    chosen = float(GRID[int(np.argmin(losses))])
    learned = make_pipeline(StandardScaler(), LogisticRegression()).fit(_numbers(known), ~known.right)
    values: dict[str, list[float]] = {}
    for shift in (None, *task.shifted):
        images = task.judged.inputs if shift is None else shifts.apply(task.judged.inputs, *shift)
        found = _said(probe, _clean(task, images, space))
        rows = {f"share {share:g}": _averaged(found, share) for share in FIXED}
        rows |= {"chosen share": _averaged(found, chosen), "regression": learned.decision_function(_numbers(found))}
        for name, scores in rows.items():
            values.setdefault(name, []).append(roc_auc(scores, found.right))
    return {
        "share": round(chosen, 2),
        "right": {"network": round(float(known.right.mean()), 4),
                  "head": round(float((known.head.argmax(1) == known.labels).double().mean()), 4)},
        "roc_auc": {name: {"clean": round(all_[0], 4), "shift": round(float(np.mean(all_[1:])), 4)}
                    for name, all_ in values.items()},
    }  # fmt: skip


def _copies(task: Task, data: Split, space: str | None, seed: int) -> Outputs:
    settings: dict[str, Any] = {"draws": task.draws, "batch_size": task.batch, "progress": False}
    return collect_augmented(task.net, data, space=space, seed=seed, **settings)[0]


def _clean(task: Task, images: Tensor, space: str) -> Outputs:
    shown = Split(images, task.judged.targets)
    return qipf.collect(task.net, shown, features=False, layers=(space,), batch_size=task.batch, progress=False)


def _said(probe: Probe, outputs: Outputs) -> Read:
    logits, labels = torch.as_tensor(outputs.logits).double(), torch.as_tensor(outputs.labels).long()
    head = torch.as_tensor(probe.posterior(outputs)).double()
    return Read(softmax(logits / probe.temperature), head, logits.argmax(1), labels)


def _averaged(read: Read, share: float) -> np.ndarray:
    """The probe's score with another share of the softmax."""
    return _score((1 - share) * read.head + share * read.own, read.predicted)


def _numbers(read: Read) -> np.ndarray:
    """What the regression reads: the score and the entropy of the head and of the softmax."""
    parts = (read.head, read.own)
    scores, entropies = ([_score(p, read.predicted) for p in parts], [entr(p.numpy()).sum(1) for p in parts])
    return np.stack([*scores, *entropies], axis=1)


def _score(chance: Tensor, predicted: Tensor) -> np.ndarray:
    return np.asarray(contrast(chance.clamp(1e-30, None), predicted))


def _log_loss(chance: np.ndarray, right: np.ndarray) -> float:
    return -float(np.log(np.where(right, chance, 1 - chance).clip(1e-9)).mean())


if __name__ == "__main__":
    main()
