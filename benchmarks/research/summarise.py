"""The grid's files to two small tables: python summarise.py FOLDER TARGET.

`grid.csv` has one row a score and pair: the mean over the development shifts, and the standard error over networks.
`shifts.csv` has the rows that the page shows, shift by shift.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path

SHIFTS = ("rotation", "shear", "brightness")
SHOWN = (
    "entropy", "softmax-response", "max-logit", "energy", "mahalanobis", "ensemble-5", "ensemble-10",
    "features/clean/unit/knn50", "features/clean/unit/contrast/0.4", "features/clean/unit/posterior/0.3",
    "features/clean+all/centred-unit/contrast/0.2", "features/clean+all/centred-unit/sum1.0/0.2",
    "features/clean+all/whitened-unit/sum4.0/0.25",
)  # fmt: skip


def main(folder: str, target: str) -> None:
    """Read every csv of the grid in `folder` and write both tables to `target`."""
    cells: dict[tuple[str, str], dict[str, dict[str, tuple[float, float]]]] = defaultdict(lambda: defaultdict(dict))
    for path in sorted(Path(folder).glob("*.csv")):
        with path.open() as file:
            for row in csv.DictReader(file):
                pair, seed = row["network"].rsplit("-", 1)
                found = float(row["roc_auc"]), float(row["average_precision"])
                cells[row["score"], pair][seed][row["group"]] = found
    grid, shown = [], []
    for (score, pair), seeds in sorted(cells.items()):
        means = [[statistics.fmean(groups[s][k] for s in SHIFTS) for k in (0, 1)] for groups in seeds.values()]
        (auc, auc_error), (ap, ap_error) = (spread(column) for column in zip(*means, strict=True))
        grid.append([score, pair, len(seeds), auc, auc_error, ap, ap_error])
        if score in SHOWN:
            for group in (*SHIFTS, "clean"):
                values = [spread([groups[group][k] for groups in seeds.values()]) for k in (0, 1)]
                shown.append([score, pair, group, *values[0], *values[1]])
    head = ["roc_auc", "roc_auc_standard_error", "average_precision", "average_precision_standard_error"]
    write(Path(target) / "grid.csv", [["score", "pair", "networks", *head], *grid])
    write(Path(target) / "shifts.csv", [["score", "pair", "shift", *head], *shown])


def spread(values: list[float]) -> tuple[float, float]:
    """The mean and its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return round(statistics.fmean(values), 4), round(error, 4)


def write(path: Path, rows: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
