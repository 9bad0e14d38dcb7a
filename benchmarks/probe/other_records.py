"""Tables from the smaller records of the probe: settings that were tried, transformers, and what it costs."""

from __future__ import annotations

import json

from evidence.results import Results, markdown, number
from probe.names import NAMES, slashed
from probe.reading import GROUPS

DEVELOPMENT = {
    "mnist-len": "MNIST LeNet",
    "kmnis-len": "K-MNIST LeNet",
    "cifar-vgg": "CIFAR-10 VGG-3",
    "cifar-res": "CIFAR-10 ResNet-18",
}
TRIED = {
    "0 draws": "no perturbed copies",
    "1 draw": "one perturbed copy",
    "4 draws": "four perturbed copies",
    "8 draws": "eight perturbed copies",
    "4 draws, 512": "four copies, 512 hidden units",
    "4 draws, 4 epochs": "four copies, 4 epochs",
    "4 draws, 16 epochs": "four copies, 16 epochs",
    "4 draws, wd .5": "four copies, weight decay 0.5",
    "4 draws, idrop .2": "four copies, input dropout 0.2",
    "4 draws, smooth .05": "four copies, label smoothing 0.05",
    "4 draws, clean x3": "four copies, clean images three times",
    "4 draws, logits in": "four copies, logits as further inputs",
    "4 draws: prob avg .8/.2": "four copies, averaged with the softmax, 0.8 to 0.2",
    "4 draws: prob avg": "four copies, averaged with the softmax, equal parts",
}


def tried(results: Results) -> str:
    """Settings that were tried in development, on training images alone."""
    rows = {
        (row["pair"], _tag(row["tag"])): row
        for row in json.loads((results.folder / "probe" / "development.json").read_text())
    }
    lines = []
    for tag, words in TRIED.items():
        cells = [slashed([*rows[pair, tag]["shifts"][:2], rows[pair, tag]["clean"][0]]) for pair in DEVELOPMENT]
        lines.append([words, *cells])
    return markdown(["shifts: ROC-AUC / average precision / clean: ROC-AUC", *DEVELOPMENT.values()], lines)


HELD_OUT = {
    "mnist": "MNIST LeNet",
    "kmnist": "K-MNIST LeNet",
    "resnet20": "CIFAR-10 ResNet-20",
    "imagenet": "ImageNet EfficientNet-Lite0",
}
WAYS = {
    "share 1": "softmax alone",
    "share 0": "head alone",
    "share 0.2": "softmax 0.2, fixed",
    "share 0.5": "softmax 0.5, fixed",
    "share 0.8": "softmax 0.8, fixed",
    "chosen share": "share chosen on held-out inputs",
    "regression": "logistic regression on held-out inputs",
}


def held_out_share(results: Results) -> str:
    """ROC-AUC of ways to weigh head and softmax, on images that no other study judges."""
    found = results.json("probe/held-out-share.json")
    lines = [
        [words, *(slashed([found[task]["roc_auc"][way][part] for part in ("clean", "shift")]) for task in HELD_OUT)]
        for way, words in WAYS.items()
    ]
    lines.append(["the share that was chosen", *(f"{found[task]['share']:g}" for task in HELD_OUT)])
    return markdown(["ROC-AUC clean / shift", *HELD_OUT.values()], lines)


def _tag(text: str) -> str:
    name, _, end = text.strip().rpartition(" (")
    return name if end.endswith("s)") else text.strip()


def transformers(results: Results) -> str:
    """ROC-AUC on vision transformers that were trained for this purpose, by kind and seed."""
    found = json.loads((results.folder / "probe" / "transformers.json").read_text())
    kinds = {1: "class token", 2: "two heads"}
    rows = []
    for group in ("clean", "shift", "unseen", "resembling"):
        for score in ("probe", "entropy", "max logit", "energy"):
            cells = [number(one["scores"][score][group][0]) for one in found]
            rows.append([f"{GROUPS[group]}: {NAMES[score]}", *cells])
    return markdown(["ROC-AUC", *(f"{kinds[one['heads']]}, seed {one['seed']}" for one in found)], rows)


COSTS = {
    "fit_quick_in_trainings": "fitting, quick, in trainings of the network",
    "fit_standard_in_trainings": "fitting, standard, in trainings",
    "fit_thorough_in_trainings": "fitting, thorough, in trainings",
    "added_passes_per_batch": "scoring, in forward passes",
    "added_milliseconds_batch_1": "scoring one input, milliseconds",
}


def cost(results: Results) -> str:
    """What the probe costs, in trainings and forward passes of the network, from every record of probe/cost.py."""
    machines = [json.loads(path.read_text()) for path in sorted((results.folder / "probe").glob("cost-*.json"))]
    names = {"lenet": "LeNet", "vgg3": "VGG-3", "resnet18": "ResNet-18"}
    columns = [(machine, name) for machine in machines for name in names if name in machine]
    rows = [[words, *(f"{machine[name][key]:.3g}" for machine, name in columns)] for key, words in COSTS.items()]
    return markdown(["cost", *(f"{names[name]}, {machine['machine']}" for machine, name in columns)], rows)
