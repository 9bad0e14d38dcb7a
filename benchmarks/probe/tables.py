"""The tables and numbers of the probe study, as docs/research/probe.md and README.md quote them.

`python benchmarks/reproduction.py --write` puts them between the marks of these pages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np

from evidence.results import Results, markdown, number, signed
from probe.names import NAMES, slashed
from probe.other_records import cost, held_out_share, transformers, tried
from probe.reading import GROUPS, PAIRS, Pair, Study

BOTH = ("roc_auc", "pr_auc")
OURS, RIVAL = "probe", "ensemble of 10, contrast"
SHORT = (
    "probe",
    "ensemble of 10, contrast",
    "ensemble of 10, entropy",
    "entropy",
    "max logit",
    "QIPF, authors' program",
)
PASSES = {"ensemble of 10": "10", "MC dropout": "20"}
FEWER = (
    "† on 2,000 of the 8,000 images. ‡ for those who may train again; not on ResNet-18. Class fields were measured in "
    "the first run alone. A score that is missing on a pair has no mean."
)


@cache
def study(folder: Path) -> Study:
    """The record, read once."""
    return Study(folder / "probe")


def _of(results: Results) -> Study:
    return study(results.folder)


def _heads(found: Study) -> list[str]:
    return [PAIRS[name] for name in found.pairs]


def readme(results: Results) -> str:
    """The one table of the README: shifts by pair, and the means of the other columns; ROC-AUC / average precision."""
    found = _of(results)
    places: list[Callable[[str, str], float]] = [partial(_value, pair) for pair in found.pairs.values()]
    places += [partial(_mean, found, group) for group in ("shift", "unseen", "clean")]
    grid = np.array([[[place(score, m) for m in BOTH] for place in places] for score in SHORT])
    best = np.max(np.round(grid, 3), axis=0)
    rows = []
    for score, line in zip(SHORT, grid, strict=True):
        cells = [slashed(list(cell), top) for cell, top in zip(line, best, strict=True)]
        rows.append([NAMES[score], *cells, _passes(score)])
    heads = ["score", *_heads(found), "mean", "unseen corruptions", "clean", "forward passes"]
    return markdown(heads, rows)


def _value(pair: Pair, score: str, metric: str) -> float:
    return pair.value(score, "shift", metric)


def _mean(found: Study, group: str, score: str, metric: str) -> float:
    return found.mean(score, group, metric)


def _passes(score: str) -> str:
    return next((passes for name, passes in PASSES.items() if score.startswith(name)), "1")


def column(results: Results, group: str, metrics: tuple[str, ...] = BOTH) -> str:
    """Every score in one column of the study, by pair and on average."""
    found = _of(results)
    places = [*found.pairs.values(), found]
    values = {Pair: Pair.value, Study: Study.mean}
    grid = np.array([[[values[type(p)](p, s, group, m) for m in metrics] for p in places] for s in NAMES])
    order = np.argsort(-grid[:, -1, 0] if metrics[0] != "aurc" else grid[:, -1, 0], kind="stable")
    names = list(NAMES)
    rows = [[NAMES[names[n]], *(slashed(list(cell)) for cell in grid[n])] for n in order]
    what = {"roc_auc": "ROC-AUC", "pr_auc": "average precision", "aurc": "AURC, lower is better"}
    return markdown([" / ".join(what[m] for m in metrics), *_heads(found), "mean"], rows, FEWER)


def families(results: Results, group: str) -> str:
    """ROC-AUC / average precision by family, mean of the pairs."""
    found = _of(results)
    shown = ("probe", "ensemble of 10, contrast", "entropy")
    rows = []
    for family in next(iter(found.pairs.values())).families(group):
        cells = []
        for score in shown:
            means = [[p.family(score, group, family, m) for p in found.pairs.values()] for m in BOTH]
            cells.append(slashed([float(value) for value in np.mean(means, axis=1)]))
        rows.append([family.replace("-", " "), *cells])
    return markdown(["family", *(NAMES[score] for score in shown)], rows)


def differences(results: Results) -> str:
    """The probe minus the ensemble's contrast, with 95 % intervals."""
    found = _of(results)
    rows = []
    for group, words in GROUPS.items():
        if group == "ood":
            continue
        for metric, name in (("roc_auc", "ROC-AUC"), ("pr_auc", "average precision")):
            cells = [signed(found.difference(OURS, RIVAL, group, metric, only)) for only in (*found.pairs, "")]
            rows.append([f"{words}, {name}", *cells])
    return markdown(["probe minus ensemble's contrast", *_heads(found), "mean"], rows)


def accuracy(results: Results) -> str:
    """The share of right classes of network, ensemble and posterior."""
    found = _of(results)
    who = {"network": "the network itself", "ensemble": "ensemble of 10", "probe": "**posterior of the probe**"}
    who["probe, head alone"] = "its head alone"
    rows = []
    for group in ("clean", "shift", "unseen"):
        for name, words in who.items():
            values = [pair.accuracy(name, group) for pair in found.pairs.values()]
            rows.append([f"{GROUPS[group]}: {words}", *(number(value) for value in (*values, float(np.mean(values))))])
    return markdown(["accuracy", *_heads(found), "mean"], rows)


def efforts(results: Results) -> str:
    """The three efforts on the first network of every pair, with seconds of fitting and the size of the file."""
    found = _of(results)
    rows = []
    for words, name in (("quick", "probe, quick"), ("standard", "probe"), ("thorough", "probe, thorough")):
        cells = []
        for pair in found.pairs.values():
            values = slashed([pair.value(name, "shift", metric, pair.bases[0]) for metric in BOTH])
            seconds, size = pair.facts["fit_seconds"][name], pair.facts["file_bytes"][name][0]
            cells.append(f"{values}; {min(seconds):.1f} s, {size / 1e6:.1f} MB")
        rows.append([words, *cells])
    return markdown(["effort", *_heads(found)], rows)


def bars(results: Results) -> str:
    """The bars of the protocol, and what was measured."""
    found = _of(results)

    def gaps(group: str) -> str:
        both = [found.difference(OURS, RIVAL, group, metric).value for metric in BOTH]
        return " ROC-AUC, ".join(f"{value:+.3f}" for value in both) + " average precision"

    pairs = list(found.pairs.values())
    least = min(pair.value(OURS, "shift") - pair.value(RIVAL, "shift") for pair in pairs)
    clean = min(pair.value(OURS, "clean") - pair.value("entropy", "clean") for pair in pairs)
    ahead = min(pair.accuracy(OURS, "shift") - pair.accuracy("ensemble", "shift") for pair in pairs)
    kept = min(pair.accuracy(OURS, "clean") - pair.accuracy("network", "clean") for pair in pairs)
    rows = [
        ["shifts, over the ensemble's contrast", "+.03 ROC-AUC, +.02 average precision", gaps("shift")],
        ["shifts, the pair with the smallest gain in ROC-AUC", "not below 0", f"{least:+.3f}"],
        ["unseen families, over the ensemble's contrast", "+.02 ROC-AUC, +.01 average precision", gaps("unseen")],
        ["clean, over entropy, the pair with the smallest gain", "not below 0", f"{clean:+.3f}"],
        ["clean, mean ROC-AUC", "aim .955", number(found.mean(OURS, "clean"))],
        ["accuracy of the posterior under shift, over the ensemble's, smallest gain", "above 0", f"{ahead:+.3f}"],
        [
            "accuracy of the posterior on clean data, over the network's, largest loss",
            "not below -.003",
            f"{kept:+.4f}",
        ],
    ]
    return markdown(["what", "bar", f"measured, {len(pairs)} pairs"], rows)


def value(results: Results, group: str, metric: str, score: str, pair: str = "") -> str:
    """One number of the study: of a pair, or the mean of the pairs."""
    found = _of(results)
    return number(found.pairs[pair].value(score, group, metric) if pair else found.mean(score, group, metric))


def gap(results: Results, group: str, metric: str, pair: str = "") -> str:
    """The probe minus the ensemble's contrast."""
    return signed(_of(results).difference(OURS, RIVAL, group, metric, pair))


AGAIN = "ensemble of 5 retrained on perturbed images, contrast"


def again(results: Results) -> str:
    """The probe beside networks trained on the same perturbed images, on the pairs that have them."""
    found = {name: pair for name, pair in _of(results).pairs.items() if pair.of(AGAIN)}
    rows = []
    for group in ("shift", "unseen", "clean"):
        for score in (OURS, "network retrained on perturbed images, contrast", AGAIN, RIVAL):
            values = [[pair.value(score, group, metric) for metric in BOTH] for pair in found.values()]
            cells = [slashed(both) for both in (*values, [float(v) for v in np.mean(values, axis=0)])]
            rows.append([f"{GROUPS[group]}: {NAMES[score].rstrip('‡')}", *cells])
    return markdown(["ROC-AUC / average precision", *(PAIRS[name] for name in found), "mean"], rows)


def ahead(results: Results, group: str, metric: str, pair: str) -> str:
    """What five networks trained on perturbed images gain over the probe."""
    return signed(_of(results).difference(AGAIN, OURS, group, metric, pair))


def right(results: Results, group: str, who: str) -> str:
    """The mean accuracy of "network", "ensemble" or "probe"."""
    return number(float(np.mean([pair.accuracy(who, group) for pair in _of(results).pairs.values()])))


TABLES: dict[str, Callable[[Results], str]] = {
    "probe-readme": readme,
    **{f"probe-{group}": partial(column, group=group) for group in GROUPS},
    "probe-aurc": partial(column, group="shift", metrics=("aurc",)),
    **{f"probe-families-{group}": partial(families, group=group) for group in ("shift", "unseen", "resembling")},
    "probe-differences": differences,
    "probe-accuracy": accuracy,
    "probe-efforts": efforts,
    "probe-bars": bars,
    "probe-again": again,
    "probe-cost": cost,
    "probe-transformers": transformers,
    "probe-tried": tried,
    "probe-held-out-share": held_out_share,
}
"""By name, what stands between `<!-- table: NAME -->` and its end."""

VALUES: dict[str, Callable[..., str]] = {"probe": value, "probe-gap": gap, "probe-again": ahead, "probe-right": right}
"""By name, what stands between `<!-- value: NAME; ARGUMENT; .. -->` and its end."""
