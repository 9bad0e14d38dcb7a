"""Facts about a run, and verdicts on the paper's claims."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from qipf.study.plan.registry import info, split_column
from qipf.study.report.score_view import Column, pair_id
from qipf.study.report.source import ReportSource
from qipf.study.tables.claims import RIVALS, Claim, claims


def facts(source: ReportSource, columns: list[Column], pairs: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return a description of the run as names and values."""
    shifts = list(dict.fromkeys(r.shift for r in source.rows if r.shift != "clean" and not r.shift.startswith("ood:")))
    seeds = {(pair_id(row), row.seed) for row in source.rows}
    base = [row for row in source.rows if row.errors == "base"]
    clean = {(pair_id(r), r.seed): r for r in sorted(base, key=lambda row: row.n) if r.shift == "clean"}
    sizes = sorted({row.n for row in base})
    compared = sorted({row.n for row in base if row.subset == "common"})
    common = f", methods compared on {compared[-1]:,} of them" if compared else ""
    result = [
        ("Models", ", ".join(pairs.values())),
        ("Networks", f"{len(seeds)}, {'with different seeds' if len(seeds) > len(pairs) else 'one per model'}"),
        ("Methods", f"{len({column.method for column in columns})} with {len(columns)} scores"),
        ("Shifts", ", ".join(shifts) or "none"),
        ("Predictions", f"{sizes[-1]:,} for each condition{common}" if sizes else "none"),
    ]
    if clean:
        accuracies = [row.accuracy for row in clean.values()]
        shown = list(dict.fromkeys(f"{100 * value:.1f}" for value in (min(accuracies), max(accuracies))))
        result.append(("Accuracy on clean inputs", f"{' to '.join(shown)}%"))
    started = str(source.environment.get("started", ""))
    if started:
        result.append(("Run", started.replace("T", " ").replace("+00:00", " UTC")))
    device = source.environment.get("gpu") or source.environment.get("processor")
    if device:
        result.append(("Machine", str(device)))
    return result


SCOPES = {"most": "Overall", "headline": "On average over all cases", "speed": "Speed", "case": "Case by case"}


@dataclass(frozen=True)
class Verdicts:
    """Claims about QIPF, with our verdicts.

    Attributes:
        counts: Numbers of the paper's claims, except those about single cases, keyed by `agreement`.
        front: Claims shown first.
        rest: Other claims, keyed by scope title.
    """

    counts: Mapping[str, int]
    front: list[Claim]
    rest: dict[str, list[Claim]]


def verdicts(source: ReportSource) -> Verdicts:
    """Judge the claims for which there are numbers, except most claims about single cases.

    The result is empty if none of the paper's claims can be judged.
    """
    found = [claim for claim in claims(source.frame, source.times) if claim.here != "not measured"]
    own = [claim for claim in found if claim.paper in ("yes", "no")]
    if not own:
        return Verdicts({}, [], {})
    front = [c for c in own if c.scope in ("most", "headline") and c.metric == "roc_auc"]
    front += [c for c in found if c.scope == "headline" and c.metric == "roc_auc" and c not in own and _simple(c)]
    front += [c for c in own if c.scope == "speed"]
    counts = Counter(agreement(claim) for claim in own if claim.scope != "case")
    rest: dict[str, list[Claim]] = defaultdict(list)
    for claim in found:
        # thousands of claims are about single cases: keep those on ROC-AUC against the paper's rivals and simple scores
        worth = claim.scope != "case" or (claim.metric == "roc_auc" and (claim.other in RIVALS or _simple(claim)))
        if worth and claim not in front:
            rest[SCOPES[claim.scope]].append(claim)
    return Verdicts(counts, front or own, {title: rest[title] for title in SCOPES.values() if title in rest})


def agreement(claim: Claim) -> str:
    """Return "holds" or "does not hold", "open" if undecided here, or "new" if the paper does not decide it."""
    if claim.here == "undecided":
        return "open"
    if claim.paper not in ("yes", "no"):
        return "new"
    return "holds" if claim.here == claim.paper else "does not hold"


def _simple(claim: Claim) -> bool:
    """Return True if QIPF is compared with a simple score of the outputs, such as the entropy."""
    return bool(claim.other) and info(split_column(claim.other)[0]).family == "confidence"
