"""How a claim of the paper is judged from facts that were recorded once, and not from the study's tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evidence import authors
from evidence.judging import FAILS, HOLDS, OPEN, PARTLY, WORDS, Found
from evidence.results import Results
from probe.tables import study
from qipf.study.tables.paired import verdict

SMALL, OWN = "paper/small-claims.json", "authors"
PROBE_NAMES = ("QIPF, exact operator", "QIPF, authors' program")
"""The two forms of QIPF in the probe's study."""


def recorded(path: str, holds: Callable[[dict[str, object]], Found]) -> Callable[[Results], Found]:
    """A judge of recorded facts, from a file of the results or from the record of the authors' networks (`OWN`)."""

    def found(results: Results) -> Found:
        facts = authors.facts_of(results) if path == OWN else results.json(path)
        return (WORDS["not measured"], "") if facts is None else holds(facts)

    return found


def passes(facts: dict[str, object]) -> Found:
    """Whether fewer passes and fewer members cost much."""
    values = [facts[d]["passes"] for d in authors.DATASETS]  # pyright: ignore[reportIndexIssue]
    dropout = [v["mc-dropout, 30, std"] - v["mc-dropout, 5, std"] for v in values]
    members = [v["ensemble, 10, std"] - v["ensemble, 3, std"] for v in values]
    word = HOLDS if min(*dropout, *members) > 0.005 else FAILS if max(*dropout, *members) < 0.005 else PARTLY
    costs = [f"{np.mean(part):.3f}" for part in (dropout, members)]
    return word, f"30 to 5 passes costs {costs[0]}, 10 to 3 members {costs[1]} (ROC-AUC)"


def decay(facts: dict[str, object]) -> Found:
    """Whether the medians of the modes fall with the order."""
    modes = [facts[d]["modes"][key] for d in authors.DATASETS for key in ("qipf-published", "qipf-80", "qipf-160")]  # pyright: ignore[reportIndexIssue]
    falling = sum(bool(np.all(np.diff(values) < 0)) for values in modes)
    return (HOLDS if falling == len(modes) else FAILS if not falling else PARTLY), (
        f"medians fall with the order in {falling} of {len(modes)} settings"
    )


def sensitive(facts: dict[str, object]) -> Found:
    """Whether higher orders differ more between seen and unseen places."""
    rising, total = 0, 0
    for places in facts["modes"].values():  # pyright: ignore[reportAttributeAccessIssue]
        ratios = np.array(places["unseen"]) / np.array(places["seen"])
        rising, total = rising + int(np.all(np.diff(ratios, axis=1) > 0, axis=1).sum()), total + len(ratios)
    return (HOLDS if rising == total else FAILS if not rising else PARTLY), f"so in {rising} of {total} runs"


def band(name: str, key: str, above: float, *, larger: bool = True) -> Callable[[dict[str, object]], Found]:
    """Whether a recorded value lies on one side of a number in every run."""

    def found(facts: dict[str, object]) -> Found:
        values = facts["bands"][name][key]  # pyright: ignore[reportIndexIssue]
        on_side = sum((value > above) == larger for value in values)
        text = f"{np.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"
        return (HOLDS if on_side == len(values) else FAILS if not on_side else OPEN), text

    return found


def orthogonal(facts: dict[str, object]) -> Found:
    """Whether the modes are orthogonal."""
    cosines = list(facts["orthogonal"].values())  # pyright: ignore[reportAttributeAccessIssue]
    return (FAILS if max(cosines) > 0.1 else HOLDS), f"cosines from {min(cosines):.2f} to {max(cosines):.2f}, not 0"


def cost(facts: dict[str, object]) -> Found:
    """Whether time grows linearly in the numbers of outputs and weights."""
    n, m = (facts["cost"][key] for key in ("slope in n", "slope in m"))  # pyright: ignore[reportIndexIssue]
    return HOLDS if max(n, m) < 1.3 else PARTLY, f"exponents {n:.2f} in n, {m:.2f} in m; their script sums O(m²)"


def overlap(facts: dict[str, object]) -> Found:
    """Whether QIPF's histograms of right and wrong predictions overlap least."""
    found = facts["mnist"]["overlap"]  # pyright: ignore[reportIndexIssue]
    values = {key: found[key]["overlap"] for key in authors.HISTOGRAMS if key != "max-logit"}
    own = values.pop("qipf-published")
    least = min(values.values())
    return (HOLDS if own < least else FAILS), f"overlap {own:.2f}; the others {least:.2f} or more"


def shuffled(facts: dict[str, object]) -> Found:
    """Whether the field depends on where a weight stands in the network."""
    same = facts["mnist"]["shuffled weights"]["largest difference"]  # pyright: ignore[reportIndexIssue]
    return FAILS, f"shuffled weights: same score (± {same:.1g})"


def in_probe_study(rival: str) -> Callable[[Results], Found]:
    """Whether both forms of QIPF are ahead of a rival in the probe's study, whose intervals resample images as well."""

    def found(results: Results) -> Found:
        if not (results.folder / "probe" / "mnist.json").is_file():
            return WORDS["not measured"], ""
        told = study(results.folder)
        gaps = [told.difference(ours, rival, "shift", "roc_auc") for ours in PROBE_NAMES]
        words = {WORDS[verdict(gap.low, gap.high)] for gap in gaps}
        text = ", ".join(f"{gap.value:+.3f} {name}" for gap, name in zip(gaps, ("exact", "program"), strict=True))
        return (words.pop() if len(words) == 1 else OPEN), f"{text}, other networks"

    return found
