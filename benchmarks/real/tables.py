"""The tables and numbers of the study of real networks, as docs/results/real-networks.md quotes them.

`python benchmarks/reproduction.py --write` puts them between the marks of that page.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np

from evidence.results import NOTHING, Results, markdown, number, signed
from real import side_tables
from real.naming import PROBED, both, in_words, title
from real.reading import BARRED, FIRST, GROUPS, OURS, SHIFTED, STRICT, SUITES, Group, Study

BOTH = ("roc_auc", "pr_auc")
TEN = ", ten classes"
TIE = 0.005
FIRST_SHARE = "probe, share 0.2"


@cache
def study(folder: Path) -> Study:
    """The record, read once."""
    return Study(folder / "real")


def _of(results: Results) -> Study:
    return study(results.folder)


def against_best(results: Results, group: str) -> str:
    """By network and suite: ROC-AUC of the default, the best rival there, and the difference."""
    found = _of(results).groups[group]
    rows = []
    for network in found.networks:
        for suite in found.suites:
            best, gap = found.best(network, suite), _of(results).one(group, network, suite)
            place, count = found.rank(network, suite)
            values = [number(found.value(network, score, suite)) for score in (OURS, best)]
            verdict = ", tie" if abs(gap.value) < TIE else ""
            rows.append([title(network), SUITES[suite], *values, best, signed(gap) + verdict, f"{place} of {count}"])
    ours = "probe" if group in PROBED else "qipf.default"
    return markdown(["network", "suite", ours, "best rival", "which", "difference", "rank"], rows)


def everything(results: Results, group: str, task: str = "") -> str:
    """Every score: ROC-AUC / average precision by suite, mean of the networks, best first."""
    found = _of(results).groups[group]
    networks = [name for name in found.networks if name.endswith(TEN) == (task == TEN)]
    scores = list(dict.fromkeys(s for name in networks for s in found.scores(name, "probe", "single", "many")))
    scores = [s for s in scores if all(s in found.scores(name, "probe", "single", "many") for name in networks)]
    ranked = [suite for suite in found.suites if suite in SHIFTED]

    def order(score: str) -> float:
        return -float(np.mean([found.mean(score, suite, "roc_auc", networks) for suite in ranked]))

    rows = []
    for score in sorted(scores, key=order):
        cells = [both([found.mean(score, suite, metric, networks) for metric in BOTH]) for suite in found.suites]
        rows.append([in_words(score, group), *cells])
    return markdown(["ROC-AUC / average precision", *(SUITES[suite] for suite in found.suites)], rows)


def summaries(results: Results, group: str) -> str:
    """Every score of sequences with the best of its summaries: ROC-AUC / average precision by suite, best first."""
    found = _of(results).groups[group]
    (network,) = found.networks
    ranked = [suite for suite in found.suites if suite in SHIFTED]

    def strength(score: str) -> float:
        return float(np.mean([found.value(network, score, suite) for suite in ranked]))

    best: dict[str, str] = {}
    for score in found.scores(network, "probe", "single"):
        name, _, how = score.rpartition(", ")
        base = name if how in ("mean", "max", "sum") and name != OURS else score
        if base not in best or strength(score) > strength(best[base]):
            best[base] = score
    rows = []
    for score in sorted(best.values(), key=strength, reverse=True):
        cells = [both([found.value(network, score, suite, metric) for metric in BOTH]) for suite in found.suites]
        rows.append([in_words(score, group), *cells])
    return markdown(["ROC-AUC / average precision", *(SUITES[suite] for suite in found.suites)], rows)


def families(results: Results, group: str) -> str:
    """ROC-AUC / average precision of each family of shifts, mean of the networks."""
    found = _of(results).groups[group]
    rivals = [_of(results).strongest(group), "probability of the word", "Delta-KNN", "ensemble of 4, contrast"]
    here = found.scores(found.networks[0], "single", "many")
    scores = [OURS, *(score for score in dict.fromkeys(rivals) if score in here)]
    grid = {
        (score, metric): np.mean([found.family(network, score, metric) for network in found.networks], axis=0)
        for score in scores
        for metric in BOTH
    }
    rows = []
    for place, (suite, family) in enumerate(found.families):
        cells = [both([float(grid[score, metric][place]) for metric in BOTH]) for score in scores]
        rows.append([SUITES[suite], family.replace("-", " "), *cells])
    return markdown(["suite", "family", *(in_words(score, group) for score in scores)], rows)


def means(results: Results) -> str:
    """The default minus the best rival of each network and suite, by family of networks of the first protocol."""
    found = _of(results)
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


def _barred(found: Study, groups: tuple[str, ...]) -> list[tuple[float, str, str, int]]:
    """Of every network and suite with a bar: the difference from the best rival, and the rank."""
    return [
        (found.one(name, network, suite).value, network, suite, group.rank(network, suite)[0])
        for name, group in found.groups.items()
        if name in groups
        for network in group.networks
        for suite in group.suites
        if suite in BARRED
    ]


def bars(results: Results, group: str = "") -> str:
    """The bars of the protocol, and whether they are met: by the families of the first protocol, or by one family."""
    found = _of(results)
    judged = (group,) if group else FIRST
    cells = _barred(found, judged)
    value, network, suite, _ = min(cells)
    places = [place for *_, place in cells]
    behind = sum(gap < -0.01 for gap, *_ in cells)
    overall = found.mean(SHIFTED, group=group)
    worst = f"{behind} of {len(cells)} are; the worst is {value:+.3f} ({title(network)}, {SUITES[suite]})"
    ranks = f"median {np.median(places):.0f}; first in {places.count(1)} of {len(places)}"
    have = {suite for name, own in found.groups.items() if name in judged for suite in own.suites}
    suites = [name for name in SHIFTED if name in have]
    named = f"{', '.join(suites[:-1])} and {suites[-1]}" if len(suites) > 1 else suites[0]
    rows = [
        ["every network and suite", "not behind the best rival by more than .01", worst, _met(value >= -0.01)],
        [f"mean over {named}", "ahead by at least .02", signed(overall), _met(overall.value >= 0.02)],
        ["rank among rows with one pass", "reported", ranks, NOTHING],
    ]
    return markdown(["what", "bar", "measured", "met"], rows)


def behind(results: Results, group: str = "") -> str:
    """In how many cells with a bar the default is behind the best rival by more than .01."""
    cells = _barred(_of(results), (group,) if group else FIRST)
    return f"{sum(value < -0.01 for value, *_ in cells)} of {len(cells)}"


def first(results: Results, group: str = "") -> str:
    """In how many cells with a bar the default is ahead of every rival with one pass."""
    cells = _barred(_of(results), (group,) if group else FIRST)
    return f"{sum(place == 1 for *_, place in cells)} of {len(cells)}"


def _met(yes: bool) -> str:
    return "yes" if yes else "**no**"


def people(results: Results) -> str:
    """Rank correlation of each score with the entropy of people's labels, by network."""
    found = _of(results).groups["cifar"].facts["people"]
    networks = list(found)
    scores = list(found[networks[0]])
    rows = []
    for score in sorted(scores, key=lambda name: -float(np.mean([found[n][name][0] for n in networks]))):
        cells = [f"{number(found[n][score][0])} ± {number(found[n][score][1])}" for n in networks]
        rows.append([in_words(score), *cells, number(float(np.mean([found[n][score][0] for n in networks])))])
    return markdown(["rank correlation with human doubt", *map(title, networks), "mean"], rows)


def accuracy(results: Results, group: str) -> str:
    """The share of right classes by suite: of the networks, of the posterior, and of ensembles."""
    found = _of(results).groups[group]
    facts = found.facts["accuracy"]
    people = list(dict.fromkeys(who for values in facts.values() for who in values))
    rows = []
    for who in people:
        cells = [number(float(np.mean([_right(found, values[who], suite) for values in facts.values()])))
                 for suite in found.suites]  # fmt: skip
        rows.append([in_words(who, group) if who != "network" else "the network itself", *cells])
    return markdown(["accuracy", *(SUITES[suite] for suite in found.suites)], rows)


def _right(found: Group, values: list[float], suite: str) -> float:
    means = []
    for family in found.families:
        if family[0] == suite:
            inside = [
                v for v, place in zip(values, found.facts["conditions"], strict=True) if tuple(place[:2]) == family
            ]
            means.append(np.mean(inside))
    return float(np.mean(means))


def right(results: Results, group: str, who: str, suite: str) -> str:
    """The share of right classes in a suite, mean of the networks: of the networks ("network") or of a posterior."""
    found = _of(results).groups[group]
    return number(float(np.mean([_right(found, own[who], suite) for own in found.facts["accuracy"].values()])))


def loss(results: Results, group: str, network: str, task: str = "") -> str:
    """How much less often than the network the posterior of one network names the right class of clean inputs."""
    found = _of(results).groups[group]
    own, end = found.facts["accuracy"][network], f", {task}" if task else ""
    return number(_right(found, own["network" + end], "clean") - _right(found, own["probe" + end], "clean"))


def gap(results: Results, suites: str, group: str = "", rival: str = "best") -> str:
    """The default minus a rival in ROC-AUC, for suites joined by "+"."""
    chosen = SHIFTED if suites == "shifted" else tuple(suites.split("+"))
    found = _of(results)
    theirs = found.strongest(group) if rival == "strongest" else rival
    return signed(found.mean(chosen, rival=theirs, group=group))


def with_first_share(results: Results, suites: str, group: str) -> str:
    """The same for the probe with the softmax's share of many images, which the default first had everywhere."""
    found = _of(results)
    chosen = SHIFTED if suites == "shifted" else tuple(suites.split("+"))
    return signed(found.mean(chosen, group=group, own=FIRST_SHARE if _is_new(found, group) else OURS))


def state_of_default(results: Results, group: str) -> str:
    """Whether the judged row of a family is the default as it is now, for a family with few images per class."""
    if _is_new(_of(results), group):
        return (
            "The judged row below is the default as it is now, and the first one is listed as *probe, share 0.2*. The "
            "test images had been seen when this was changed"
        )
    return "**The rows below are from before** this change, and have not been measured with it"


def _is_new(found: Study, group: str) -> bool:
    return all(FIRST_SHARE in found.groups[group].scores(name, "probe") for name in found.groups[group].networks)


def strongest(results: Results, group: str = "") -> str:
    """The name of the strongest single rival, of one family of networks or of all."""
    return _of(results).strongest(group)


def when_run(make: Callable[..., str], group: str, results: Results) -> str:
    """A table of one family of networks, or a sentence where that has not been run."""
    return make(results, group=group) if group in _of(results).groups else f"{GROUPS[group]} has not been run yet."


_BY_GROUP = {"best": against_best, "all": everything, "accuracy": accuracy, "families": families, "bars": bars}

TABLES: dict[str, Callable[[Results], str]] = {
    "real-bars": bars,
    "real-means": means,
    **{f"real-{kind}-{one}": partial(when_run, make, one) for kind, make in _BY_GROUP.items() for one in GROUPS},
    "real-all-ten": partial(everything, group="imagenette", task=TEN),
    "real-people": people,
    "real-summaries-g2p": partial(when_run, summaries, "g2p"),
    **side_tables.TABLES,
}
"""By name, what stands between `<!-- table: NAME -->` and its end."""

VALUES: dict[str, Callable[..., str]] = {
    "real-gap": gap,
    "real-right": right,
    "real-loss": loss,
    **side_tables.VALUES,
    "real-strongest": strongest,
    "real-behind": behind,
    "real-first-share": with_first_share,
    "real-state": state_of_default,
    "real-first": first,
}
"""By name, what stands between `<!-- value: NAME; ARGUMENT; .. -->` and its end."""
