"""Every claim of the paper in one table: a verdict, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from evidence import authors, cells, illustrations, settings
from evidence.claims import OURS, paper_share
from evidence.detection import accuracy
from evidence.results import PAIRS, Results, markdown
from evidence.setup import PAPER_ACCURACY
from qipf.study.tables.claims import RIVALS, claims
from qipf.study.tables.paired import SMALLEST, Verdict

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
PARTLY, UNKNOWN, NONE = "partly", "not determined", "no verdict"
WORDS: dict[Verdict, str] = {"yes": HOLDS, "no": FAILS, "undecided": OPEN, "not measured": "not measured"}

Found = tuple[str, str]
SMALL, OWN = "paper/small-claims.json", "authors"


class Entry(NamedTuple):
    """A claim of the paper: where it stands, what it says, and what was found (a verdict and its reason)."""

    where: str
    says: str
    found: Found | Callable[[Results], Found]


def table(results: Results, part: str) -> str:
    """The claims of one part of the paper."""
    rows = []
    for entry, (verdict, reason) in zip(ENTRIES[part], _judged(results)[part], strict=True):
        rows.append([entry.where, entry.says, f"**{verdict}**" if verdict in (HOLDS, FAILS) else verdict, reason])
    return markdown(["where", "the paper says", "verdict", "because"], rows)


def count(results: Results, verdict: str) -> str:
    """How many claims have one verdict, or how many there are (`all`)."""
    found = [one for part in _judged(results).values() for one in part]
    return str(len(found) if verdict == "all" else sum(one == verdict for one, _ in found))


@cache
def _judged(results: Results) -> dict[str, list[Found]]:
    return {
        part: [entry.found(results) if callable(entry.found) else entry.found for entry in entries]
        for part, entries in ENTRIES.items()
    }


def _most(metric: str) -> Callable[[Results], Found]:
    def found(results: Results) -> Found:
        rows = results.shifted
        verdicts, shares = [], []
        for ours in OURS:
            chosen = rows[(rows["metric"] == metric) & rows["column"].isin([*RIVALS, ours])]
            claim = next(c for c in claims(chosen, metrics=[metric], ours=ours) if c.scope == "most")
            verdicts.append(claim.here)
            shares.append(f"{0.5 + claim.advantage:.0%}" if np.isfinite(claim.advantage) else "–")
        word = WORDS[verdicts[0]] if verdicts[0] == verdicts[1] else OPEN
        return word, f"best in {shares[0]} exact, {shares[1]} program; paper {paper_share(metric)}"

    return found


def _beats(rival: str, metric: str = "roc_auc") -> Callable[[Results], Found]:
    def found(results: Results) -> Found:
        gaps = [results.difference(metric, ours, rival) for ours in OURS]
        if any(gap is None for gap in gaps):
            return WORDS["not measured"], ""
        known = [gap for gap in gaps if gap is not None]
        words = {WORDS[gap.verdict] for gap in known}
        text = ", ".join(f"{gap.value:+.3f} {name}" for gap, name in zip(known, ("exact", "program"), strict=True))
        return (words.pop() if len(words) == 1 else OPEN), text

    return found


def _curve(pair: tuple[str, str], shift: str, metric: str) -> Callable[[Results], Found]:
    def found(results: Results) -> Found:
        best = [cells.best_at(results, pair, shift, metric, ours) for ours in OURS]
        if not best[0][1]:
            return WORDS["not measured"], ""
        least, of = min(count for count, _ in best), best[0][1]
        word = HOLDS if least == of else PARTLY if least > of / 2 else FAILS
        return word, f"best at {best[0][0]} (exact), {best[1][0]} (program) of {best[0][1]}"

    return found


def _figure(start: str) -> Callable[[Results], Found]:
    """What the captions of the illustrations decide."""

    def found(results: Results) -> Found:
        marks = {"✓": HOLDS, "✗": FAILS, "?": OPEN}
        rows = [row for row in illustrations.rows() if row[0].startswith(start)]
        words = [marks[mark] for _, _, mark in rows]
        return (words[0] if len(set(words)) == 1 else PARTLY), "; ".join(here for _, here, _ in rows[:2])

    return found


def _not_behind(verdicts: list[Verdict]) -> str:
    return HOLDS if "no" not in verdicts else FAILS


def _not_ahead(verdicts: list[Verdict]) -> str:
    return HOLDS if "yes" not in verdicts else FAILS


def _ahead(verdicts: list[Verdict]) -> str:
    return HOLDS if set(verdicts) == {"yes"} else PARTLY if "yes" in verdicts else FAILS


def _choice(start: str, judge: Callable[[list[Verdict]], str], words: str) -> Callable[[Results], Found]:
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


def _one_pass(results: Results) -> Found:
    """The authors' networks, scored by their own program's definitions."""
    if authors.facts_of(results) is None:
        return WORDS["not measured"], ""
    scores = ("qipf-published", "svi-ll (max_logit_one_pass)")
    gaps = [authors.mean(results, d, scores[0]) - authors.mean(results, d, scores[1]) for d in authors.DATASETS]
    word = HOLDS if min(gaps) > SMALLEST else FAILS if max(gaps) < -SMALLEST else OPEN
    return word, f"{gaps[0]:+.3f} MNIST, {gaps[1]:+.3f} K-MNIST: two networks, theirs"


def _faster(results: Results, other: str) -> Found:
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


def _accuracies(results: Results) -> Found:
    gaps = [100 * accuracy(results, pair) - theirs for pair, theirs in PAPER_ACCURACY.items()]
    return HOLDS, f"ours are {min(gaps):+.1f} to {max(gaps):+.1f} points away"


def _facts(path: str, holds: Callable[[dict[str, object]], Found]) -> Callable[[Results], Found]:
    def found(results: Results) -> Found:
        facts = authors.facts_of(results) if path == OWN else results.json(path)
        return (WORDS["not measured"], "") if facts is None else holds(facts)

    return found


def _passes(facts: dict[str, object]) -> Found:
    values = [facts[d]["passes"] for d in authors.DATASETS]  # pyright: ignore[reportIndexIssue]
    dropout = [v["mc-dropout, 30, std"] - v["mc-dropout, 5, std"] for v in values]
    members = [v["ensemble, 10, std"] - v["ensemble, 3, std"] for v in values]
    word = HOLDS if min(*dropout, *members) > 0.005 else FAILS if max(*dropout, *members) < 0.005 else PARTLY
    costs = [f"{np.mean(part):.3f}" for part in (dropout, members)]
    return word, f"30 to 5 passes costs {costs[0]}, 10 to 3 members {costs[1]} (ROC-AUC)"


def _decay(facts: dict[str, object]) -> Found:
    modes = [facts[d]["modes"][key] for d in authors.DATASETS for key in ("qipf-published", "qipf-80", "qipf-160")]  # pyright: ignore[reportIndexIssue]
    falling = sum(bool(np.all(np.diff(values) < 0)) for values in modes)
    return (HOLDS if falling == len(modes) else FAILS if not falling else PARTLY), (
        f"medians fall with the order in {falling} of {len(modes)} settings"
    )


def _sensitive(facts: dict[str, object]) -> Found:
    rising, total = 0, 0
    for places in facts["modes"].values():  # pyright: ignore[reportAttributeAccessIssue]
        ratios = np.array(places["unseen"]) / np.array(places["seen"])
        rising, total = rising + int(np.all(np.diff(ratios, axis=1) > 0, axis=1).sum()), total + len(ratios)
    return (HOLDS if rising == total else FAILS if not rising else PARTLY), f"so in {rising} of {total} runs"


def _band(name: str, key: str, above: float, *, larger: bool = True) -> Callable[[dict[str, object]], Found]:
    def found(facts: dict[str, object]) -> Found:
        values = facts["bands"][name][key]  # pyright: ignore[reportIndexIssue]
        on_side = sum((value > above) == larger for value in values)
        text = f"{np.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"
        return (HOLDS if on_side == len(values) else FAILS if not on_side else OPEN), text

    return found


def _orthogonal(facts: dict[str, object]) -> Found:
    cosines = list(facts["orthogonal"].values())  # pyright: ignore[reportAttributeAccessIssue]
    return (FAILS if max(cosines) > 0.1 else HOLDS), f"cosines from {min(cosines):.2f} to {max(cosines):.2f}, not 0"


def _cost(facts: dict[str, object]) -> Found:
    n, m = (facts["cost"][key] for key in ("slope in n", "slope in m"))  # pyright: ignore[reportIndexIssue]
    return HOLDS if max(n, m) < 1.3 else PARTLY, f"exponents {n:.2f} in n, {m:.2f} in m; their script sums O(m²)"


def _overlap(facts: dict[str, object]) -> Found:
    found = facts["mnist"]["overlap"]  # pyright: ignore[reportIndexIssue]
    values = {key: found[key]["overlap"] for key in authors.HISTOGRAMS if key != "max-logit"}
    own = values.pop("qipf-published")
    least = min(values.values())
    return (HOLDS if own < least else FAILS), f"overlap {own:.2f}; the others {least:.2f} or more"


def _shuffled(facts: dict[str, object]) -> Found:
    same = facts["mnist"]["shuffled weights"]["largest difference"]  # pyright: ignore[reportIndexIssue]
    return FAILS, f"shuffled weights: same score (± {same:.1g})"


OUTER, RANK = "outside / seen", "rank correlation with the error, seen"
ENTRIES: dict[str, tuple[Entry, ...]] = {
    "detection": (
        Entry("Table 1", "QIPF best in most cases, ROC-AUC", _most("roc_auc")),
        Entry("Table 1", "QIPF best in most cases, PR-AUC", _most("pr_auc")),
        Entry("Table 1", "better than MC dropout", _beats("mc-dropout")),
        Entry("Table 1", "better than MC dropout LL", _beats("mc-dropout-ll")),
        Entry("Table 1", "better than SVI, by std", _beats("svi")),
        Entry("Table 1", "better than SVI, by entropy", _beats("svi (entropy)")),
        Entry("Table 1", "better than SVI, as they score it", (NONE, "one Flipout pass: GPU run is to come")),
        Entry("Table 1", "better than SVI-LL, by std", _beats("svi-ll")),
        Entry("Table 1", "better than SVI-LL, by entropy", _beats("svi-ll (entropy)")),
        Entry("Table 1", "better than SVI-LL, as they score it",
              lambda r: _one_pass(r)),
        Entry("Table 1", "better than the ensemble, by std", _beats("ensemble")),
        Entry("Table 1", "the ensemble is second best", lambda r: _second(r)),
        Entry("Table 1", "each cell as printed", lambda r: (PARTLY, f"{cells.agreement(r)} lie within our spread")),
        Entry("abstract", "sharper than std of Bayesian methods", _beats("mc-dropout")),
        Entry("Fig. 4 a", "least overlap of histograms at 270°", _facts(OWN, _overlap)),
        Entry("Fig. 4 d", "best ROC-AUC at every angle, MNIST", _curve(("mnist", "lenet"), "rotation", "roc_auc")),
        Entry("Fig. 4 e", "best PR-AUC at every angle, MNIST", _curve(("mnist", "lenet"), "rotation", "pr_auc")),
        Entry("Fig. 4 g", "largest point-biserial at every angle",
              _curve(("mnist", "lenet"), "rotation", "point_biserial")),
        Entry("App. G.1", "best ROC-AUC, K-MNIST rotation", _curve(("kmnist", "lenet"), "rotation", "roc_auc")),
        Entry("App. G.1", "best ROC-AUC, K-MNIST shear", _curve(("kmnist", "lenet"), "shear", "roc_auc")),
        Entry("App. G.1", "best ROC-AUC, K-MNIST zoom", _curve(("kmnist", "lenet"), "zoom", "roc_auc")),
        Entry("App. G.1", "histograms, K-MNIST, one cell per shift", (NONE, "“10 %” and “90 %” name no intensity")),
        Entry("App. G.2", "best ROC-AUC, ResNet-18 rotation", _curve(("cifar10", "resnet18"), "rotation", "roc_auc")),
    ),
    "calibration": (
        Entry("Table 2", "QIPF has the best ECE in most cases", (UNKNOWN, "values above 1 fit no definition in print")),
        Entry("Table 2", "the best Brier score in most cases", (UNKNOWN, "the same; its formula lacks the square")),
        Entry("Table 2", "“most cases”, by its own numbers",
              lambda r: (FAILS, f"ECE {paper_share('ece_paper')}, Brier {paper_share('brier_paper')}")),
        Entry("Table 2", "SVI is second in calibration", (UNKNOWN, "the same definition")),
        Entry("Table 2", "each cell as printed", (UNKNOWN, "the same definition; the cells are below")),
        Entry("Fig. 4 f", "lowest ECE at every angle, MNIST", (UNKNOWN, "the same definition; min-max curves below")),
        Entry("App. D", "ECE is not proper, Brier is", (HOLDS, "textbook")),
        Entry("App. H", "point-biserial: best in most cases", _most("point_biserial")),
        Entry("App. H", "Spearman: best in most cases", _most("spearman")),
        Entry("Sect. 2", "confidence is the largest probability", (FAILS, "Algorithm 1 takes the largest logit")),
    ),
    "cost": (
        Entry("Table 3", "much faster than MC dropout", lambda r: _faster(r, "mc-dropout")),
        Entry("Table 3", "much faster than MC dropout LL", lambda r: _faster(r, "mc-dropout-ll")),
        Entry("Table 3", "0.64, 0.88, 1.86 ms per image", (NONE, "the hardware is not named")),
        Entry("Sect. 9", "O(n + m) per prediction", _facts(SMALL, _cost)),
        Entry("Sect. 9", "the cheapest of all methods", (PARTLY, "of its table; entropy and max logit need no n")),
        Entry("Sect. 9", "fewer passes hurt considerably", _facts(OWN, _passes)),
        Entry("Sect. 9", "few pooled weights suffice", _choice("pooled", _not_behind, "behind")),
        Entry("Sect. 9", "few modes suffice", _choice("10 modes", _not_ahead, "ten ahead")),
        Entry("Sect. 8", "factor 80 is best in all cases", _choice("factor 160", _not_ahead, "160 ahead")),
        Entry("Sect. 1", "one pass, training unchanged", (HOLDS, "by construction, and tested")),
        Entry("Sect. 10", "scales better to large networks", (PARTLY, "in time yes; nothing follows for quality")),
        Entry("App. F.2", "dropout rates .1 and .2 are best", ("not checked", "needs a sweep on a GPU")),
    ),
    "behaviour": (
        Entry("Fig. 2", "the field's peaks are the wave's", (FAILS, "they lie well inside at the printed width")),
        Entry("Fig. 2", "the field is positive beyond the data", (HOLDS, "as any Gaussian kernel's")),
        Entry("Fig. 2", "QIPF mirrors the field", (PARTLY, "large where it is small; minima elsewhere")),
        Entry("Fig. 2", "QIPF grows fast in the tails", (HOLDS, "like y²")),
        Entry("Fig. 2", "modes sit in the tails", (HOLDS, "for orders that have a zero there")),
        Entry("Fig. 2", "their place depends on the width", (HOLDS, "phi scales with it")),
        Entry("Sect. 5", "the series decays with the order", _facts(OWN, _decay)),
        Entry("Fig. 3 a", "QIPF grows outside the data", _figure("Fig. 3 a: QIPF, program, grows")),
        Entry("Fig. 3 a", "QIPF grows in the outer regions",
              _facts(SMALL, _band("QIPF, authors' program", OUTER, 1.0))),
        Entry("Fig. 3 a", "higher orders are more sensitive", _facts(SMALL, _sensitive)),
        Entry("Fig. 3 a", "tells seen from unseen best", _figure("Fig. 3 a: QIPF, program, tells")),
        Entry("Fig. 3 a", "follows the error where data was seen",
              _facts(SMALL, _band("QIPF, authors' program", RANK, 0.0))),
        Entry("Fig. 3 a", "QIPF shows the gap", _figure("Fig. 3 a-d: QIPF, program shows")),
        Entry("Fig. 3 b", "SGD iterates show the gap", _figure("Fig. 3 a-d: SGD")),
        Entry("Fig. 3 b", "SGD iterates do not grow outside",
              _facts(SMALL, _band("SGD iterates", OUTER, 1.0, larger=False))),
        Entry("Fig. 3 b", "SGD iterates miss errors where seen",
              _facts(SMALL, _band("SGD iterates", RANK, 0.0, larger=False))),
        Entry("Fig. 3 c", "SWAG misses the gap", _figure("Fig. 3 a-d: SWAG")),
        Entry("Fig. 3 c", "SWAG grows outside", _facts(SMALL, _band("SWAG", OUTER, 1.0))),
        Entry("Fig. 3 d", "MC dropout misses the gap", _figure("Fig. 3 a-d: MC")),
        Entry("Fig. 3 d", "MC dropout grows outside", _facts(SMALL, _band("MC dropout", OUTER, 1.0))),
        Entry("Fig. 3 e", "MC dropout sees the boundary", lambda r: _boundary("MC dropout (std)")),
        Entry("Fig. 3 e", "MC dropout is surer far away", _figure("Fig. 3 e")),
        Entry("Fig. 3 f, g", "SGD iterates, SWAG less sure far away", _figure("Fig. 3 f, g: SGD iterates grows")),
        Entry("Fig. 3 f, g", "SGD iterates, SWAG miss the boundary", _figure("Fig. 3 f, g: SWAG misses")),
        Entry("Fig. 3 h", "QIPF is sure only near the data", _figure("Fig. 3 h: QIPF, factor 100, is sure")),
        Entry("Fig. 3 h", "QIPF is unsure at the boundary", _figure("Fig. 3 h: QIPF, factor 100, is unsure")),
        Entry("App. C", "more L2: QIPF falls outside", _figure("Appendix C: more L2, QIPF falls")),
        Entry("App. C", "more L2: QIPF rises inside", _figure("Appendix C: more L2, QIPF rises")),
        Entry("App. C", "QIPF shows the true posterior", (NONE, "no posterior is given to compare with")),
        Entry("App. E", "examples of corrupted images", (NONE, "no grid is given")),
    ),
    "theory": (
        Entry("Sect. 1", "psi(y) approximates p(y given x)", _facts(OWN, _shuffled)),
        Entry("Sect. 1", "m orthogonal functions", _facts(SMALL, _orthogonal)),
        Entry("Sect. 1", "modes say more than the potential", _choice("modes less V_0", _ahead, "ahead of V_0")),
        Entry("Sect. 5", "the moments add up to the whole", (NONE, "a definition; V_0 is not the sum of V_k")),
        Entry("Sect. 5", "a large change: badly regularised", (NONE, "an interpretation")),
        Entry("Def. 1", "the field estimates the density", (PARTLY, "at small widths; 80 × Silverman is not small")),
        Entry("Def. 4", "E_k makes every moment positive", (HOLDS, "with the neighbourhood minimum, tested")),
        Entry("Sect. 3", "estimates Rényi's quadratic entropy", (HOLDS, "with a normalised kernel, tested")),
        Entry("Sect. 3", "cross-potential measures overlap", (HOLDS, "tested")),
        Entry("Sect. 3", "resembles Fisher's information", (HOLDS, "up to the divergence of the score")),
        Entry("Sect. 3", "no other method does this", (NONE, "a matter of literature: score functions, Hessians")),
        Entry("App. A", "lower bound of the potential", (PARTLY, "holds with its second factor corrected")),
        Entry("App. B", "mean embeddings converge, injective", (HOLDS, "textbook")),
        Entry("Sect. 1", "any kernel, any learning algorithm", (NONE, "not tested in the paper")),
        Entry("Sect. 7", "follows Ovadia et al.", (FAILS, "they score by probabilities, not by std")),
        Entry("Sect. 8", "corruptions of Hendrycks, Dietterich", (PARTLY, "only brightness is one of theirs")),
        Entry("Sect. 8", "accuracies of the four networks", lambda r: _accuracies(r)),
        Entry("Sect. 10", "tells kinds of uncertainty apart", (NONE, "future work in the paper")),
    ),
}  # fmt: skip


def _second(results: Results) -> Found:
    gaps = {other: results.difference("roc_auc", "ensemble", other) for other in RIVALS if other != "ensemble"}
    words = {gap.verdict for gap in gaps.values() if gap is not None}
    if not words:
        return WORDS["not measured"], ""
    last = gaps["mc-dropout-ll"]
    text = "" if last is None else f"MC dropout LL is ahead by {-last.value:+.3f}" if last.value < 0 else "ahead of all"
    return (HOLDS if words == {"yes"} else FAILS if "no" in words else OPEN), text


def _boundary(name: str) -> Found:
    spread = illustrations.caption_table("moons")[name]["boundary / seen"]
    return (HOLDS if spread.low > 1 else OPEN), f"boundary / seen {spread}"
