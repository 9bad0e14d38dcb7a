"""Every claim of the paper in one table: a verdict, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from evidence import cells
from evidence.claims import paper_share
from evidence.judging import (
    FAILS,
    HOLDS,
    NONE,
    PARTLY,
    UNKNOWN,
    Found,
    accuracies,
    ahead,
    beats,
    boundary,
    choice,
    curve,
    faster,
    figure,
    most,
    not_ahead,
    not_behind,
    one_pass,
    second,
)
from evidence.recorded import (
    OWN,
    SMALL,
    band,
    cost,
    decay,
    in_probe_study,
    orthogonal,
    overlap,
    passes,
    recorded,
    sensitive,
    shuffled,
)
from evidence.results import Results, markdown
from evidence.rivals import best_rates


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


OUTER, RANK = "outside / seen", "rank correlation with the error, seen"
ENTRIES: dict[str, tuple[Entry, ...]] = {
    "detection": (
        Entry("Table 1", "QIPF best in most cases, ROC-AUC", most("roc_auc")),
        Entry("Table 1", "QIPF best in most cases, PR-AUC", most("pr_auc")),
        Entry("Table 1", "better than MC dropout", beats("mc-dropout")),
        Entry("Table 1", "better than MC dropout LL", beats("mc-dropout-ll")),
        Entry("Table 1", "better than SVI, by std", beats("svi")),
        Entry("Table 1", "better than SVI, by entropy", beats("svi (entropy)")),
        Entry("Table 1", "better than SVI, as they score it", beats("svi (max_logit_one_pass)")),
        Entry("Table 1", "the same, and as they train it", beats("svi-authors (max_logit_one_pass)")),
        Entry("Table 1", "better than SVI, by contrast", beats("svi (contrast)")),
        Entry("Table 1", "better than SVI-LL, by std", beats("svi-ll")),
        Entry("Table 1", "better than SVI-LL, by entropy", beats("svi-ll (entropy)")),
        Entry("Table 1", "better than SVI-LL, as they score it", beats("svi-ll (max_logit_one_pass)")),
        Entry("Table 1", "the same, and as they train it",
              beats("svi-ll-authors (max_logit_one_pass)")),
        Entry("Table 1", "the same, on their own networks", one_pass),
        Entry("Table 1", "better than SVI-LL, by contrast", beats("svi-ll (contrast)")),
        Entry("Table 1", "better than the ensemble, by std", beats("ensemble")),
        Entry("Table 1", "better than the ensemble, by contrast", in_probe_study("ensemble of 10, contrast")),
        Entry("Table 1", "the ensemble is second best", second),
        Entry("Table 1", "each cell as printed", lambda r: (PARTLY, f"{cells.agreement(r)} lie within our spread")),
        Entry("abstract", "sharper than std of Bayesian methods", beats("mc-dropout")),
        Entry("Fig. 4 a", "least overlap of histograms at 270°", recorded(OWN, overlap)),
        Entry("Fig. 4 d", "best ROC-AUC at every angle, MNIST", curve(("mnist", "lenet"), "rotation", "roc_auc")),
        Entry("Fig. 4 e", "best PR-AUC at every angle, MNIST", curve(("mnist", "lenet"), "rotation", "pr_auc")),
        Entry("Fig. 4 g", "largest point-biserial at every angle",
              curve(("mnist", "lenet"), "rotation", "point_biserial")),
        Entry("App. G.1", "best ROC-AUC, K-MNIST rotation", curve(("kmnist", "lenet"), "rotation", "roc_auc")),
        Entry("App. G.1", "best ROC-AUC, K-MNIST shear", curve(("kmnist", "lenet"), "shear", "roc_auc")),
        Entry("App. G.1", "best ROC-AUC, K-MNIST zoom", curve(("kmnist", "lenet"), "zoom", "roc_auc")),
        Entry("App. G.1", "histograms, K-MNIST, one cell per shift", (NONE, "“10 %” and “90 %” name no intensity")),
        Entry("App. G.2", "best ROC-AUC, ResNet-18 rotation", curve(("cifar10", "resnet18"), "rotation", "roc_auc")),
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
        Entry("App. H", "point-biserial: best in most cases", most("point_biserial")),
        Entry("App. H", "Spearman: best in most cases", most("spearman")),
        Entry("Sect. 2", "confidence is the largest probability", (FAILS, "Algorithm 1 takes the largest logit")),
    ),
    "cost": (
        Entry("Table 3", "much faster than MC dropout", lambda r: faster(r, "mc-dropout")),
        Entry("Table 3", "much faster than MC dropout LL", lambda r: faster(r, "mc-dropout-ll")),
        Entry("Table 3", "0.64, 0.88, 1.86 ms per image", (NONE, "the hardware is not named")),
        Entry("Sect. 9", "O(n + m) per prediction", recorded(SMALL, cost)),
        Entry("Sect. 9", "the cheapest of all methods", (PARTLY, "of its table; entropy and max logit need no n")),
        Entry("Sect. 9", "fewer passes hurt considerably", recorded(OWN, passes)),
        Entry("Sect. 9", "few pooled weights suffice", choice("pooled", not_behind, "behind")),
        Entry("Sect. 9", "few modes suffice", choice("10 modes", not_ahead, "ten ahead")),
        Entry("Sect. 8", "factor 80 is best in all cases", choice("factor 160", not_ahead, "160 ahead")),
        Entry("Sect. 1", "one pass, training unchanged", (HOLDS, "by construction, and tested")),
        Entry("Sect. 10", "scales better to large networks", (PARTLY, "in time yes; nothing follows for quality")),
        Entry("App. F.2", "MC dropout: .1 and .2 are best", best_rates("mc-dropout")),
        Entry("App. F.2", "MC dropout LL: .2 is best for all", best_rates("mc-dropout-ll")),
    ),
    "behaviour": (
        Entry("Fig. 2", "the field's peaks are the wave's", (FAILS, "they lie well inside at the printed width")),
        Entry("Fig. 2", "the field is positive beyond the data", (HOLDS, "as any Gaussian kernel's")),
        Entry("Fig. 2", "QIPF mirrors the field", (PARTLY, "large where it is small; minima elsewhere")),
        Entry("Fig. 2", "QIPF grows fast in the tails", (HOLDS, "like y²")),
        Entry("Fig. 2", "modes sit in the tails", (HOLDS, "for orders that have a zero there")),
        Entry("Fig. 2", "their place depends on the width", (HOLDS, "phi scales with it")),
        Entry("Sect. 5", "the series decays with the order", recorded(OWN, decay)),
        Entry("Fig. 3 a", "QIPF grows outside the data", figure("Fig. 3 a: QIPF, program, grows")),
        Entry("Fig. 3 a", "QIPF grows in the outer regions",
              recorded(SMALL, band("QIPF, authors' program", OUTER, 1.0))),
        Entry("Fig. 3 a", "higher orders are more sensitive", recorded(SMALL, sensitive)),
        Entry("Fig. 3 a", "tells seen from unseen best", figure("Fig. 3 a: QIPF, program, tells")),
        Entry("Fig. 3 a", "follows the error where data was seen",
              recorded(SMALL, band("QIPF, authors' program", RANK, 0.0))),
        Entry("Fig. 3 a", "QIPF shows the gap", figure("Fig. 3 a-d: QIPF, program shows")),
        Entry("Fig. 3 b", "SGD iterates show the gap", figure("Fig. 3 a-d: SGD")),
        Entry("Fig. 3 b", "SGD iterates do not grow outside",
              recorded(SMALL, band("SGD iterates", OUTER, 1.0, larger=False))),
        Entry("Fig. 3 b", "SGD iterates miss errors where seen",
              recorded(SMALL, band("SGD iterates", RANK, 0.0, larger=False))),
        Entry("Fig. 3 c", "SWAG misses the gap", figure("Fig. 3 a-d: SWAG")),
        Entry("Fig. 3 c", "SWAG grows outside", recorded(SMALL, band("SWAG", OUTER, 1.0))),
        Entry("Fig. 3 d", "MC dropout misses the gap", figure("Fig. 3 a-d: MC")),
        Entry("Fig. 3 d", "MC dropout grows outside", recorded(SMALL, band("MC dropout", OUTER, 1.0))),
        Entry("Fig. 3 e", "MC dropout sees the boundary", lambda r: boundary("MC dropout (std)")),
        Entry("Fig. 3 e", "MC dropout is surer far away", figure("Fig. 3 e")),
        Entry("Fig. 3 f, g", "SGD iterates, SWAG less sure far away", figure("Fig. 3 f, g: SGD iterates grows")),
        Entry("Fig. 3 f, g", "SGD iterates, SWAG miss the boundary", figure("Fig. 3 f, g: SWAG misses")),
        Entry("Fig. 3 h", "QIPF is sure only near the data", figure("Fig. 3 h: QIPF, factor 100, is sure")),
        Entry("Fig. 3 h", "QIPF is unsure at the boundary", figure("Fig. 3 h: QIPF, factor 100, is unsure")),
        Entry("App. C", "more L2: QIPF falls outside", figure("Appendix C: more L2, QIPF falls")),
        Entry("App. C", "more L2: QIPF rises inside", figure("Appendix C: more L2, QIPF rises")),
        Entry("App. C", "QIPF shows the true posterior", (NONE, "no posterior is given to compare with")),
        Entry("App. E", "examples of corrupted images", (NONE, "no grid is given")),
    ),
    "theory": (
        Entry("Sect. 1", "psi(y) approximates p(y given x)", recorded(OWN, shuffled)),
        Entry("Sect. 1", "m orthogonal functions", recorded(SMALL, orthogonal)),
        Entry("Sect. 1", "modes say more than the potential", choice("modes less V_0", ahead, "ahead of V_0")),
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
        Entry("Sect. 8", "accuracies of the four networks", accuracies),
        Entry("Sect. 10", "tells kinds of uncertainty apart", (NONE, "future work in the paper")),
    ),
}  # fmt: skip
