"""Score four published ResNets for CIFAR-10 on clean and shifted test images, and write a record of every score.

    python benchmarks/real/cifar.py --data DIR --weights DIR --device cuda --out results/real

`--data` holds `cifar10/` (binary batches) and `cifar10h/cifar10h-probs.npy`; `--weights` the published `.th` files.
`qipf.study.datasets.files` downloads the latter two ("cifar10h", "cifar10-resnets").
`--small` tries the program out on a few training images and touches no test image. What is measured and why stands in
results/real/PROTOCOL.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from probe.measures import replicate_weights
from qipf.models.split import Split
from qipf.predictive.summary import entropy
from qipf.scores.coordinates import contrast
from qipf.scores.default import default
from qipf.study import datasets, shifts
from qipf.study.run.study_data import common_rows
from real import resnets
from real.conditions import Condition, apply, of_images
from real.human import doubt, rank_correlation
from real.program import Clock
from real.record import Record
from real.rivals import fitted_rivals, head_alone, read, scored

EFFORTS = {"probe": "standard", "probe, quick": "quick", "probe, thorough": "thorough"}
REFERENCES = 20_000
BATCH = {"cuda": 4000, "cpu": 100}


class Data(NamedTuple):
    """What the probe is fitted to, what calibrates rivals, what is judged, and people's doubt about it."""

    train: Split
    held_out: Split
    test: Split
    human: np.ndarray


class Fitted(NamedTuple):
    """A network with its scorers."""

    net: nn.Module
    layers: tuple[str, ...]
    probes: dict[str, Any]
    rivals: dict[str, Any]


def load(folder: Path, device: str, *, small: bool) -> Data:
    found = datasets.load("cifar10", data=folder, download=False, progress=False)

    def part(split: Split, rows: np.ndarray) -> Split:
        where = torch.from_numpy(rows)
        return Split(split.inputs[where].to(device), split.targets[where].to(device))

    human = doubt(folder)
    if small:  # training images only; shifted ones calibrate, as the networks make few errors on clean ones
        held_out = part(found.train, np.arange(40_000, 40_100))
        held_out = Split(shifts.apply(held_out.inputs, "rotation", 30.0), held_out.targets)
        test = part(found.train, np.arange(41_000, 41_050))
        return Data(part(found.train, np.arange(200)), held_out, test, np.random.default_rng(0).random(50))
    seen = common_rows(10_000, 2000)
    rest = np.setdiff1d(np.arange(10_000), seen)
    train = part(found.train, np.arange(50_000))
    return Data(train, part(found.test, seen), part(found.test, rest), human[rest])


def fit(net: nn.Module, data: Data, record: Record, name: str, device: str) -> Fitted:
    probes: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for row, effort in EFFORTS.items():
        begin = _now(device)
        probes[row] = default(net, data.train, effort=effort, batch_size=BATCH[device], progress=False)  # pyright: ignore
        seconds[row] = round(_now(device) - begin, 2)
    probes["probe, head alone"] = head_alone(probes["probe"])
    probes["probe without perturbations"] = default(
        net, data.train, perturb=False, batch_size=BATCH[device], progress=False
    )
    layers = probes["probe"].layers
    some = torch.randperm(len(data.train.inputs), generator=torch.Generator().manual_seed(0))[:REFERENCES].to(device)
    reference = read(net, data.train.inputs[some], layers, data.train.targets[some])
    held_out = read(net, data.held_out.inputs, layers, data.held_out.targets)
    rivals, missing = fitted_rivals(net, reference, held_out, len(data.train.inputs))
    record.facts.setdefault("fit_seconds", {})[name] = seconds
    record.facts.setdefault("missing", {})[name] = missing
    record.facts.setdefault("layers", {})[name] = list(layers)
    return Fitted(net, layers, probes, rivals)


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


class Scores:
    """What one network says about every condition."""

    def __init__(self) -> None:
        self.scores: dict[str, list[Tensor]] = {}
        self.posteriors: dict[str, list[Tensor]] = {}
        self.logits: list[Tensor] = []
        self.mirrored: list[Tensor] = []

    def add(self, fitted: Fitted, images: Tensor) -> None:
        outputs = read(fitted.net, images, fitted.layers)
        self.logits.append(outputs.logits)
        self.mirrored.append(read(fitted.net, images.flip(3), ()).logits)
        for name, values in scored({**fitted.probes, **fitted.rivals}, outputs).items():
            self.scores.setdefault(name, []).append(values)
        for name, probe in fitted.probes.items():
            self.posteriors.setdefault(name, []).append(probe.posterior(outputs).argmax(1))


def write_rows(record: Record, found: dict[str, Scores], labels: Tensor, human: np.ndarray) -> None:
    """Add all rows: single scores first, then what needs several passes."""
    chances = {name: [values.double().softmax(1) for values in one.logits] for name, one in found.items()}
    people: dict[str, dict[str, Any]] = {}
    weights = replicate_weights(len(labels), "cpu").numpy()
    for name, one in found.items():
        classes = [values.argmax(1) for values in one.logits]
        wrong = [values != labels for values in classes]
        rows: dict[str, tuple[str, list[Tensor]]] = {
            score: ("probe" if score.startswith("probe") else "single", values) for score, values in one.scores.items()
        }
        others = [chances[other] for other in found if other != name]
        means = {
            "image and mirror image": [
                (a + b.double().softmax(1)) / 2 for a, b in zip(chances[name], one.mirrored, strict=True)
            ],
            "ensemble of 4": _means([chances[name], *others]),
            "ensemble of the other 3": _means(others),
        }
        for row, mean in means.items():
            values = [contrast(each, predicted) for each, predicted in zip(mean, classes, strict=True)]
            rows[f"{row}, contrast"] = ("many", values)
            rows[f"{row}, entropy"] = ("many", [entropy(each) for each in mean])
        accuracy = {"network": classes, **one.posteriors}
        accuracy |= {row: [each.argmax(1) for each in mean] for row, mean in means.items()}
        record.facts["accuracy"][name] = {
            who: [round(float((c == labels).double().mean()), 5) for c in chosen] for who, chosen in accuracy.items()
        }
        people[name] = {}
        for row, (kind, values) in rows.items():
            record.add(name, row, kind, values, wrong)
            value, drawn = rank_correlation(values[0].double().cpu().numpy(), human, weights)
            people[name][row] = [round(value, 4), *(round(float(v), 4) for v in np.std(drawn, keepdims=True))]
        error = wrong[0].double().cpu().numpy()
        people[name]["whether the network is wrong"] = [round(rank_correlation(error, human, weights)[0], 4), 0.0]
    record.facts["people"] = people


def _means(members: list[list[Tensor]]) -> list[Tensor]:
    return [torch.stack(condition).mean(0) for condition in zip(*members, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/real"))
    parser.add_argument("--small", action="store_true", help="a few training images, six conditions")
    chosen = parser.parse_args()
    say = Clock()
    data = load(chosen.data, chosen.device, small=chosen.small)
    listed: list[Condition] = of_images()[:: 40 if chosen.small else 1]
    record = Record(listed)
    record.facts["device"] = torch.cuda.get_device_name() if chosen.device == "cuda" else "cpu"
    record.facts["images"] = {name: len(getattr(data, name).inputs) for name in ("train", "held_out", "test")}
    fitted = {}
    for name in resnets.BLOCKS:
        net = resnets.load(name, chosen.weights).to(chosen.device)
        fitted[name] = fit(net, data, record, name, chosen.device)
        say(f"{name} fitted; missing: {record.facts['missing'][name]}")
    found = {name: Scores() for name in fitted}
    for number, condition in enumerate(listed):
        images = apply(data.test.inputs, condition)
        for name, one in fitted.items():
            found[name].add(one, images)
        if number % 20 == 0:
            say(f"condition {number} of {len(listed)} scored")
    write_rows(record, found, data.test.targets, data.human)
    record.facts["seconds"] = say.seconds
    record.write(chosen.out / "cifar")
    say("done")


if __name__ == "__main__":
    main()
