"""The paper's descriptions of its illustrations, judged by the tables in the gallery's captions (docs/images/*.md)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from evidence.claims import MARKS
from evidence.results import ROOT, Results, markdown
from qipf.study.tables.paired import Verdict, verdict

IMAGES = ROOT / "docs" / "images"
DIFFERS = "Where this differs from the paper's description:"
SHORTER = {"QIPF, paper's factor": "QIPF, factor 100", "QIPF, authors' program": "QIPF, program"}
NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?"


class Spread(NamedTuple):
    """A median and its range over seeds; the range is the median where the caption has none."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g}" + (f" [{self.low:.3g}, {self.high:.3g}]" if self.low != self.high else "")


def judged(results: Results) -> str:
    """Claim by claim, with the numbers that decide it. A range over seeds must lie on one side as a whole."""
    return markdown(["the paper says", "here", ""], [list(row) for row in rows()])


def differences(results: Results) -> str:
    """What the captions say about where a figure differs from the paper's description."""
    parts = []
    for name in ("sine", "regression", "moons", "regularisation", "corruptions"):
        text = (IMAGES / f"{name}.md").read_text()
        heading = re.search(r"\*\*(.+?)\*\*", text, re.DOTALL)
        parts.append(f"**{' '.join(heading[1].split()) if heading else name}**\n\n{text.partition(DIFFERS)[2].strip()}")
    return "\n\n".join(parts)


def rows() -> Iterator[tuple[str, str, str]]:
    """Every claim about an illustration: the claim, the numbers, and the mark of its verdict."""
    curve, moons, strengths = (caption_table(name) for name in ("regression", "moons", "regularisation"))
    others = {name: row["AUC"].value for name, row in curve.items() if not name.startswith("QIPF")}
    best = max(others, key=lambda name: others[name])
    for name in ("QIPF, paper's factor", "QIPF, authors' program"):
        qipf = curve[name]
        yield _row(
            f"Fig. 3 a: {name}, grows outside the regions with data",
            f"unseen / seen {qipf['unseen / seen']}", _above_one(qipf["unseen / seen"]),
        )  # fmt: skip
        yield _row(
            f"Fig. 3 a: {name}, tells seen from unseen best",
            f"AUC {qipf['AUC']}, {best} {others[best]:.3g}",
            verdict(qipf["AUC"].low - others[best], qipf["AUC"].high - others[best]),
        )  # fmt: skip
    for name, row in curve.items():
        if name != "QIPF, cross-validated":
            holds = _above_one(row["gap / seen"])
            fails = name in ("SWAG", "MC dropout")
            yield _row(
                f"Fig. 3 a-d: {name} {'misses' if fails else 'shows'} the gap in the middle",
                f"gap / seen {row['gap / seen']}", _opposite(holds) if fails else holds,
            )  # fmt: skip
    for factor in ("QIPF, paper's factor", "QIPF, cross-validated"):
        row = moons[factor]
        yield _row(
            f"Fig. 3 h: {factor}, is sure only near the data",
            f"unseen / seen {row['unseen / seen']}", _above_one(row["unseen / seen"]),
        )  # fmt: skip
        yield _row(
            f"Fig. 3 h: {factor}, is unsure at the decision boundary",
            f"boundary / seen {row['boundary / seen']}", _above_one(row["boundary / seen"]),
        )  # fmt: skip
    dropout = moons["MC dropout (std)"]
    yield _row(
        "Fig. 3 e: MC dropout grows surer away from the data",
        f"AUC {dropout['AUC']}", verdict(0.5 - dropout["AUC"].high, 0.5 - dropout["AUC"].low),
    )  # fmt: skip
    for name in ("SGD iterates (std)", "SWAG (std)"):
        row = moons[name]
        yield _row(
            f"Fig. 3 f, g: {name.removesuffix(' (std)')} grows less sure away from the data",
            f"unseen / seen {row['unseen / seen']}", _above_one(row["unseen / seen"]),
        )  # fmt: skip
        yield _row(
            f"Fig. 3 f, g: {name.removesuffix(' (std)')} misses the decision boundary",
            f"boundary / seen {row['boundary / seen']}", _opposite(_above_one(row["boundary / seen"])),
        )  # fmt: skip
    for place, falls in (("unseen", True), ("seen", False)):
        medians = [row[place].value for row in strengths.values()]
        steps = [b < a if falls else b > a for a, b in itertools.pairwise(medians)]
        yield _row(
            f"Appendix C: more L2, QIPF {'falls outside' if falls else 'rises inside'}",
            ", ".join(f"{value:.3g}" for value in medians), "yes" if all(steps) else "no",
        )  # fmt: skip


def _row(claim: str, here: str, holds: Verdict) -> tuple[str, str, str]:
    for long, few in SHORTER.items():
        claim = claim.replace(long, few)
    return claim, here, MARKS[holds]


def _above_one(spread: Spread) -> Verdict:
    return verdict(spread.low - 1, spread.high - 1)


def _opposite(holds: Verdict) -> Verdict:
    opposites: dict[Verdict, Verdict] = {"yes": "no", "no": "yes"}
    return opposites.get(holds, holds)


def caption_table(name: str) -> dict[str, dict[str, Spread]]:
    """The table of a caption, by row and column."""
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
