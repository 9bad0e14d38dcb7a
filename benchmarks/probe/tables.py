"""Tables and numbers of the probe study for README.md, docs/research/probe.md and its appendix."""

from __future__ import annotations

import json
from functools import cache

import numpy as np

from evidence.marks import table, value
from evidence.results import Results, grid, markdown, number, signed, slashed
from probe.reading import GROUPS, PAIRS, SETS, Pair, Study, heads

BOTH = ("roc_auc", "pr_auc")
OURS, RIVAL = "probe", "ensemble of 10, contrast"
SET_NAMES = {"lenets": "LeNets", "cifar": "CIFAR-10"}
NAMES = {
    "probe": "**qipf.default (the probe)**",
    "probe, head alone": "probe, head alone",
    "logistic head on the same data": "logistic head on the same perturbed images",
    "probe without perturbations": "probe without perturbed images",
    "ensemble of 10, contrast": "ensemble of 10, contrast of the predicted class",
    "ensemble of 10, entropy": "ensemble of 10, entropy of the mean",
    "MC dropout, contrast": "MC dropout, 20 passes, contrast†",
    "MC dropout, entropy": "MC dropout, 20 passes, entropy†",
    "previous default (class fields)": "class fields (the previous default)",
    "entropy": "entropy of the softmax",
    "max softmax": "max softmax",
    "contrast, temperature fitted": "contrast, fitted temperature",
    "max logit": "max logit",
    "max logit, p-norm": "max logit, p-norm",
    "energy": "energy",
    "GEN": "GEN",
    "Doctor": "Doctor",
    "QIPF, exact operator": "the paper's QIPF, exact operator",
    "QIPF, authors' program": "the paper's QIPF, authors' program",
    "KNN": "KNN",
    "Mahalanobis": "Mahalanobis",
    "ViM": "ViM",
    "last-layer Laplace": "last-layer Laplace",
    "network retrained on perturbed images, contrast": "a second network, trained on perturbed images, contrast‡",
    "ensemble of 5 retrained on perturbed images, contrast": "ensemble of 5, trained on perturbed images, contrast‡",
}
"""The quoted scores and their titles."""
FEWER = (
    "† Measured on 2,000 of the 8,000 images. ‡ Requires training new networks; not measured on ResNet-18. "
    "Class fields were measured only in the first run. Scores that were not measured on every pair have no mean."
)


@cache
def study(results: Results) -> Study:
    """Return the measurements, which are read only once."""
    return Study(results.folder / "probe")


@table("probe-short")
def short(results: Results) -> str:
    """Return the difference from the ensemble by column, without intervals."""
    found = study(results)
    groups = {group: words for group, words in GROUPS.items() if group != "ood"}
    groups["no weather"] = "the same, without fog and snow"
    order = ("shift", "geometric", "unseen", "strict", "no weather", "resembling", "clean")

    def cell(group: str, only: str) -> str:
        return " / ".join(f"{found.difference(OURS, RIVAL, group, metric, only).value:+.3f}" for metric in BOTH)

    columns = {**SET_NAMES, "": "all four pairs"}
    return grid("probe minus ensemble of ten", {group: groups[group] for group in order}, columns, cell)


@table("probe-{group}", group=GROUPS)
@table("probe-aurc", group="shift", metrics=("aurc",))
def column(results: Results, group: str, metrics: tuple[str, ...] = BOTH) -> str:
    """Return all scores in one column."""
    found = study(results)
    places = [*found.pairs.values(), found]
    values = {Pair: Pair.value, Study: Study.mean}
    cells = np.array([[[values[type(p)](p, s, group, m) for m in metrics] for p in places] for s in NAMES])
    order = np.argsort(-cells[:, -1, 0] if metrics[0] != "aurc" else cells[:, -1, 0], kind="stable")
    names = list(NAMES.values())
    rows = [[names[n], *(slashed(cell) for cell in cells[n])] for n in order]
    what = {"roc_auc": "ROC-AUC", "pr_auc": "average precision", "aurc": "AURC, lower is better"}
    return markdown([" / ".join(what[m] for m in metrics), *heads(found.pairs), "mean"], rows, FEWER)


@table("probe-families-{group}", group=("shift", "unseen", "resembling"))
def families(results: Results, group: str) -> str:
    """Return ROC-AUC / average precision by family, mean over pairs."""
    found = study(results)
    shown = ("probe", "ensemble of 10, contrast", "entropy")

    def cell(family: str, score: str) -> str:
        means = [[pair.family(score, group, family, m) for pair in found.pairs.values()] for m in BOTH]
        return slashed(np.mean(means, axis=1))

    listed = next(iter(found.pairs.values())).families(group)
    names = {family: family.replace("-", " ") for family in listed}
    return grid("family", names, {score: NAMES[score] for score in shown}, cell)


@table("probe-differences")
def differences(results: Results) -> str:
    """Return the differences from the ensemble."""
    found = study(results)
    rows = []
    for group, words in GROUPS.items():
        if group == "ood":
            continue
        for metric, name in (("roc_auc", "ROC-AUC"), ("pr_auc", "average precision")):
            cells = [signed(found.difference(OURS, RIVAL, group, metric, only)) for only in (*found.pairs, "")]
            rows.append([f"{words}, {name}", *cells])
    return markdown(["probe minus ensemble's contrast", *heads(found.pairs), "mean"], rows)


@table("probe-accuracy")
def accuracy(results: Results) -> str:
    """Return the accuracy of the network, the ensemble and the posterior."""
    found = study(results)
    who = {"network": "the network itself", "ensemble": "ensemble of 10", "probe": "**posterior of the probe**"}
    who["probe, head alone"] = "its head alone"
    rows = []
    for group in ("clean", "shift", "unseen"):
        for name, words in who.items():
            values = [pair.accuracy(name, group) for pair in found.pairs.values()]
            rows.append([f"{GROUPS[group]}: {words}", *(number(value) for value in (*values, float(np.mean(values))))])
    return markdown(["accuracy", *heads(found.pairs), "mean"], rows)


@table("probe-bars")
def bars(results: Results) -> str:
    """Return the criteria of the protocol with the measured values."""
    found = study(results)

    def gaps(group: str) -> str:
        both = [found.difference(OURS, RIVAL, group, metric).value for metric in BOTH]
        return " ROC-AUC, ".join(f"{value:+.3f}" for value in both) + " average precision"

    pairs = list(found.pairs.values())
    least = min(pair.value(OURS, "shift") - pair.value(RIVAL, "shift") for pair in pairs)
    clean = min(pair.value(OURS, "clean") - pair.value("entropy", "clean") for pair in pairs)
    ahead = min(pair.accuracy(OURS, "shift") - pair.accuracy("ensemble", "shift") for pair in pairs)
    kept = min(pair.accuracy(OURS, "clean") - pair.accuracy("network", "clean") for pair in pairs)
    rows = [
        ["shifts, gain over the ensemble's contrast", "+.03 ROC-AUC, +.02 average precision", gaps("shift")],
        ["shifts, smallest gain of a pair in ROC-AUC", "not below 0", f"{least:+.3f}"],
        ["unseen families, gain over the ensemble's contrast", "+.02 ROC-AUC, +.01 average precision", gaps("unseen")],
        ["clean, smallest gain of a pair over entropy", "not below 0", f"{clean:+.3f}"],
        ["clean, mean ROC-AUC", "target .955", number(found.mean(OURS, "clean"))],
        ["shifts, smallest gain of a pair in accuracy over the ensemble", "above 0", f"{ahead:+.3f}"],
        [
            "clean, smallest gain of a pair in accuracy over the network",
            "not below -.003",
            f"{kept:+.4f}",
        ],
    ]
    return markdown(["comparison", "criterion", f"measured, {len(pairs)} pairs"], rows)


@value("probe")
def one(results: Results, group: str, metric: str, score: str, pair: str = "") -> str:
    """Return one number."""
    found = study(results)
    alone = found.pairs.get(pair)
    return number(alone.value(score, group, metric) if alone else found.mean(score, group, metric, pair))


@value("probe-gap")
def gap(results: Results, group: str, metric: str, pair: str = "") -> str:
    """Return the difference from the ensemble in one metric or, without intervals, in "both"."""
    found = study(results)
    if metric == "both":
        return " / ".join(f"{found.difference(OURS, RIVAL, group, one, pair).value:+.3f}" for one in BOTH)
    return signed(found.difference(OURS, RIVAL, group, metric, pair))


@value("probe-gaps")
def gaps(results: Results, group: str, metric: str, *pairs: str) -> str:
    """Return the differences from the ensemble by pair."""
    return " and ".join(f"{study(results).difference(OURS, RIVAL, group, metric, pair).value:+.3f}" for pair in pairs)


@value("probe-cifar")
def on_cifar(results: Results, family: str) -> str:
    """Return the differences from the ensemble on CIFAR-10."""
    return gaps(results, f"shift: {family}", "roc_auc", *SETS["cifar"])


AGAIN = "ensemble of 5 retrained on perturbed images, contrast"


@table("probe-again")
def again(results: Results) -> str:
    """Return the probe and networks trained on the same perturbed images."""
    found = {name: pair for name, pair in study(results).pairs.items() if pair.of(AGAIN)}
    rows = []
    for group in ("shift", "unseen", "clean"):
        for score in (OURS, "network retrained on perturbed images, contrast", AGAIN, RIVAL):
            values = [[pair.value(score, group, metric) for metric in BOTH] for pair in found.values()]
            cells = [slashed(both) for both in (*values, np.mean(values, axis=0))]
            rows.append([f"{GROUPS[group]}: {NAMES[score].rstrip('‡')}", *cells])
    return markdown(["ROC-AUC / average precision", *(PAIRS[name] for name in found), "mean"], rows)


@value("probe-again")
def ahead(results: Results, group: str, metric: str, pair: str) -> str:
    """Return the lead of five retrained networks over the probe."""
    return signed(study(results).difference(AGAIN, OURS, group, metric, pair))


DEVELOPMENT = dict(zip(("mnist-len", "kmnis-len", "cifar-vgg", "cifar-res"), PAIRS.values(), strict=True))
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
    "4 draws, logits in": "four copies, logits as additional inputs",
    "4 draws: prob avg .8/.2": "four copies, 0.8 head and 0.2 softmax",
    "4 draws: prob avg": "four copies, 0.5 head and 0.5 softmax",
}


@table("probe-tried")
def tried(results: Results) -> str:
    """Return the results of other settings."""
    rows = {(row["pair"], _tag(row["tag"])): row for row in results.json("probe/development.json")}
    return grid(
        "ROC-AUC / average precision under shift / ROC-AUC clean",
        TRIED,
        DEVELOPMENT,
        lambda tag, pair: slashed([*rows[pair, tag]["shifts"][:2], rows[pair, tag]["clean"][0]]),
    )


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


@table("probe-held-out-share")
def held_out_share(results: Results) -> str:
    """Return the ROC-AUC by weights of head and softmax."""
    found = results.json("probe/held-out-share.json")
    lines = [
        [words, *(slashed([found[task]["roc_auc"][way][part] for part in ("clean", "shift")]) for task in HELD_OUT)]
        for way, words in WAYS.items()
    ]
    lines.append(["chosen share", *(f"{found[task]['share']:g}" for task in HELD_OUT)])
    return markdown(["ROC-AUC clean / shift", *HELD_OUT.values()], lines)


def _tag(text: str) -> str:
    name, _, end = text.strip().rpartition(" (")
    return name if end.endswith("s)") else text.strip()


@table("probe-transformers")
def transformers(results: Results) -> str:
    """Return the ROC-AUC on vision transformers."""
    found = results.json("probe/transformers.json")
    kinds = {1: "class token", 2: "two heads"}
    rows = []
    for group in ("clean", "shift", "unseen", "resembling"):
        for score in ("probe", "entropy", "max logit", "energy"):
            cells = [number(one["scores"][score][group][0]) for one in found]
            rows.append([f"{GROUPS[group]}: {NAMES[score]}", *cells])
    return markdown(["ROC-AUC", *(f"{kinds[one['heads']]}, seed {one['seed']}" for one in found)], rows)


COSTS = {
    "fit_quick_in_trainings": "quick fitting / training time",
    "fit_standard_in_trainings": "standard fitting / training time",
    "fit_thorough_in_trainings": "thorough fitting / training time",
    "added_passes_per_batch": "scoring, added forward passes",
    "added_milliseconds_batch_1": "scoring one input, added milliseconds",
}


@table("probe-cost")
def cost(results: Results) -> str:
    """Return the costs of the probe."""
    machines = [json.loads(path.read_text()) for path in sorted((results.folder / "probe").glob("cost-*.json"))]
    names = {"lenet": "LeNet", "vgg3": "VGG-3", "resnet18": "ResNet-18"}
    columns = [(machine, name) for machine in machines for name in names if name in machine]
    rows = [[words, *(f"{machine[name][key]:.3g}" for machine, name in columns)] for key, words in COSTS.items()]
    return markdown(["cost", *(f"{names[name]}, {machine['machine']}" for machine, name in columns)], rows)
