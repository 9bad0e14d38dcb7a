"""How a claim of the paper is judged from the study's tables: a verdict, and the reason in a few words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evidence import authors, cells, illustrations, settings
from evidence.claims import OURS, paper_claims, paper_share
from evidence.detection import accuracy
from evidence.results import PAIRS, Results
from evidence.setup import PAPER_ACCURACY
from qipf.study.tables.claims import RIVALS, claims
from qipf.study.tables.paired import SMALLEST, Verdict

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
PARTLY, UNKNOWN, NONE = "partly", "not determined", "no verdict"
WORDS: dict[Verdict, str] = {"yes": HOLDS, "no": FAILS, "undecided": OPEN, "not measured": "not measured"}

Found = tuple[str, str]


def most(metric: str) -> Callable[[Results], Found]:
    """Whether both forms of QIPF are best in most cases by one metric."""

    def found(results: Results) -> Found:
        verdicts, shares = [], []
        for ours in OURS:
            claim = next(c for c in paper_claims(results, metric, ours) if c.scope == "most")
            verdicts.append(claim.here)
            shares.append(f"{0.5 + claim.advantage:.0%}" if np.isfinite(claim.advantage) else "–")
        word = WORDS[verdicts[0]] if verdicts[0] == verdicts[1] else OPEN
        return word, f"best in {shares[0]} exact, {shares[1]} program; paper {paper_share(metric)}"

    return found


def beats(rival: str, metric: str = "roc_auc") -> Callable[[Results], Found]:
    """Whether both forms of QIPF are ahead of one rival; pairs that it was not measured on are named."""

    def found(results: Results) -> Found:
        gaps = [results.difference(metric, ours, rival) for ours in OURS]
        if any(gap is None for gap in gaps):
            return WORDS["not measured"], ""
        known = [gap for gap in gaps if gap is not None]
        words = {WORDS[gap.verdict] for gap in known}
        text = ", ".join(f"{gap.value:+.3f} {name}" for gap, name in zip(known, ("exact", "program"), strict=True))
        missing = [name for pair, name in PAIRS.items() if pair not in results.measured_on(rival)]
        text = ", ".join([text, *(f"not {name}" for name in missing)])
        return (words.pop() if len(words) == 1 else OPEN), text

    return found


def curve(pair: tuple[str, str], shift: str, metric: str) -> Callable[[Results], Found]:
    """Whether both forms of QIPF are best at every intensity of one shift."""

    def found(results: Results) -> Found:
        best = [cells.best_at(results, pair, shift, metric, ours) for ours in OURS]
        if not best[0][1]:
            return WORDS["not measured"], ""
        least, of = min(count for count, _ in best), best[0][1]
        word = HOLDS if least == of else PARTLY if least > of / 2 else FAILS
        return word, f"best at {best[0][0]} (exact), {best[1][0]} (program) of {best[0][1]}"

    return found


def figure(start: str) -> Callable[[Results], Found]:
    """What the captions of the illustrations decide."""

    def found(results: Results) -> Found:
        marks = {"✓": HOLDS, "✗": FAILS, "?": OPEN}
        rows = [row for row in illustrations.rows() if row[0].startswith(start)]
        words = [marks[mark] for _, _, mark in rows]
        return (words[0] if len(set(words)) == 1 else PARTLY), "; ".join(here for _, here, _ in rows[:2])

    return found


def not_behind(verdicts: list[Verdict]) -> str:
    """Holds unless a pair decides against it."""
    return HOLDS if "no" not in verdicts else FAILS


def not_ahead(verdicts: list[Verdict]) -> str:
    """Holds unless a pair is decidedly ahead."""
    return HOLDS if "yes" not in verdicts else FAILS


def ahead(verdicts: list[Verdict]) -> str:
    """Holds where every pair is decidedly ahead, partly where one is."""
    return HOLDS if set(verdicts) == {"yes"} else PARTLY if "yes" in verdicts else FAILS


def choice(start: str, judge: Callable[[list[Verdict]], str], words: str) -> Callable[[Results], Found]:
    """One of the paper's choices, from its differences on the four pairs."""

    def found(results: Results) -> Found:
        choice = next(choice for choice in settings.CHOICES if choice.text.startswith(start))
        gaps = [settings.difference(results, choice, pair, "roc_auc") for pair in PAIRS]
        known = [gap for gap in gaps if gap is not None]
        if not known:
            return WORDS["not measured"], ""
        side: Verdict = "no" if words == "behind" else "yes"
        verdicts: list[Verdict] = ["undecided" if gap.negligible else gap.verdict for gap in known]
        sizes = f"{min(gap.value for gap in known):+.3f} to {max(gap.value for gap in known):+.3f}"
        return judge(verdicts), f"{words} on {sum(v == side for v in verdicts)} of {len(known)} pairs, {sizes}"

    return found


def one_pass(results: Results) -> Found:
    """The authors' networks, scored by their own program's definitions."""
    if authors.facts_of(results) is None:
        return WORDS["not measured"], ""
    scores = ("qipf-published", "svi-ll (max_logit_one_pass)")
    gaps = [authors.mean(results, d, scores[0]) - authors.mean(results, d, scores[1]) for d in authors.DATASETS]
    word = HOLDS if min(gaps) > SMALLEST else FAILS if max(gaps) < -SMALLEST else OPEN
    return word, f"{gaps[0]:+.3f} MNIST, {gaps[1]:+.3f} K-MNIST: two networks, theirs"


def faster(results: Results, other: str) -> Found:
    """Whether QIPF takes less time than another method, on every device that was timed."""
    times = results.times
    found = []
    for device in ("cuda", "cpu"):
        rows = times[times["device"] == device].to_dict("records")
        for ours in OURS:
            own = [c for c in claims([], rows, metrics=(), ours=ours) if c.other == other]
            found += [c for c in own if c.here != "not measured" and c.paper == "yes"]
    if not found:
        return WORDS["not measured"], ""
    held = sum(c.here == "yes" for c in found)
    ratios = np.exp([c.advantage for c in found])
    word = HOLDS if held == len(found) else PARTLY if held else FAILS
    return word, f"{held} of {len(found)} comparisons, {min(ratios):.1f} to {max(ratios):.0f} times"


def accuracies(results: Results) -> Found:
    """How far our networks' accuracies lie from the paper's."""
    gaps = [100 * accuracy(results, pair) - theirs for pair, theirs in PAPER_ACCURACY.items()]
    return HOLDS, f"ours are {min(gaps):+.1f} to {max(gaps):+.1f} points away"


def second(results: Results) -> Found:
    """Whether the ensemble is ahead of all other rivals."""
    gaps = {other: results.difference("roc_auc", "ensemble", other) for other in RIVALS if other != "ensemble"}
    words = {gap.verdict for gap in gaps.values() if gap is not None}
    if not words:
        return WORDS["not measured"], ""
    last = gaps["mc-dropout-ll"]
    text = "" if last is None else f"MC dropout LL is ahead by {-last.value:+.3f}" if last.value < 0 else "ahead of all"
    return (HOLDS if words == {"yes"} else FAILS if "no" in words else OPEN), text


def boundary(name: str) -> Found:
    """Whether a method is less sure at the boundary than where it saw data."""
    spread = illustrations.caption_table("moons")[name]["boundary / seen"]
    return (HOLDS if spread.low > 1 else OPEN), f"boundary / seen {spread}"
