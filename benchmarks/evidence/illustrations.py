"""Verdicts on the paper's descriptions of its illustrations, from the tables in docs/images/*.md."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from evidence.claims import MARKS
from evidence.marks import table
from evidence.results import ROOT, Results, markdown
from qipf.study import verdict
from qipf.study.tables.paired import Verdict

PARTLY = "partly"
IMAGES = ROOT / "docs" / "images"
SHORTER = {"QIPF, paper's factor": "QIPF, factor 100", "QIPF, authors' program": "QIPF, program"}
NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?"


class Spread(NamedTuple):
    """A median with its range over seeds, if given."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g}" + (f" [{self.low:.3g}, {self.high:.3g}]" if self.low != self.high else "")


@table("illustrations")
def judged(results: Results) -> str:
    """Return the claims with their numbers."""
    return markdown(["the paper says", "here", ""], [list(row) for row in rows()])


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield every claim with its numbers and mark."""
    curve, moons, strengths = (caption_table(name) for name in ("regression", "moons", "regularisation"))
    others = {name: row["AUC"].value for name, row in curve.items() if not name.startswith("QIPF")}
    best = max(others, key=lambda name: others[name])
    for name in ("QIPF, paper's factor", "QIPF, authors' program"):
        yield _above_one(f"Fig. 3 a: {name}, grows outside the regions with data", curve[name], "unseen / seen")
        area = curve[name]["AUC"]
        holds = verdict(area.low - others[best], area.high - others[best])
        yield _row(f"Fig. 3 a: {name}, tells seen from unseen best", f"AUC {area}, {best} {others[best]:.3g}", holds)
    for name, row in curve.items():
        if name != "QIPF, cross-validated":
            fails = name in ("SWAG", "MC dropout")
            claim = f"Fig. 3 a-d: {name} {'misses' if fails else 'shows'} the gap in the middle"
            yield _above_one(claim, row, "gap / seen", opposite=fails)
    for name in ("QIPF, paper's factor", "QIPF, cross-validated"):
        yield _above_one(f"Fig. 3 h: {name}, is certain only near the data", moons[name], "unseen / seen")
        yield _above_one(f"Fig. 3 h: {name}, is uncertain at the decision boundary", moons[name], "boundary / seen")
    area = moons["MC dropout (std)"]["AUC"]
    holds = verdict(0.5 - area.high, 0.5 - area.low)
    yield _row("Fig. 3 e: MC dropout grows more certain away from the data", f"AUC {area}", holds)
    for name in ("SGD iterates", "SWAG"):
        row = moons[f"{name} (std)"]
        yield _above_one(f"Fig. 3 f, g: {name} grows less certain away from the data", row, "unseen / seen")
        yield _above_one(f"Fig. 3 f, g: {name} misses the decision boundary", row, "boundary / seen", opposite=True)
    for place, claim, sign in (("unseen", "falls outside", -1), ("seen", "rises inside", 1)):
        medians = [row[place].value for row in strengths.values()]
        steps = [sign * (b - a) > 0 for a, b in itertools.pairwise(medians)]
        text = ", ".join(f"{value:.3g}" for value in medians)
        mark = MARKS["yes"] if all(steps) else PARTLY if any(steps) else MARKS["no"]
        yield f"Appendix C: more L2, QIPF {claim}", text, mark


def _row(claim: str, here: str, holds: Verdict) -> tuple[str, str, str]:
    for long, few in SHORTER.items():
        claim = claim.replace(long, few)
    return claim, here, MARKS[holds]


def _above_one(claim: str, row: dict[str, Spread], key: str, *, opposite: bool = False) -> tuple[str, str, str]:
    """Judge the claim that a ratio is above 1 or, with `opposite`, below 1."""
    low, high = row[key].low - 1, row[key].high - 1
    return _row(claim, f"{key} {row[key]}", verdict(-high, -low) if opposite else verdict(low, high))


def caption_table(name: str) -> dict[str, dict[str, Spread]]:
    """Return the table of a caption."""
    lines = [
        [cell.strip() for cell in line.strip("| \n").split("|")]
        for line in (IMAGES / f"{name}.md").read_text().splitlines()
        if line.startswith("|")
    ]
    heads, rows = lines[0][1:], lines[2:]
    return {row[0]: dict(zip(heads, map(_spread, row[1:]), strict=True)) for row in rows}


def _spread(cell: str) -> Spread:
    value, *ends = (float(text) for text in re.findall(NUMBER, cell))
    low, high = ends or (value, value)
    return Spread(value, low, high)
