"""Verdicts on the paper's claims, and on our own comparisons.

Both are listed in claims.csv. Its columns `judge` and `arguments` contain a verdict and its reason, or the name of a
function in this module and its arguments.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evidence import authors, cells, detection, illustrations, rivals
from evidence.claims import OURS, chosen, paper_claims, paper_share
from evidence.detection import PAPER_ACCURACY
from evidence.marks import table, value
from evidence.results import PAIRS, SHORT, Missing, Results, grid, markdown, number
from evidence.rivals import PAPER_RATES, mean_rates
from probe.tables import study
from qipf.study import claims, verdict
from qipf.study.tables.claims import RIVALS, paper_best
from qipf.study.tables.paired import SMALLEST, Difference, Verdict

HOLDS, FAILS, OPEN, PARTLY, UNKNOWN = "holds", "does not hold", "undecided", "partly", "not determined"
WORDS: dict[Verdict, str] = {"yes": HOLDS, "no": FAILS, "undecided": OPEN, "not measured": "not measured"}
UNMEASURED = (WORDS["not measured"], "")
NO_MEASUREMENT = "holds, unmeasured"
PARTS = {
    "detection": "error detection",
    "calibration": "calibration and correlation",
    "cost": "speed, cost and settings",
    "behaviour": "illustrations",
    "theory": "theory and set-up",
}
OURS_ALONE = "comparisons"
"""The part of claims.csv with our own comparisons."""
BAYESIAN = ("mc-dropout", "mc-dropout-ll", "svi", "svi-ll")
PROBE_NAMES = ("QIPF, exact operator", "QIPF, authors' program")
"""The two forms of QIPF in the probe study."""

Found = tuple[str, str]
JUDGES: dict[str, Callable[..., Found]] = {}


@table("claims-{part}", part=PARTS)
def claims_of(results: Results, part: str) -> str:
    """Return the claims of one part of the paper."""
    rows = []
    for claim, (found, reason) in _judged(results):
        if claim["part"] == part:
            words = f"**{found}**" if found in (HOLDS, FAILS) else found
            rows.append([claim["where"], claim["says"], words, reason])
    return markdown(["source", "the paper says", "verdict", "reason"], rows)


@table("comparisons")
def comparisons(results: Results) -> str:
    """Return the comparisons that the paper does not make."""
    rows = []
    for claim, (found, reason) in _judged(results):
        if claim["part"] == OURS_ALONE:
            rows.append([claim["where"], claim["says"], found, reason])
    return markdown(["near", "QIPF compared with", "result", "reason"], rows)


@table("claims-count")
def counts(results: Results) -> str:
    """Return the number of claims by part and verdict."""
    words = ("holds, measured", NO_MEASUREMENT, PARTLY, OPEN, FAILS, UNKNOWN, "no verdict")

    def cell(part: str, word: str) -> str:
        return count(results, word, part)

    return grid("part", {**PARTS, "": "all"}, {word: word for word in words}, cell)


@value("claims")
def count(results: Results, wanted: str, part: str = "") -> str:
    """Return the number of claims with a verdict, of "all" claims or of "ours"."""
    if wanted == "ours":
        return str(sum(claim["part"] == OURS_ALONE for claim, _ in _judged(results)))
    total = 0
    for claim, (word, _) in _judged(results):
        how = NO_MEASUREMENT if claim["judge"] == HOLDS else f"{word}, measured"
        total += claim["part"] in ((part,) if part else PARTS) and wanted in ("all", word, how)
    return str(total)


@cache
def _judged(results: Results) -> list[tuple[dict[str, str], Found]]:
    with Path(__file__).with_name("claims.csv").open() as file:
        return [(claim, _found(results, claim["judge"], claim["arguments"])) for claim in csv.DictReader(file)]


def _found(results: Results, judge: str, arguments: str) -> Found:
    if judge not in JUDGES:
        return judge, arguments
    try:
        return JUDGES[judge](results, *arguments.split("; ") if arguments else ())
    except Missing:
        return UNMEASURED


def _judge(function: Callable[..., Found]) -> Callable[..., Found]:
    JUDGES[function.__name__] = function
    return function


def _of_all(held: int, count: int) -> str:
    """Return the verdict on a claim about every case."""
    return HOLDS if held == count else PARTLY if held else FAILS


def _agreed(words: set[str]) -> str:
    return words.pop() if len(words) == 1 else OPEN


@_judge
def most(results: Results, metric: str) -> Found:
    """Judge whether QIPF is best in most cases."""
    found = [next(c for c in paper_claims(results, metric, ours) if c.scope == "most") for ours in OURS]
    shares = [f"{0.5 + claim.advantage:.0%}" if np.isfinite(claim.advantage) else "–" for claim in found]
    text = f"best in {shares[0]} exact, {shares[1]} program; paper {paper_share(metric)}"
    return _agreed({WORDS[claim.here] for claim in found}), text


def _on_their_networks(results: Results, score: str) -> list[float]:
    datasets = authors.facts_of(results)
    return [authors.mean(results, d, "qipf-published") - authors.mean(results, d, score) for d in datasets]


def _ends(gaps: list[Any]) -> str:
    return "/".join(f"{gap.value if hasattr(gap, 'value') else gap:+.3f}".replace("0.", ".", 1) for gap in gaps)


@_judge
def better(results: Results, rival: str) -> Found:
    """Judge whether QIPF is better than a rival that is scored by its standard deviation, as in the paper.

    The claim holds if both forms of QIPF are significantly ahead in ROC-AUC and in PR-AUC and, if the rival was
    measured on the authors' own networks, not relevantly behind there. It holds in part if most of these conditions
    are met, and fails if a comparison is significantly behind and none is ahead.
    """
    gaps = {m: [_measured(results.difference(m, ours, rival)) for ours in OURS] for m in ("roc_auc", "pr_auc")}
    decided = [gap.verdict for both in gaps.values() for gap in both]
    text = f"ROC {_ends(gaps['roc_auc'])}, PR {_ends(gaps['pr_auc'])}"
    theirs = next((score for score, method in authors.SCORES.items() if method == rival), None)
    if theirs is not None:
        own = _on_their_networks(results, theirs)
        decided += ["no" if gap < -SMALLEST else "yes" for gap in own if abs(gap) > SMALLEST]
        text = f"{text}; theirs {_ends(own)}"
    if "yes" not in decided:
        return (FAILS if "no" in decided else OPEN), text
    return (HOLDS if set(decided) == {"yes"} else PARTLY if decided.count("yes") > len(decided) / 2 else OPEN), text


@_judge
def sharper(results: Results) -> Found:
    """Judge whether QIPF is ahead of every Bayesian method."""
    words = {}
    for rival in BAYESIAN:
        words[rival] = _agreed({_measured(results.difference("roc_auc", ours, rival)).verdict for ours in OURS})
    ahead = [rival for rival, word in words.items() if word == "yes"]
    others = ", ".join(SHORT[rival] for rival in BAYESIAN if rival not in ahead)
    text = f"ahead of {len(ahead)} of {len(BAYESIAN)}" + (f", not {others}" if others else "")
    return _of_all(len(ahead), len(BAYESIAN)), text


def _compared(gaps: list[Any], decided: set[Verdict]) -> Found:
    words: dict[Verdict, str] = {"yes": "ahead", "no": "behind", "undecided": OPEN}
    text = ", ".join(f"{gap.value:+.3f} {name}" for gap, name in zip(gaps, ("exact", "program"), strict=True))
    return _agreed({words[one] for one in decided}), text


@_judge
def compared(results: Results, rival: str, metric: str = "roc_auc") -> Found:
    """Compare QIPF with a rival, and name the pairs that lack it."""
    gaps = [_measured(results.difference(metric, ours, rival)) for ours in OURS]
    word, text = _compared(gaps, {gap.verdict for gap in gaps})
    missing = [name for pair, name in PAIRS.items() if pair not in results.measured_on(rival)]
    return word, ", ".join([text, *(f"not {name}" for name in missing)])


@_judge
def in_probe_study(results: Results, rival: str) -> Found:
    """Compare QIPF with a rival in the probe study."""
    found = study(results)
    if not found.pairs:
        return UNMEASURED
    gaps = [found.difference(ours, rival, "shift", "roc_auc") for ours in PROBE_NAMES]
    word, text = _compared(gaps, {verdict(gap.low, gap.high) for gap in gaps})
    return word, f"{text}, other networks"


@_judge
def matched(results: Results, rival: str) -> Found:
    """Compare QIPF with a rival at the paper's error rates."""
    ours, _ = zip(*(gaps[rival] for *_, gaps in cells.matched_cells(results)), strict=True)
    ahead = sum(value > 0 for value in ours)
    word = "ahead on average" if np.mean(ours) > 0 else "behind on average"
    return word, f"{np.mean(ours):+.3f}, {ahead} of {len(ours)} cells; no interval"


def _measured(gap: Difference | None) -> Difference:
    if gap is None:
        raise Missing("the difference")
    return gap


@_judge
def curve(results: Results, pair: str, shift: str, metric: str) -> Found:
    """Judge whether QIPF is best at every intensity."""
    dataset, net = pair.split()
    best = [cells.best_at(results, (dataset, net), shift, metric, ours) for ours in OURS]
    (exact, of), (program, _) = best
    if not of:
        return UNMEASURED
    least = min(exact, program)
    word = HOLDS if least == of else PARTLY if least > of / 2 else FAILS
    return word, f"best at {exact} (exact), {program} (program) of {of}"


@_judge
def figure(results: Results, start: str) -> Found:
    """Return the verdict based on the captions of the illustrations."""
    marks = {"✓": HOLDS, "✗": FAILS, "?": OPEN, illustrations.PARTLY: PARTLY}
    rows = [row for row in illustrations.rows() if row[0].startswith(start)]
    words = {marks[mark] for _, _, mark in rows}
    return (words.pop() if len(words) == 1 else PARTLY), "; ".join(here for _, here, _ in rows[:2])


@_judge
def choice(results: Results, name: str, rule: str, words: str) -> Found:
    """Judge one of the paper's choices by its differences on the four pairs.

    By the rule `ahead`, the claim holds if the first setting is significantly ahead on every pair; by `not_ahead` and
    `not_behind`, it holds if the first setting is not significantly ahead or behind on any pair.
    """
    known = [gap for pair in PAIRS if (gap := chosen(results, name, pair, "roc_auc")) is not None]
    if not known:
        return UNMEASURED
    side = "no" if words == "behind" else "yes"
    count = sum(gap.verdict == side and not gap.negligible for gap in known)
    sizes = f"{min(gap.value for gap in known):+.3f} to {max(gap.value for gap in known):+.3f}"
    word = _of_all(count, len(known)) if rule == "ahead" else FAILS if count else HOLDS
    return word, f"{words} on {count} of {len(known)} pairs, {sizes}"


@_judge
def one_pass(results: Results) -> Found:
    """Compare QIPF with SVI-LL, scored as by the authors."""
    gaps = _on_their_networks(results, "svi-ll (max_logit_one_pass)")
    word = "ahead" if min(gaps) > SMALLEST else "behind" if max(gaps) < -SMALLEST else OPEN
    return word, f"{gaps[0]:+.3f} MNIST, {gaps[1]:+.3f} K-MNIST"


@_judge
def faster(results: Results, other: str) -> Found:
    """Judge whether QIPF is faster on every device."""
    found = []
    for device in ("cuda", "cpu"):
        rows = results.times[results.times["device"] == device].to_dict("records")
        for ours in OURS:
            own = [c for c in claims([], rows, metrics=(), ours=ours) if c.other == other]
            found += [c for c in own if c.here != "not measured" and c.paper == "yes"]
    if not found:
        return UNMEASURED
    held, ratios = sum(c.here == "yes" for c in found), np.exp([c.advantage for c in found])
    text = f"{held} of {len(found)} comparisons, {min(ratios):.1f} to {max(ratios):.0f} times"
    return _of_all(held, len(found)), text


@_judge
def accuracies(results: Results) -> Found:
    """Judge whether the paper's accuracies lie in our 95% intervals."""
    own = {pair: [100 * value for value in detection.accuracies(results, pair)] for pair in PAPER_ACCURACY}
    if min(map(len, own.values())) < 2:
        return UNMEASURED
    gaps = [np.mean(own[pair]) - theirs for pair, theirs in PAPER_ACCURACY.items()]
    ends = {pair: detection.interval(values) for pair, values in own.items()}
    inside = sum(ends[pair][0] <= theirs <= ends[pair][1] for pair, theirs in PAPER_ACCURACY.items())
    text = f"ours differ by {min(gaps):+.1f} to {max(gaps):+.1f} points; {inside} of {len(gaps)} in our interval"
    return _of_all(inside, len(gaps)), text


@_judge
def second(results: Results) -> Found:
    """Judge whether the ensemble is second best."""
    others = [other for other in RIVALS if other != "ensemble"]
    gaps = {other: _measured(results.difference("roc_auc", "ensemble", other)) for other in others}
    words, last = {gap.verdict for gap in gaps.values()}, gaps["mc-dropout-ll"].value
    text = f"MC dropout LL is ahead by {-last:+.3f}" if last < 0 else "ahead of all"
    return (HOLDS if words == {"yes"} else FAILS if "no" in words else OPEN), text


@_judge
def as_printed(results: Results, metric: str) -> Found:
    """Count the paper's cells within our range."""
    inside, count = cells.within(results, metric)
    word = "like ours" if inside == count else "partly like ours" if inside else "unlike ours"
    return word, f"{inside} of {count} lie within our range"


@_judge
def by_its_own_numbers(results: Results) -> Found:
    """Judge the calibration by the paper's own numbers."""
    metrics = {"ece_paper": "ECE", "brier_paper": "Brier"}
    held = sum(bool(np.mean(paper_best(metric)) > 0.5) for metric in metrics)
    text = ", ".join(f"{name} {paper_share(metric)}" for metric, name in metrics.items())
    return ("best in most" if held == len(metrics) else "not best in most"), text


@_judge
def boundary(results: Results, name: str) -> Found:
    """Judge whether a method is less certain at the boundary."""
    spread = illustrations.caption_table("moons")[name]["boundary / seen"]
    return (HOLDS if spread.low > 1 else OPEN), f"boundary / seen {spread}"


@_judge
def best_rates(results: Results, kind: str) -> Found:
    """Judge whether the paper's dropout rate is nearly the best."""
    found = mean_rates(results, kind)
    behind = [max(means.values()) - means[PAPER_RATES[kind][plan]] for plan, means in found.items()]
    sizes = ", ".join(number(size) for size in behind)
    return (HOLDS if max(behind) < SMALLEST else FAILS), f"behind the best by {sizes}; not ResNet-18"


@_judge
def passes(results: Results) -> Found:
    """Judge whether fewer passes or members reduce the ROC-AUC."""
    values = [facts["passes"] for facts in authors.facts_of(results).values()]
    dropout = [v["mc-dropout, 30, std"] - v["mc-dropout, 5, std"] for v in values]
    members = [v["ensemble, 10, std"] - v["ensemble, 3, std"] for v in values]
    word = HOLDS if min(*dropout, *members) > 0.005 else FAILS if max(*dropout, *members) < 0.005 else PARTLY
    costs = [f"{np.mean(part):.3f}" for part in (dropout, members)]
    return word, f"{costs[0]} lower with 5 of 30 passes, {costs[1]} with 3 of 10 members"


@_judge
def decay(results: Results) -> Found:
    """Judge whether the medians of the modes fall with the order."""
    modes = [facts["modes"][key] for facts in authors.facts_of(results).values() for key in authors.MODES]
    falling = sum(bool(np.all(np.diff(values) < 0)) for values in modes)
    return _of_all(falling, len(modes)), f"medians fall with the order in {falling} of {len(modes)} settings"


@_judge
def sensitive(results: Results) -> Found:
    """Judge whether higher orders are more sensitive."""
    runs = results.json(authors.SMALL, "modes").values()
    ratios = np.concatenate([np.array(run["unseen"]) / np.array(run["seen"]) for run in runs])
    rising = int(np.all(np.diff(ratios, axis=1) > 0, axis=1).sum())
    return _of_all(rising, len(ratios)), f"true in {rising} of {len(ratios)} runs"


@_judge
def band(results: Results, name: str, key: str, bound: str) -> Found:
    """Judge whether every run lies on one side of a bound, such as "> 1"."""
    values = results.json(authors.SMALL, "bands", name, key)
    side, number = bound.split()
    inside = sum((value > float(number)) == (side == ">") for value in values)
    return (HOLDS if inside == len(values) else FAILS if not inside else OPEN), authors.spread(values)


@_judge
def orthogonal(results: Results) -> Found:
    """Judge whether the modes are orthogonal."""
    cosines = list(results.json(authors.SMALL, "orthogonal").values())
    return (FAILS if max(cosines) > 0.1 else HOLDS), f"cosines from {min(cosines):.2f} to {max(cosines):.2f}, not 0"


@_judge
def cost(results: Results) -> Found:
    """Judge whether the time grows linearly."""
    n, m = (results.json(authors.SMALL, "cost", key) for key in ("slope in n", "slope in m"))
    return HOLDS if max(n, m) < 1.3 else PARTLY, f"exponents {n:.2f} in n, {m:.2f} in m; the authors' script is O(m²)"


@_judge
def overlap(results: Results) -> Found:
    """Judge whether QIPF's histograms of correct and wrong predictions overlap significantly less than all others.

    Individual images are not recorded, so the standard error of an overlap is computed as that of a proportion.
    """
    own, others, images = _histograms(results, "overlap")
    least = min(others)
    half = 1.96 * sum(value * (1 - value) / images for value in (own, least)) ** 0.5
    word = WORDS[verdict(least - own - half, least - own + half)]
    return word, f"overlap {own:.2f}, the least of the others {least:.2f}, ± {half:.2f}"


@_judge
def apart(results: Results) -> Found:
    """Report the distance between the modes of two histograms."""
    own, others, _ = _histograms(results, "distance")
    return OPEN, f"by {own:.2f} std, the others by up to {max(others):.2f}; no interval"


def _histograms(results: Results, key: str) -> tuple[float, list[float], int]:
    facts = authors.facts_of(results)["mnist"]
    values = {name: facts["overlap"][name][key] for name in authors.HISTOGRAMS if name != "max-logit"}
    return values.pop("qipf-published"), list(values.values()), facts["images"]


@_judge
def fundamental(results: Results) -> Found:
    """Judge whether the mode of the lowest order is the highest."""
    modes = [facts["modes"][key] for facts in authors.facts_of(results).values() for key in authors.MODES]
    modes += [run for places in results.json(authors.SMALL, "modes").values() for run in places["unseen"]]
    highest = sum(int(np.argmax(values)) == 0 for values in modes)
    return _of_all(highest, len(modes)), f"true in {highest} of {len(modes)} settings"


@_judge
def setting(results: Results, name: str) -> Found:
    """Compare two settings on the four pairs."""
    word, text = choice(results, name, "ahead", "ahead")
    return {HOLDS: "ahead", PARTLY: "ahead in part", FAILS: "not ahead"}.get(word, word), text


@_judge
def calibrated(results: Results, metric: str) -> Found:
    """Report the number of cases in which QIPF is best calibrated, by each definition that the paper could mean.

    By appendix D of the paper, QIPF has the calibration of the base network; the other two definitions scale the score.
    """
    best, count = rivals.calibrated_best(results, f"{metric}_confidence")
    shares = []
    for scale in ("paper", "proper"):
        found = [next(c for c in paper_claims(results, f"{metric}_{scale}", o) if c.scope == "most") for o in OURS]
        shares.append("/".join(f"{0.5 + claim.advantage:.0%}" for claim in found))
    return UNKNOWN, f"App. D {best} of {count}; min-max {shares[0]}; isotonic {shares[1]}"


@_judge
def calibrated_second(results: Results) -> Found:
    """Report whether SVI is second in ECE."""
    found = []
    for metric in ("ece_paper", "ece_proper"):
        gaps = [results.difference(metric, "svi", other) for other in RIVALS if other != "svi"]
        words = {_measured(gap).verdict for gap in gaps}
        found.append(HOLDS if words == {"yes"} else FAILS if "no" in words else OPEN)
    return UNKNOWN, f"min-max: {found[0]}; isotonic: {found[1]}"


@_judge
def calibrated_curve(results: Results, pair: str, shift: str) -> Found:
    """Report the number of intensities at which QIPF has the lowest ECE."""
    dataset, net = pair.split()
    found = []
    for metric in ("ece_paper", "ece_proper"):
        best = [cells.best_at(results, (dataset, net), shift, metric, ours) for ours in OURS]
        found.append(f"{best[0][0]}/{best[1][0]} of {best[0][1]}")
    return UNKNOWN, f"best at {found[0]}, min-max; {found[1]}, isotonic"


@_judge
def shuffled(results: Results) -> Found:
    """Judge whether the field distinguishes a network from one with shuffled weights.

    The claim fails if no score changes by 1% of the largest score, and is undecided otherwise, because a field that
    depends on the order need not approximate the probability.
    """
    found = [facts["shuffled weights"] for facts in authors.facts_of(results).values()]
    moved = max(one["largest difference"] / one["largest score"] for one in found)
    same = max(one["largest difference"] for one in found)
    return (FAILS if moved < 0.01 else OPEN), f"shuffled weights: same score (± {same:.1g})"
