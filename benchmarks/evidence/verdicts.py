"""Every claim of the paper in one table: a verdict with its reason, or the reason why there is none.

claims.csv lists the claims. Its column `judge` has a verdict, and `arguments` the reason for it; or `judge` names a
function below, and `arguments` what it is called with.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evidence import authors, cells, detection, illustrations
from evidence.claims import OURS, chosen, paper_claims, paper_share
from evidence.detection import PAPER_ACCURACY
from evidence.marks import table, value
from evidence.results import PAIRS, Missing, Results, markdown, number
from evidence.rivals import PAPER_RATES, mean_rates
from probe.tables import study
from qipf.study.tables.claims import RIVALS, claims, paper_best
from qipf.study.tables.paired import SMALLEST, Difference, Verdict, verdict

HOLDS, FAILS, OPEN, PARTLY = "holds", "does not hold", "undecided", "partly"
WORDS: dict[Verdict, str] = {"yes": HOLDS, "no": FAILS, "undecided": OPEN, "not measured": "not measured"}
UNMEASURED = (WORDS["not measured"], "")
PARTS = ("detection", "calibration", "cost", "behaviour", "theory")
PROBE_NAMES = ("QIPF, exact operator", "QIPF, authors' program")
"""The two forms of QIPF in the probe's study."""

Found = tuple[str, str]
JUDGES: dict[str, Callable[..., Found]] = {}


@table("claims-{part}", part=PARTS)
def claims_of(results: Results, part: str) -> str:
    """The claims of one part of the paper."""
    rows = []
    for claim, (found, reason) in _judged(results):
        if claim["part"] == part:
            words = f"**{found}**" if found in (HOLDS, FAILS) else found
            rows.append([claim["where"], claim["says"], words, reason])
    return markdown(["where", "the paper says", "verdict", "because"], rows)


@value("claims")
def count(results: Results, wanted: str) -> str:
    """How many claims have one verdict, or how many there are (`all`)."""
    return str(sum(wanted in (found, "all") for _, (found, _) in _judged(results)))


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
    """Return the verdict on a claim that must hold in every case."""
    return HOLDS if held == count else PARTLY if held else FAILS


def _agreed(words: set[str]) -> str:
    return words.pop() if len(words) == 1 else OPEN


@_judge
def most(results: Results, metric: str) -> Found:
    """Judge whether both forms of QIPF are best in most cases by one metric."""
    found = [next(c for c in paper_claims(results, metric, ours) if c.scope == "most") for ours in OURS]
    shares = [f"{0.5 + claim.advantage:.0%}" if np.isfinite(claim.advantage) else "–" for claim in found]
    text = f"best in {shares[0]} exact, {shares[1]} program; paper {paper_share(metric)}"
    return _agreed({WORDS[claim.here] for claim in found}), text


def _both(gaps: list[Any], words: set[str]) -> Found:
    text = ", ".join(f"{gap.value:+.3f} {name}" for gap, name in zip(gaps, ("exact", "program"), strict=True))
    return _agreed(words), text


@_judge
def beats(results: Results, rival: str) -> Found:
    """Judge whether both forms of QIPF are ahead of one rival; name the pairs on which it was not measured."""
    gaps = [_measured(results.difference("roc_auc", ours, rival)) for ours in OURS]
    word, text = _both(gaps, {WORDS[gap.verdict] for gap in gaps})
    missing = [name for pair, name in PAIRS.items() if pair not in results.measured_on(rival)]
    return word, ", ".join([text, *(f"not {name}" for name in missing)])


@_judge
def in_probe_study(results: Results, rival: str) -> Found:
    """Judge the same by the probe's study, whose intervals resample images as well."""
    found = study(results.folder)
    if not found.pairs:
        return UNMEASURED
    gaps = [found.difference(ours, rival, "shift", "roc_auc") for ours in PROBE_NAMES]
    word, text = _both(gaps, {WORDS[verdict(gap.low, gap.high)] for gap in gaps})
    return word, f"{text}, other networks"


def _measured(gap: Difference | None) -> Difference:
    if gap is None:
        raise Missing("the difference")
    return gap


@_judge
def curve(results: Results, pair: str, shift: str, metric: str) -> Found:
    """Judge whether both forms of QIPF are best at every intensity of one shift."""
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
    """Report what the captions of the illustrations decide."""
    marks = {"✓": HOLDS, "✗": FAILS, "?": OPEN}
    rows = [row for row in illustrations.rows() if row[0].startswith(start)]
    words = {marks[mark] for _, _, mark in rows}
    return (words.pop() if len(words) == 1 else PARTLY), "; ".join(here for _, here, _ in rows[:2])


@_judge
def choice(results: Results, name: str, rule: str, words: str) -> Found:
    """Judge one of the paper's choices by its differences on the four pairs.

    The rule `ahead` holds if every pair is decidedly ahead, `not_ahead` and `not_behind` if no pair is.
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
    """Judge the authors' networks, scored by their own program's definitions."""
    ours, theirs = "qipf-published", "svi-ll (max_logit_one_pass)"
    gaps = [authors.mean(results, d, ours) - authors.mean(results, d, theirs) for d in authors.facts_of(results)]
    word = HOLDS if min(gaps) > SMALLEST else FAILS if max(gaps) < -SMALLEST else OPEN
    return word, f"{gaps[0]:+.3f} MNIST, {gaps[1]:+.3f} K-MNIST: two networks, theirs"


@_judge
def faster(results: Results, other: str) -> Found:
    """Judge whether QIPF takes less time than another method, on every device that was timed."""
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
    """Judge whether the paper's networks could be further ones of ours, by the 95 % interval for one more accuracy."""
    own = {pair: [100 * value for value in detection.accuracies(results, pair)] for pair in PAPER_ACCURACY}
    if min(map(len, own.values())) < 2:
        return UNMEASURED
    gaps = [np.mean(own[pair]) - theirs for pair, theirs in PAPER_ACCURACY.items()]
    ends = {pair: detection.interval(values) for pair, values in own.items()}
    inside = sum(ends[pair][0] <= theirs <= ends[pair][1] for pair, theirs in PAPER_ACCURACY.items())
    text = f"ours are {min(gaps):+.1f} to {max(gaps):+.1f} points away; {inside} of {len(gaps)} in our spread"
    return _of_all(inside, len(gaps)), text


@_judge
def second(results: Results) -> Found:
    """Judge whether the ensemble is ahead of all other rivals."""
    others = [other for other in RIVALS if other != "ensemble"]
    gaps = {other: _measured(results.difference("roc_auc", "ensemble", other)) for other in others}
    words, last = {gap.verdict for gap in gaps.values()}, gaps["mc-dropout-ll"].value
    text = f"MC dropout LL is ahead by {-last:+.3f}" if last < 0 else "ahead of all"
    return (HOLDS if words == {"yes"} else FAILS if "no" in words else OPEN), text


@_judge
def as_printed(results: Results) -> Found:
    """Judge whether the paper's cells lie within our spread."""
    inside, count = cells.within(results)
    return _of_all(inside, count), f"{inside} of {count} lie within our spread"


@_judge
def by_its_own_numbers(results: Results) -> Found:
    """Judge whether QIPF has the best calibration in most of the paper's own cells."""
    metrics = {"ece_paper": "ECE", "brier_paper": "Brier"}
    held = sum(bool(np.mean(paper_best(metric)) > 0.5) for metric in metrics)
    return _of_all(held, len(metrics)), ", ".join(f"{name} {paper_share(metric)}" for metric, name in metrics.items())


@_judge
def boundary(results: Results, name: str) -> Found:
    """Judge whether a method is less sure at the boundary than where it saw data."""
    spread = illustrations.caption_table("moons")[name]["boundary / seen"]
    return (HOLDS if spread.low > 1 else OPEN), f"boundary / seen {spread}"


@_judge
def best_rates(results: Results, kind: str) -> Found:
    """Judge whether the paper's dropout rate is the best of those that were tried, or nearly so, on every pair."""
    found = mean_rates(results, kind)
    behind = [max(means.values()) - means[PAPER_RATES[kind][plan]] for plan, means in found.items()]
    sizes = ", ".join(number(size) for size in behind)
    return (HOLDS if max(behind) < SMALLEST else FAILS), f"behind the best by {sizes}; not ResNet-18"


@_judge
def passes(results: Results) -> Found:
    """Judge whether fewer passes and fewer members cost much."""
    values = [facts["passes"] for facts in authors.facts_of(results).values()]
    dropout = [v["mc-dropout, 30, std"] - v["mc-dropout, 5, std"] for v in values]
    members = [v["ensemble, 10, std"] - v["ensemble, 3, std"] for v in values]
    word = HOLDS if min(*dropout, *members) > 0.005 else FAILS if max(*dropout, *members) < 0.005 else PARTLY
    costs = [f"{np.mean(part):.3f}" for part in (dropout, members)]
    return word, f"30 to 5 passes costs {costs[0]}, 10 to 3 members {costs[1]} (ROC-AUC)"


@_judge
def decay(results: Results) -> Found:
    """Judge whether the medians of the modes fall with the order."""
    modes = [facts["modes"][key] for facts in authors.facts_of(results).values() for key in authors.MODES]
    falling = sum(bool(np.all(np.diff(values) < 0)) for values in modes)
    return _of_all(falling, len(modes)), f"medians fall with the order in {falling} of {len(modes)} settings"


@_judge
def sensitive(results: Results) -> Found:
    """Judge whether higher orders differ more between seen and unseen places."""
    runs = results.json(authors.SMALL, "modes").values()
    ratios = np.concatenate([np.array(run["unseen"]) / np.array(run["seen"]) for run in runs])
    rising = int(np.all(np.diff(ratios, axis=1) > 0, axis=1).sum())
    return _of_all(rising, len(ratios)), f"so in {rising} of {len(ratios)} runs"


@_judge
def band(results: Results, name: str, key: str, bound: str) -> Found:
    """Judge whether a recorded value lies on one side of a bound ("> 1") in every run."""
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
    """Judge whether time grows linearly in the numbers of outputs and weights."""
    n, m = (results.json(authors.SMALL, "cost", key) for key in ("slope in n", "slope in m"))
    return HOLDS if max(n, m) < 1.3 else PARTLY, f"exponents {n:.2f} in n, {m:.2f} in m; their script sums O(m²)"


@_judge
def overlap(results: Results) -> Found:
    """Judge whether QIPF's histograms of right and wrong predictions overlap least."""
    found = authors.facts_of(results)["mnist"]["overlap"]
    values = {key: found[key]["overlap"] for key in authors.HISTOGRAMS if key != "max-logit"}
    own, least = values.pop("qipf-published"), min(values.values())
    return (HOLDS if own < least else FAILS), f"overlap {own:.2f}; the others {least:.2f} or more"


@_judge
def shuffled(results: Results) -> Found:
    """Judge whether the field tells a network from one whose weights stand in another order, and which predicts else.

    It fails if no score changes by a hundredth of the largest one, and is undecided otherwise: a field that sees the
    order need not approximate the probability.
    """
    found = [facts["shuffled weights"] for facts in authors.facts_of(results).values()]
    moved = max(one["largest difference"] / one["largest score"] for one in found)
    same = max(one["largest difference"] for one in found)
    return (FAILS if moved < 0.01 else OPEN), f"shuffled weights: same score (± {same:.1g})"
