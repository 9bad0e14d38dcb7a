"""The authors' own networks: their LeNets, ensembles and SVI-LL networks for MNIST and K-MNIST.

python benchmarks/authors_networks.py CHECKPOINTS [--data FOLDER] [--out results/authors]     # minutes on two cores

CHECKPOINTS is the folder `Models/finetuned` of their repository DL_Uncertainty_Quantification (md_mni.h5,
svi_ll_mni.h5, ensemble/mnist/0.h5 to 9.h5, and the same for kmni / kmnist). Their two SVI networks are missing from the
copy of the repository that was used. The first 1,000 test images and 30 passes of MC dropout, as in their program,
under every shift of the study at every second intensity. Every definition in use scores the passes.

For each dataset it writes DATASET.csv (one row per condition and score) and DATASET.json (calibration of the predicted
probability, fewer passes, the standard error due to the choice of images, histograms, modes).
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from scipy.stats import rankdata
from torch import Tensor

from qipf import collect
from qipf.metrics import brier, ece, evaluate, roc_auc
from qipf.models.keras_files import load_keras, read_keras_layers
from qipf.predictive import AUTHORS_SETTINGS, DeepEnsemble, MCDropout, MCDropoutLastLayer, Predictive, SVILastLayer
from qipf.scores import WeightQIPF
from qipf.study import datasets, shifts
from rounding import rounded

IMAGES, REFERENCES, PASSES, MEMBERS, RESAMPLES, BINS = 1000, 20_000, 30, 10, 200, 50
NAMES = {"mnist": "mni", "kmnist": "kmni"}
METRICS = ("roc_auc", "pr_auc", "ece_paper", "brier_paper", "point_biserial", "spearman")
FEWER = {"mc-dropout": (2, 5, 10, 20, 30), "ensemble": (2, 3, 5, 10)}
BLOCKS = ((1, 5, 1, 1), (1, 5, 6, 1), (10, 10), (5, 8), (1, 5))
"""The blocks that the authors average kernels over, in the layout of Keras."""
ONE_PASS, DRAWS = "svi-ll (max_logit_one_pass)", 10
HISTOGRAM = ("rotation", 270)
SCALE = "kernel_posterior_untransformed_scale:0"


def main() -> None:
    """Measure the datasets and write two files for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("--data", help="folder with the datasets' files; QIPF_DATA if left out")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "authors")
    parser.add_argument("--only", choices=list(NAMES), action="append", help="one dataset; both if left out")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for dataset in given.only or NAMES:
        rows, facts = _measured(given.checkpoints, dataset, given.data)
        with (given.out / f"{dataset}.csv").open("w", newline="") as file:
            heads = ["dataset", "shift", "intensity", "error_rate", "score", *METRICS]
            csv.writer(file, lineterminator="\n").writerows([heads, *rows])
        facts = {"images": IMAGES, **facts}
        (given.out / f"{dataset}.json").write_text(json.dumps(facts, indent=1) + "\n")


def _measured(folder: Path, dataset: str, data_folder: str | None) -> tuple[list[list[Any]], dict[str, Any]]:
    data = datasets.load(dataset, data=data_folder, download=False)
    images, labels = data.test.inputs[:IMAGES], data.test.targets[:IMAGES]
    path = folder / f"md_{NAMES[dataset]}.h5"
    net = load_keras(path)
    reference = collect(net, data.train.inputs[:REFERENCES], features=False, progress=False).numpy()
    scorers = {
        "qipf-published": WeightQIPF(operator="published", factor=80, pool=BLOCKS).fit(path, reference),
        "qipf-160": WeightQIPF(factor=160, pool=BLOCKS).fit(path, reference),
        "qipf-80": WeightQIPF(factor=80, pool=BLOCKS).fit(path, reference),
    }
    methods = _methods(folder, dataset, net, data.train)
    conditions = [("clean", 0.0), *((name, t) for name, ts in shifts.SHIFTS.items() for t in ts[1::2])]
    scores, wrongs, rows = [], [], []
    chances: dict[str, list[tuple[float, float]]] = {}
    fewer: dict[str, list[float]] = {}
    for name, intensity in conditions:
        x = images if name == "clean" else shifts.apply(images, name, intensity)
        outputs = collect(net, (x, labels), features=False, progress=False).numpy()
        correct = np.asarray(outputs.correct)
        passes = {key: np.asarray(method.sample(x), np.float64) for key, method in methods.items()}
        own = _scores(outputs, scorers, passes, methods, x)
        scores.append(own)
        wrongs.append(~correct)
        for key, u in own.items():
            numbers = one_pass(methods, x, correct) if key == ONE_PASS else _metrics(u, correct)
            rows.append([dataset, name, intensity, round(float((~correct).mean()), 4), key, *numbers])
        if name == "clean":
            continue
        _calibrated(chances, outputs, passes, np.asarray(labels))
        for key, counts in FEWER.items():
            for count in counts:
                part = passes[key][:count]
                fewer.setdefault(f"{key}, {count}, std", []).append(roc_auc(_deviation(part), correct))
                fewer.setdefault(f"{key}, {count}, entropy", []).append(roc_auc(_entropy(part.mean(0)), correct))
    at = conditions.index(HISTOGRAM)
    facts: dict[str, Any] = {
        "accuracy": round(float(1 - wrongs[0].mean()), 4),
        "calibration": {
            key: {"ece": float(np.mean([e for e, _ in pairs])), "brier": float(np.mean([b for _, b in pairs]))}
            for key, pairs in chances.items()
        },
        "passes": {key: float(np.nanmean(values)) for key, values in fewer.items()},
        "image standard error": _image_errors(scores[1:], wrongs[1:]),
        "overlap": {key: _overlap(u, wrongs[at]) for key, u in scores[at].items()},
        "modes": _modes(scorers, net, images),
        "shuffled weights": _shuffled(path, reference, net, images),
    }
    return rows, rounded(facts)


def one_pass(methods: dict[str, Predictive], x: Tensor, correct: np.ndarray) -> list[float]:
    """The metrics of minus the largest logit of one Flipout pass, mean over draws, each shared by many images."""
    found = [methods["svi-ll"].summarise(x, 1, seed=seed, progress=False) for seed in range(DRAWS)]
    values = [_metrics(np.asarray(one.minus_max_logit_of_one_pass, np.float64), correct) for one in found]
    return [round(float(value), 4) for value in np.mean(values, axis=0)]


def _metrics(u: np.ndarray, correct: np.ndarray) -> list[float]:
    values = evaluate(u, correct, bootstrap=0)
    return [round(float(values[metric]), 4) for metric in METRICS]


def _methods(folder: Path, dataset: str, net: Any, train: Any) -> dict[str, Predictive]:
    few = (train.inputs[:2], train.targets[:2])
    state: dict[str, Tensor] = {"example": train.inputs[:2], "classes": torch.tensor(True)}
    members = [load_keras(folder / "ensemble" / dataset / f"{k}.h5") for k in range(MEMBERS)]
    first = dict(members[0].state_dict())
    stacked = {  # the members' layers have other names, and the same order
        f"members.{name}": torch.stack([list(member.state_dict().values())[place] for member in members])
        for place, name in enumerate(first)
    }
    path = folder / f"svi_ll_{NAMES[dataset]}.h5"
    random, last = load_keras(path), read_keras_layers(path)[-1]
    tensors = {f"net.{name}": value for name, value in random.state_dict().items() if not name.startswith(last.name)}
    tensors |= {
        f"net.{last.name}.layer.{part}": value for part, value in random.get_submodule(last.name).state_dict().items()
    }
    tensors[f"net.{last.name}.rho"] = torch.from_numpy(last.arrays[SCALE]).T.contiguous()
    options = AUTHORS_SETTINGS["mc-dropout-ll"]
    return {
        "mc-dropout": MCDropout(0.1, passes=PASSES).fit(net, few, progress=False),
        "mc-dropout-ll": MCDropoutLastLayer(0.2, passes=PASSES, **options).fit(net, few, progress=False),
        "svi-ll": SVILastLayer(passes=PASSES).load_state(random, {**state, **tensors}),
        "ensemble": DeepEnsemble(MEMBERS).load_state(members[0], {**state, **stacked}),
    }


def _scores(outputs: Any, scorers: Any, passes: Any, methods: Any, x: Tensor) -> dict[str, np.ndarray]:
    chances = softmax(np.asarray(outputs.logits, np.float64), axis=1)
    found = {key: np.asarray(scorer(outputs), np.float64) for key, scorer in scorers.items()}
    found["max-logit"] = -np.asarray(outputs.logits, np.float64).max(axis=1)
    found["softmax-response"] = 1 - chances.max(axis=1)
    found["entropy"] = _entropy(chances)
    base = chances.argmax(axis=1)
    for key, values in passes.items():
        found[f"{key} (std_mean_class)"] = _deviation(values)
        found[key] = values.std(axis=0)[np.arange(len(base)), base]
        found[f"{key} (entropy)"] = _entropy(values.mean(axis=0))
    one = methods["svi-ll"].summarise(x, 1, progress=False).minus_max_logit_of_one_pass
    found[ONE_PASS] = np.asarray(one, np.float64)
    return found


def _calibrated(chances: dict[str, list[Any]], outputs: Any, passes: Any, labels: np.ndarray) -> None:
    """ECE and Brier score with the predicted probability as confidence, of each method's own prediction."""
    means = {"base network": softmax(np.asarray(outputs.logits, np.float64), axis=1)}
    means |= {key: values.mean(axis=0) for key, values in passes.items()}
    for key, mean in means.items():
        error, right = 1 - mean.max(axis=1), mean.argmax(axis=1) == labels
        chances.setdefault(key, []).append((ece(error, right), brier(error, right).score))


def _deviation(passes: np.ndarray) -> np.ndarray:
    """The standard deviation of the class that the mean prefers: the authors' program."""
    predicted = passes.mean(axis=0).argmax(axis=1)
    return passes.std(axis=0)[np.arange(len(predicted)), predicted]


def _entropy(chances: np.ndarray) -> np.ndarray:
    return -(chances * np.log(np.maximum(chances, 1e-300))).sum(axis=1)


def _image_errors(scores: list[dict[str, np.ndarray]], wrongs: list[np.ndarray]) -> dict[str, float]:
    """The standard error of the mean difference in ROC-AUC to the authors' QIPF, when images are drawn again."""
    generator = np.random.default_rng(0)
    drawn: dict[str, list[float]] = {key: [] for key in scores[0]}
    for _ in range(RESAMPLES):
        rows = generator.integers(IMAGES, size=IMAGES)
        means = {
            key: np.mean([_area(s[key][rows], w[rows]) for s, w in zip(scores, wrongs, strict=True)]) for key in drawn
        }
        for key, value in means.items():
            drawn[key].append(float(means["qipf-published"] - value))
    return {key: float(np.std(values, ddof=1)) for key, values in drawn.items() if key != "qipf-published"}


def _area(scores: np.ndarray, wrong: np.ndarray) -> float:
    """ROC-AUC by ranks, without the checks of `qipf.metrics`, for many resamples."""
    positive = wrong.sum()
    if not 0 < positive < len(wrong):
        return 0.5
    rank = rankdata(scores)[wrong].sum()
    return float((rank - positive * (positive + 1) / 2) / (positive * (len(wrong) - positive)))


def _overlap(scores: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """The common area of the histograms of right and wrong predictions, and the distance of their modes.

    Scores are scaled to [0, 1] over the set, as in Figure 4 a; the distance is in standard deviations of all scores.
    """
    scaled = (scores - scores.min()) / (scores.max() - scores.min())
    parts = [np.histogram(scaled[chosen], BINS, (0, 1))[0] / chosen.sum() for chosen in (wrong, ~wrong)]
    modes = [float(part.argmax()) / BINS for part in parts]
    return {
        "overlap": float(np.minimum(*parts).sum()),
        "distance": (modes[0] - modes[1]) / float(scaled.std()),
        "roc_auc": roc_auc(scores, ~wrong),
    }


def _modes(scorers: dict[str, WeightQIPF], net: Any, images: Tensor) -> dict[str, list[float]]:
    """The median of each mode over the clean test images, orders 2, 4, 6 and 8."""
    outputs = collect(net, images, features=False, progress=False).numpy()
    return {
        key: [float(value) for value in np.median(np.asarray(scorer.modes(outputs)), axis=0)]
        for key, scorer in scorers.items()
    }


def _shuffled(path: Path, reference: Any, net: Any, images: Tensor) -> dict[str, float]:
    """Scores from the weights in random order: the network is destroyed, its weights are the same numbers."""
    outputs = collect(net, images, features=False, progress=False).numpy()
    kernels = [layer.arrays["kernel:0"] for layer in read_keras_layers(path) if "kernel:0" in layer.arrays]
    values = np.concatenate([kernel.ravel() for kernel in kernels])
    mixed = np.random.default_rng(0).permutation(values)
    own, other = (
        np.asarray(WeightQIPF(factor=80, pool=None).fit([part.reshape(-1, 10)], reference)(outputs))
        for part in (values, mixed)
    )
    return {"largest difference": float(np.abs(own - other).max()), "largest score": float(own.max())}


if __name__ == "__main__":
    main()
