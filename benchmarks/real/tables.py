"""Tables and numbers of the study of real networks for docs/results/real-networks.md and its appendix."""

from __future__ import annotations

from functools import cache

import numpy as np

from evidence.marks import table, value
from evidence.results import NOTHING, Missing, Results, grid, markdown, number, signed, slashed
from real.reading import BARRED, FIRST, GROUPS, OURS, SHIFTED, STRICT, SUITES, Group, Study

BOTH = ("roc_auc", "pr_auc")
TEN = ", ten classes"
TIE = 0.005
MET = {True: "yes", False: "**no**"}
NAMES = {
    "probe": "**qipf.default (the probe)**",
    "probe, quick": 'probe, effort "quick"',
    "probe, thorough": 'probe, effort "thorough"',
    "probe without perturbations": "probe without perturbed copies",
    "QIPF, exact operator": "the paper's QIPF, exact operator",
    "QIPF, authors' program": "the paper's QIPF, authors' program",
}
PROBED = ("camvid", "g2p", "g2p-phonemes")
"""Families judged by a probe for pixels or tokens instead of `qipf.default`."""
PASSES = {"image and mirror image": 2, "ensemble of 4": 4, "ensemble of the other 3": 3}
NETWORKS = {
    "resnet": "ResNet-",
    "lite": "EfficientNet-Lite",
    "transformer ": "transformer, seed ",
    "segmenter ": "U-Net, seed ",
}
CONDITIONS = {
    "clean-clean-0.0": "clean",
    "unseen-fog-4.0": "fog, severity 4",
    "resembling-gaussian-noise-4.0": "Gaussian noise, severity 4",
}
"""The conditions for the comparison of maps on CamVid."""


@cache
def study(results: Results) -> Study:
    """Return the measurements, which are read only once."""
    return Study(results.folder / "real")


def _group(results: Results, name: str) -> Group:
    if name not in study(results).groups:
        raise Missing(f"real/{name}.json")
    return study(results).groups[name]


def _title(network: str) -> str:
    """Return the title of a network."""
    start = next((start for start in NETWORKS if network.startswith(start)), "")
    return NETWORKS.get(start, "") + network.removeprefix(start)


def _in_words(name: str, group: str = "") -> str:
    """Return the title of a score, with its number of passes if there are several."""
    plain = "**the probe**" if group in PROBED and name == OURS else NAMES.get(name, name)
    count = next((passes for start, passes in PASSES.items() if name.startswith(start)), 1)
    return f"{plain} ({count} passes)" if count > 1 else plain


@table("real-best-{group}", group=GROUPS)
def against_best(results: Results, group: str) -> str:
    """Return the default and the best rival, by network and suite."""
    found = _group(results, group)
    rows = []
    for network in found.networks:
        for suite in found.suites:
            best, gap = found.best(network, suite), study(results).one(group, network, suite)
            place, count, _ = found.rank(network, suite)
            values = [number(found.value(network, score, suite)) for score in (OURS, best)]
            verdict = ", tie" if abs(gap.value) < TIE else ""
            rows.append([_title(network), SUITES[suite], *values, best, signed(gap) + verdict, f"{place} of {count}"])
    ours = "probe" if group in PROBED else "qipf.default"
    return markdown(["network", "suite", ours, "best rival", "which", "difference", "rank"], rows)


@table("real-all-{group}", group=GROUPS)
@table("real-all-ten", group="imagenette", task=TEN)
def everything(results: Results, group: str, task: str = "") -> str:
    """Return every score by suite, best first."""
    found = _group(results, group)
    networks = [name for name in found.networks if name.endswith(TEN) == (task == TEN)]
    listed = [found.scores(name, "probe", "single", "many") for name in networks]
    scores = [score for score in listed[0] if all(score in own for own in listed)]
    return _best_first(found, scores, networks, group)


@table("real-summaries-{group}", group=("g2p",))
def summaries(results: Results, group: str) -> str:
    """Return every score with its best summary, best first."""
    found = _group(results, group)
    (network,) = found.networks
    best: dict[str, str] = {}
    for score in found.scores(network, "probe", "single"):
        name, _, how = score.rpartition(", ")
        base = name if how in ("mean", "max", "sum") and name != OURS else score
        best[base] = max(best.get(base, score), score, key=lambda one: _strength(found, one, [network]))
    return _best_first(found, list(best.values()), [network], group)


def _strength(found: Group, score: str, networks: list[str]) -> float:
    return float(np.mean([found.mean(score, s, "roc_auc", networks) for s in found.suites if s in SHIFTED]))


def _best_first(found: Group, scores: list[str], networks: list[str], group: str) -> str:
    scores = sorted(scores, key=lambda score: -_strength(found, score, networks))
    return grid(
        "ROC-AUC / average precision",
        {score: _in_words(score, group) for score in scores},
        {suite: SUITES[suite] for suite in found.suites},
        lambda score, suite: slashed(found.mean(score, suite, metric, networks) for metric in BOTH),
    )


@table("real-families-{group}", group=GROUPS)
def families(results: Results, group: str) -> str:
    """Return ROC-AUC / average precision by family."""
    found = _group(results, group)
    rivals = [study(results).strongest(group), "probability of the word", "Delta-KNN", "ensemble of 4, contrast"]
    here = found.scores(found.networks[0], "single", "many")
    scores = [OURS, *(score for score in dict.fromkeys(rivals) if score in here)]
    values = {
        (score, metric): np.mean([found.family(network, score, metric) for network in found.networks], axis=0)
        for score in scores
        for metric in BOTH
    }
    rows = []
    for place, (suite, family) in enumerate(found.families):
        cells = [slashed([float(values[score, metric][place]) for metric in BOTH]) for score in scores]
        rows.append([SUITES[suite], family.replace("-", " "), *cells])
    return markdown(["suite", "family", *(_in_words(score, group) for score in scores)], rows)


SUMMARY = {
    "cifar": "four CIFAR-10 ResNets",
    "imagenette": "three EfficientNets, Imagenette",
    "text": "three small transformers, text (ours)",
    "imagenet": "two EfficientNets, ImageNet, four images per class",
    "sixteen": "three EfficientNets, texture-shape conflict",
    "camvid": "two U-Nets, pixels of CamVid (ours)",
    "g2p": "g2p-en, spelling to pronunciation",
    "to-tiny": "EfficientNet, fitted to photographs, used on tiny images",
    "from-tiny": "EfficientNet, fitted to tiny images, used on photographs",
}


@table("real-summary")
def summary(results: Results) -> str:
    """Return the difference from the best rival by family of networks."""
    found = study(results)
    suites = {("clean",): "clean", SHIFTED: "under shift"}
    networks = {name: words for name, words in SUMMARY.items() if name in found.groups}
    return grid("networks", networks, suites, lambda name, chosen: signed(found.mean(chosen, group=name)))


@table("real-means")
def means(results: Results) -> str:
    """Return the difference from the best rival by suite."""
    found = study(results)
    groups = [name for name in found.groups if name in FIRST]
    rows = []
    for suite, words in {**SUITES, STRICT: "unseen without noise and blur"}.items():
        have = [name for name in groups if found.groups[name].has(suite)]
        if have:
            cells = [signed(found.mean((suite,), group=name)) if name in have else NOTHING for name in groups]
            rows.append([words, *cells])
    cells = [signed(found.mean(SHIFTED, group=name)) for name in groups]
    rows.append(["**mean of shift, unseen and natural**", *cells])
    return markdown(["default minus best rival, ROC-AUC", *(GROUPS[name] for name in groups)], rows)


def _barred(found: Study, groups: tuple[str, ...]) -> list[tuple[float, str, str, tuple[int, int, bool]]]:
    """Return the difference from the best rival and the rank, for every network and suite in `BARRED`."""
    return [
        (found.one(name, network, suite).value, network, suite, group.rank(network, suite))
        for name, group in found.groups.items()
        if name in groups
        for network in group.networks
        for suite in group.suites
        if suite in BARRED
    ]


@table("real-bars")
@table("real-bars-{group}", group=GROUPS)
def bars(results: Results, group: str = "") -> str:
    """Return the criteria and their verdicts."""
    found = study(results)
    judged = (group,) if group else FIRST
    cells = _barred(found, judged)
    value, network, suite, _ = min(cells)
    places = [place for *_, (place, _, _) in cells]
    behind = sum(gap < -0.01 for gap, *_ in cells)
    overall = found.mean(SHIFTED, group=group)
    lowest = f"{value:+.3f} ({_title(network)}, {SUITES[suite]})"
    worst = f"missed in {behind} of {len(cells)} cells; the lowest difference is {lowest}"
    ahead = sum(place == 1 and alone for *_, (place, _, alone) in cells)
    shared = f", level with a rival in {places.count(1) - ahead} more" if places.count(1) > ahead else ""
    ranks = f"median {np.median(places):.0f}; first in {ahead} of {len(places)}{shared}"
    have = {suite for name, own in found.groups.items() if name in judged for suite in own.suites}
    suites = [name for name in SHIFTED if name in have]
    named = f"{', '.join(suites[:-1])} and {suites[-1]}" if len(suites) > 1 else suites[0]
    rows = [
        ["every network and suite", "not behind the best rival by more than .01", worst, MET[value >= -0.01]],
        [f"mean over {named}", "ahead by at least .02", signed(overall), MET[overall.value >= 0.02]],
        ["rank among single-pass scores", "none", ranks, NOTHING],
    ]
    return markdown(["comparison", "criterion", "measured", "met"], rows)


@value("real-cells")
def counted(results: Results, which: str, group: str = "") -> str:
    """Count the cells in which the default is `behind` or alone `first`."""
    cells = _barred(study(results), (group,) if group else FIRST)
    found = [value < -0.01 if which == "behind" else place == 1 and alone for value, *_, (place, _, alone) in cells]
    return f"{sum(found)} of {len(cells)}"


@table("real-people")
def people(results: Results) -> str:
    """Return the rank correlation with the entropy of human labels."""
    found = study(results).groups["cifar"].facts["people"]
    networks = list(found)
    scores = list(found[networks[0]])
    rows = []
    for score in sorted(scores, key=lambda name: -float(np.mean([found[n][name][0] for n in networks]))):
        cells = [f"{number(found[n][score][0])} ± {number(found[n][score][1])}" for n in networks]
        rows.append([_in_words(score), *cells, number(float(np.mean([found[n][score][0] for n in networks])))])
    return markdown(["rank correlation with human uncertainty", *map(_title, networks), "mean"], rows)


@table("real-accuracy-{group}", group=GROUPS)
def accuracy(results: Results, group: str) -> str:
    """Return the accuracies by suite."""
    found = _group(results, group)
    people = dict.fromkeys(who for values in found.facts["accuracy"].values() for who in values)

    def right(who: str, suite: str) -> str:
        return number(float(np.mean([_right(found, own[who], suite) for own in found.facts["accuracy"].values()])))

    return grid(
        "accuracy",
        {who: _in_words(who, group) if who != "network" else "the network itself" for who in people},
        {suite: SUITES[suite] for suite in found.suites},
        right,
    )


def _right(found: Group, values: list[float], suite: str) -> float:
    by_family: dict[str, list[float]] = {}
    for share, (own, family, _) in zip(values, found.facts["conditions"], strict=True):
        if own == suite:
            by_family.setdefault(family, []).append(share)
    return float(np.mean([np.mean(shares) for shares in by_family.values()]))


@value("real-gap")
def gap(results: Results, suites: str, group: str = "", rival: str = "best", own: str = OURS) -> str:
    """Return the difference between a row and a rival, for suites joined by "+"."""
    chosen = SHIFTED if suites == "shifted" else tuple(suites.split("+"))
    found = study(results)
    theirs = found.strongest(group) if rival == "strongest" else rival
    return signed(found.mean(chosen, rival=theirs, group=group, own=own))


@table("real-newcomer")
def newcomer(results: Results) -> str:
    """Return the times of the commands."""
    found = results.json("real/newcomer.json")
    steps = {"install": "pip install", "fit": "qipf fit", "score": "qipf score", "compare": "qipf compare"}
    parts = {f"`{words}`": found["steps"][name] for name, words in steps.items() if name in found["steps"]}
    parts["total"] = found["total"]
    seconds = ("wall_seconds", "processor_seconds")
    rows = [[name, *(f"{part[kind]:.0f} s" for kind in seconds)] for name, part in parts.items()]
    return markdown(["step", "elapsed time", "processor time"], rows)


@table("real-maps")
def maps(results: Results) -> str:
    """Return the rank correlation of mean uncertainty and wrong pixels."""
    found = list(results.json("real/camvid.json", "maps").values())
    scores = list(found[0][next(iter(CONDITIONS))])
    rows = []
    for key, words in CONDITIONS.items():
        values = [float(np.mean([own[key][score]["rank_correlation"] for own in found])) for score in scores]
        rows.append([words, *map(number, values)])
    times = [
        1000 * float(np.mean([own[key][score]["seconds"] for own in found for key in CONDITIONS])) for score in scores
    ]
    overlap = np.nanmean(np.asarray(list(results.json("real/camvid.json", "overlap").values()), dtype=float))
    rows.append(["mean IoU of the networks, clean", number(float(overlap)), "", ""])
    rows.append(["milliseconds per image", *(f"{value:.1f}" for value in times)])
    return markdown(["rank correlation with the fraction of wrong pixels", *scores], rows)


@table("real-few-images")
def few_images(results: Results) -> str:
    """Return the ROC-AUC by number of images per class."""
    found = results.json("real/few-images.json")
    rows = []
    for row in found["rows"]:
        pairs = zip(row["roc_auc"], row["deviation"], strict=True)
        rows.append([str(row["images_per_class"]), *(f"{number(value)} ± {number(spread)}" for value, spread in pairs)])
    defaults = {0.2: " (the default for 16 or more)", 0.8: " (the default for fewer than 16)"}
    head = [f"share {share:g}{defaults.get(share, '')}" for share in found["shares"]]
    return markdown(["images per class", *head], rows)
