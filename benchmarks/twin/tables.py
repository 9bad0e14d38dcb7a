"""Tables of the twin study for README.md, docs/research/twin.md and its appendix.

Means and intervals are computed as in the probe study; results/twin/PROTOCOL.md describes rows, columns and
criteria. Results of earlier versions of the twin are in results/twin/half and results/twin/prototype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from statistics import mean
from typing import Any

from evidence.marks import table, value
from evidence.results import NOTHING, Missing, Results, grid, listed, markdown, number, signed, slashed
from probe.reading import PAIRS, SETS, Pair, Study

COLUMNS = {
    "shift": "five shifts",
    "unseen": "unseen",
    "strict": "strict",
    "no relative": "unrelated",
    "resembling": "resembling",
    "clean": "clean",
    "ood": "other data",
}
NO_RELATIVE = ("fog", "fog, not rescaled", "snow", "spatter", "jpeg", "saturation", "gamma", "stripes")
ROWS = (
    "entropy", "max softmax", "network x2", "network x2, entropy",
    "ensemble of 5", "ensemble of 10", "ensemble of 10, best",
    "probe", "probe x2", "probe without elastic", "probe without elastic x2",
    "twin", "twin x2", "twin x4", "twin without elastic", "twin without elastic x2", "twin, copy alone",
    "second network", "second network x2", "5 second networks", "5 second networks x2",
    "sub-ensemble of 5", "sub-ensemble of 5, best", "ConfidNet",
)  # fmt: skip
BARS = (
    ("twin x2", ("shift", "unseen", "strict"), ("roc_auc", "pr_auc"), 0.0),
    ("twin x2", ("clean",), ("roc_auc",), -0.005),
    ("twin", ("shift", "unseen", "strict"), ("roc_auc", "pr_auc"), 0.0),
)
"""The criteria: a row, columns, metrics, and the minimum difference from the contrast of the ensemble of ten."""
BOTH = {"roc_auc": "ROC-AUC", "pr_auc": "average precision"}
SMALLEST = 0.005
LONGEST = 1.5
"""The maximum fitting time of a twin, relative to the training time of the network."""
DEPTH = 0.75
"""The default depth of a twin, which the tables of other depths include."""
SHORT = (
    "entropy", "ensemble of 10", "probe", "probe without elastic", "twin", "twin x2", "twin without elastic x2",
    "5 second networks",
)  # fmt: skip
README = {
    "probe": "**qipf.default**",
    "twin": '**effort="thorough"** (twin)',
    "twin x2": "the same, two views",
    "logistic head on the same data": "logistic head, same images †",
    "ensemble of 10": "ensemble, 10 passes",
    "entropy": "entropy",
    "QIPF, authors' program": "the paper's QIPF †",
}
"""The rows of the README's table; those that the twin study lacks come from the probe study."""
TEXT_ROWS = ("entropy", "max softmax", "ensemble of 5", "ensemble of 10", "ensemble of 10, best", "probe", "twin")
TEXT_COLUMNS = {
    "clean": "clean",
    "shift": "swapped or omitted",
    "unseen": "misspelt",
    "resembling": "random words",
    "natural: CR": "CR",
    "natural: MPQA": "MPQA",
}
PUBLISHED = (
    "entropy", "network x2", "ensemble of 4", "ensemble of 4, best", "probe", "probe x2", "twin", "twin x2",
)  # fmt: skip
SMALL_ROWS = ("entropy", "max softmax", "ensemble of 2", "ensemble of 5", "ensemble of 5, best", "probe", "twin")
TIMED = ("mnist", "vgg3", "resnet18")
NETWORKS = ("entropy", "ensemble of 10", "probe", "twin", "twin x2", "twin without elastic x2", "5 second networks")


class Units(Pair):
    """Measurements on the networks of one pair."""

    def families(self, group: str) -> list[str]:
        """Return the families of a column."""
        if group == "no relative":
            return [family for family in NO_RELATIVE if family in {own for _, own in self.places}]
        return super().families(group)

    def own_group(self, group: str, family: str) -> str:
        """Return the group of a column's family."""
        if group == "no relative":
            return next(own for own, name in self.places if name == family)
        return super().own_group(group, family)

    def value(self, score: str, group: str, metric: str = "roc_auc", base: int | None = None) -> float:
        """Return the mean over a column; ", best" selects an ensemble's best statistic."""
        if not score.endswith(", best"):
            return super().value(score, group, metric, base)
        name = score.removesuffix(", best")
        kinds = [name] + [f"{name}, {kind}" for kind in ("entropy", "max softmax", "mutual information")]
        return max(super(Units, self).value(kind, group, metric, base) for kind in kinds if self.of(kind))

    def with_row(self, score: str) -> list[int]:
        """Return the networks on which a score was measured."""
        return sorted({self.rows[row]["base"] for row in self.of(score.removesuffix(", best"))})


class Twins(Study):
    """The pairs that have been measured."""

    kind, files = Units, "{}-*.npz"

    def timed(self, name: str) -> dict[str, Any]:
        """Return the parts of a pair's first network on a GPU; for K-MNIST, of MNIST's, which has the same layers."""
        units = [unit for pair in (name, "mnist") for unit in self.pairs[pair].units]
        return next(unit["parts"] for unit in units if unit["device"].startswith("NVIDIA"))


@cache
def _of(results: Results, part: str = "twin") -> Twins:
    found = Twins(results.folder / part)
    if not found.pairs:
        raise Missing("twin/*.json")
    return found


def _prototype(results: Results) -> Twins:
    return _of(results, "twin/prototype")


def _half(results: Results) -> Twins:
    return _of(results, "twin/half")


def _counted(name: str, pair: Units) -> str:
    return f"{PAIRS[name]}, {len(pair.bases)} network{'s' * (len(pair.bases) > 1)}"


def _both(pair: Units, row: str, column: str, base: int | None = None) -> str:
    found = pair.with_row(row)
    if not found:
        return NOTHING
    mark = "" if base is not None or found == pair.bases else " ¹"
    return slashed(pair.value(row, column, metric, base) for metric in BOTH) + mark


@table("twin-readme")
def readme(results: Results) -> str:
    """Return the table of the README."""
    twins, probe = _of(results), Study(results.folder / "probe")
    shown = {"shift": "shifts", "strict": "corruptions", "clean": "clean"}
    places = [(group, only) for group in shown for only in SETS]
    rows = []
    for score, words in README.items():
        mine = twins if score in ROWS else probe
        cells = [slashed(mine.mean(score, group, metric, only) for metric in BOTH) for group, only in places]
        rows.append([words, *map(_close, cells)])
    names = {"lenets": "LeNets", "cifar": "CIFAR-10"}
    return markdown(["", *(f"{shown[group]}, {names[only]}" for group, only in places)], rows)


@table("twin-short-{column}", column=("shift", "strict", "no relative", "clean"))
def short(results: Results, column: str) -> str:
    """Return the main rows in one column, by pair."""
    pairs = _of(results).pairs
    heads = {name: PAIRS[name] for name in pairs}

    return grid(
        COLUMNS[column], {row: row for row in SHORT}, heads, lambda row, name: _close(_both(pairs[name], row, column))
    )


def _close(cell: str) -> str:
    return cell.replace(" / ", "/") if cell != f"{NOTHING} / {NOTHING}" else NOTHING


@table("twin-scores-{name}", name=PAIRS)
@table("prototype-scores-{name}", name=PAIRS, record=_prototype)
@table("half-scores-{name}", name=PAIRS, record=_half)
def scores(results: Results, name: str, record: Callable[[Results], Twins] = _of) -> str:
    """Return every row of a pair, by column."""
    pair = record(results).pairs[name]
    rows = {row: row for row in ROWS if pair.with_row(row)}
    return grid(_counted(name, pair), rows, _columns(pair), lambda row, column: _both(pair, row, column))


@table("twin-networks-{name}", name=PAIRS)
def networks(results: Results, name: str) -> str:
    """Return the main rows of every network of a pair."""
    pair = _of(results).pairs[name]
    rows = {(row, base): f"{base}: {row}" for base in pair.bases for row in NETWORKS if base in pair.with_row(row)}
    return grid(PAIRS[name], rows, _columns(pair), lambda row, column: _both(pair, row[0], column, row[1]))


def _columns(pair: Units) -> dict[str, str]:
    return {column: words for column, words in COLUMNS.items() if pair.families(column)}


def _judged(found: Twins) -> Iterator[tuple[list[str], bool]]:
    """Yield every criterion as table cells, with True if it is met."""
    asked = [
        (ours, "ensemble of 10", column, metric, least)
        for ours, columns, metrics, least in BARS
        for column in columns
        for metric in metrics
    ]
    asked.append(("twin x2", "entropy", "clean", "roc_auc", 0.0))
    for name, pair in found.pairs.items():
        # a network may have no valid view; its rows with one and two views are then the same criterion
        here = dict.fromkeys((row if pair.with_row(row) else "twin", *rest) for row, *rest in asked)
        for ours, theirs, column, metric, least in here:
            gap = found.difference(ours, theirs, column, metric, name)
            words = f"{ours} - {theirs}, {COLUMNS[column]}, {BOTH[metric]}"
            yield _bar(name, words, signed(gap), gap.value, gap.value > least)
        ours = "twin x2" if pair.with_row("twin x2") else "twin"
        for theirs, column, least in (("ensemble of 10", "shift", 0.0), ("network", "clean", -0.003)):
            gap = pair.accuracy(ours, column) - pair.accuracy(theirs, column)
            words = f"accuracy of {ours} - {theirs}, {COLUMNS[column]}"
            yield _bar(name, words, f"{gap:+.3f}", gap, gap >= least)
        parts = found.timed(name)
        spent = parts["fit"]["twin_seconds"] / parts["network"]["training_seconds"]
        yield _bar(name, "fitting time / training time, at most 1.5", f"{spent:.2f}", spent, spent <= LONGEST)
        for ours in ("probe", "twin"):
            few = [few for unit in pair.units if (few := _few(unit))[ours]][-1]  # the learning rate has changed
            gap = _lowest(few, ours)
            words = f"{ours} with few labels - max softmax, clean, ROC-AUC, lowest"
            yield _bar(name, words, f"{gap:+.3f}", gap, gap >= -0.01)


def _bar(name: str, words: str, shown: str, gap: float, met: bool) -> tuple[list[str], bool]:
    verdict = ("met" if met else "**missed**") + (" (tie)" if abs(gap) < SMALLEST else "")
    return [PAIRS[name], words, shown, verdict], met


@table("twin-bars")
@table("twin-missed", missed=True)
def bars(results: Results, missed: bool = False) -> str:
    """Return all criteria, or only those that are not met."""
    rows = [cells for cells, met in _judged(_of(results)) if not (missed and met)]
    return markdown(["pair", "criterion", "measured", "verdict"], rows)


@value("twin-bars")
def counted(results: Results) -> str:
    """Return the number of criteria that are met, and the number of all criteria."""
    met = [met for _, met in _judged(_of(results))]
    return f"{sum(met)} of {len(met)}"


@value("twin")
def one(results: Results, score: str, column: str, *pairs: str) -> str:
    """Return the ROC-AUC of a row on the given pairs."""
    return listed(number(_of(results).pairs[name].value(score, column)) for name in pairs)


@value("no-elastic")
def without_elastic(results: Results, score: str) -> str:
    """Return a row without elastic distortion on CIFAR-10 under the five shifts."""
    name, _, views = score.partition(" ")
    return one(results, f"{name} without elastic {views}".strip(), "shift", *SETS["cifar"])


@value("no-relative")
def without_relative(results: Results) -> str:
    """Return the lead of the twin x2 on CIFAR-10 in the column "unrelated"."""
    return gap(results, "twin x2", "ensemble of 10", "no relative", *SETS["cifar"])


def _few(unit: dict[str, Any]) -> dict[str, dict[int, float]]:
    """Return the ROC-AUC of a network on clean images by score and number of labels per class, over the draws."""
    draws = unit["parts"].get("few", {}).get("few", ())
    found: dict[str, dict[int, float]] = {}
    for score in ("max softmax", "probe", "twin"):
        counts = sorted({draw["labels"] for draw in draws if score in draw})
        found[score] = {n: mean(d[score][0] for d in draws if d["labels"] == n) for n in counts}
    return found


def _lowest(found: dict[str, dict[int, float]], score: str) -> float:
    """Return the smallest difference of a score from max softmax."""
    return min(found[score][labels] - found["max softmax"][labels] for labels in found[score])


@table("few-labels")
def few_labels(results: Results) -> str:
    """Return the ROC-AUC on clean images by the number of labels per class, averaged over the draws."""
    units = {f"{PAIRS[name]} {unit['base']}": unit for name, pair in _of(results).pairs.items() for unit in pair.units}
    units |= {f"published ResNet-{unit['base']}": unit for unit in _published(results).units}
    found = {name: few for name, unit in units.items() if (few := _few(unit))["probe"]}
    rows = {(name, score): f"{name}: {score}" for name, scores in found.items() for score in scores}
    counts = {labels: str(labels) for scores in found.values() for labels in scores["probe"]}
    heads = "labels per class"
    return grid(heads, rows, counts, lambda row, labels: number(found[row[0]][row[1]].get(labels, float("nan"))))


def _published(results: Results) -> Units:
    return Units(*sorted((results.folder / "twin").glob("published-*.npz")))


@table("twin-published")
def published(results: Results) -> str:
    """Return the main rows of every published network."""
    pair = _published(results)
    rows = {(row, base): f"ResNet-{base}: {row}" for base in pair.bases for row in PUBLISHED}
    return grid("", rows, _columns(pair), lambda row, column: _both(pair, row[0], column, row[1]))


@table("twin-lite", files="lite*", title="EfficientNet-Lite0", rows=("entropy", "max softmax", "probe"))
@table("twin-vit", files="vit-*", title="vision transformer, 2 networks", rows=SMALL_ROWS)
def other_networks(results: Results, files: str, title: str, rows: tuple[str, ...]) -> str:
    """Return some rows of networks outside the four pairs."""
    found = sorted((results.folder / "twin").glob(f"{files}.npz"))
    if not found:
        raise Missing(f"twin/{files}.npz")
    pair = Units(*found)
    return grid(title, {row: row for row in rows}, _columns(pair), lambda row, name: _close(_both(pair, row, name)))


@table("twin-accuracy")
def accuracies(results: Results) -> str:
    """Return the accuracy of every posterior."""
    pairs = _of(results).pairs

    def cell(row: str, name: str) -> str:
        pair = pairs[name]
        measured = sum(key.rpartition(" ")[0] == row for key in pair.facts["accuracy"])
        if not measured:
            return NOTHING
        mark = " ¹" if measured < len(pair.bases) else ""
        return slashed(pair.accuracy(row, column) for column in ("shift", "clean")) + mark

    rows = ("network", *(row for row in ROWS if ", " not in row))
    known = {row: row for row in rows if any(cell(row, name) != NOTHING for name in pairs)}
    return grid("accuracy, five shifts / clean", known, {name: PAIRS[name] for name in pairs}, cell)


@table("twin-depth-{name}", name=PAIRS)
def depths(results: Results, name: str) -> str:
    """Return costs and scores of the prototype by depth of the copy."""
    pair = _prototype(results).pairs[name]
    unit = pair.units[0]
    rows = []
    for depth, facts in unit["parts"].get("depth", {}).get("depth", {}).items():
        row = f"twin of {depth}" if pair.of(f"twin of {depth}") else "twin"
        cells = [_both(pair, row, column, unit["base"]) for column in ("shift", "strict", "no relative", "clean")]
        share = facts["added_share_of_a_pass"]["2000"]
        rows.append([depth, f"{share:.2f}", f"{facts['parameters']:,}", f"{facts['seconds']:.1f}", *cells])
    if not rows:
        return f"*{PAIRS[name]}: not measured yet.*"
    heads = ["added passes", "parameters", "fitting, s", "five shifts", "strict", "unrelated", "clean"]
    return markdown([f"{PAIRS[name]}, copied part", *heads], rows)


@table("twin-depths")
def current_depths(results: Results) -> str:
    """Return costs and scores of the current twin by depth of the copy."""
    rows = []
    for name, pair in _of(results).pairs.items():
        for unit in pair.units:
            parts = unit["parts"]
            usual = {"seconds": parts["fit"]["twin_seconds"], "added_passes": parts["fit"]["added_passes"]["twin"]}
            usual["cut"] = parts["fit"]["split"]
            found = parts.get("depth", {}).get("depth", {})
            for depth, facts in sorted({**found, str(DEPTH): usual}.items()) if found else ():
                row = "twin" if facts is usual else f"twin of {depth}"
                columns = ("shift", "strict", "no relative", "clean")
                cells = [_close(_both(pair, row, column, unit["base"])) for column in columns]
                spent = [
                    f"{facts['cut']['share']:.2f}",
                    f"{facts['added_passes']['2000']:.2f}",
                    f"{facts['seconds']:.0f}",
                ]
                rows.append([f"{PAIRS[name]} {unit['base']}, {depth}", *spent, *cells])
    heads = ["copied", "added passes", "fitting, s", "five shifts", "strict", "unrelated", "clean"]
    return markdown(["network, `depth`", *heads], rows)


@table("twin-times")
def times(results: Results) -> str:
    """Return fitting times and the passes that `wrap` adds."""
    rows = []
    for name in TIMED:
        parts = _of(results).timed(name)
        training, fit = parts["network"]["training_seconds"], parts["fit"]
        for score in ("probe", "twin"):
            added = [f"{fit['added_passes'][score][size]:.2f}" for size in ("1", "32", "500", "2000")]
            spent = fit[f"{score}_seconds"]
            rows.append(
                [f"{PAIRS[name]}, {score}", f"{training:.1f}", f"{spent:.1f}", f"{spent / training:.2f}", *added]
            )
    return markdown(["", "training, s", "fitting, s", "fitting / training", "batch 1", "32", "500", "2,000"], rows)


@value("twin-fitting")
def fitting(results: Results, score: str) -> str:
    """Return the fitting time on an H200, relative to the training time."""
    units = [_of(results).timed(name) for name in TIMED]
    return listed(f"{parts['fit'][f'{score}_seconds'] / parts['network']['training_seconds']:.1f}" for parts in units)


@value("twin-adds")
def adds(results: Results, score: str) -> str:
    """Return the time that `wrap` adds to one input on an H200, in forward passes."""
    units = [_of(results).timed(name) for name in TIMED]
    return listed(f"{parts['fit']['added_passes'][score]['1']:.1f}" for parts in units)


@value("twin-gap")
def gap(results: Results, ours: str, theirs: str, column: str, *pairs: str) -> str:
    """Return the differences between two rows, for pairs or sets of pairs."""
    found = _of(results)
    gaps = [[found.difference(ours, theirs, column, metric, only).value for metric in BOTH] for only in pairs]
    return listed(" / ".join(f"{one:+.3f}" for one in both) for both in gaps)


def _text(results: Results) -> Units:
    file = results.folder / "twin" / "text.npz"
    if not file.exists():
        raise Missing("twin/text.npz")
    return Units(file)


@table("twin-text")
def text(results: Results) -> str:
    """Return every row of the text transformers, by column."""
    pair = _text(results)
    rows = {row: row for row in TEXT_ROWS}
    heads = f"film reviews, {len(pair.bases)} networks"
    return grid(heads, rows, TEXT_COLUMNS, lambda row, column: _close(_both(pair, row, column)))


@table("twin-text-accuracy")
def text_accuracy(results: Results) -> str:
    """Return the accuracy of every posterior of the text transformers."""
    pair = _text(results)
    rows = {row: row for row in ("network", "ensemble of 5", "ensemble of 10", "probe", "twin")}
    return grid("accuracy", rows, TEXT_COLUMNS, lambda row, column: number(pair.accuracy(row, column)))


@value("text-clean")
def text_clean(results: Results, row: str) -> str:
    """Return the ROC-AUC of a row of the text transformers on clean sentences."""
    return number(_text(results).value(row, "clean"))


@value("twin-text-fitting")
def text_fitting(results: Results, score: str) -> str:
    """Return the mean fitting time on a CPU core, relative to the training time."""
    seconds = _text(results).facts["seconds"].values()
    return f"{sum(one[score] / one['network'] for one in seconds) / len(seconds):.1f}"
