"""A folder like results/ in which every level is known, and a reader of the tables of the pages."""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas

from evidence.results import PAIRS, SHIFTS, Results
from qipf.study.run.read import Row

LEVELS = {
    ("default", "score"): 0.80,
    ("entropy", "score"): 0.75,
    ("max-logit", "score"): 0.74,
    ("qipf", "score"): 0.72,
    ("qipf-published", "score"): 0.73,
    ("qipf-80", "score"): 0.70,
    ("ensemble", "std"): 0.70,
    ("ensemble", "entropy"): 0.78,
    **{(method, "std"): 0.71 for method in ("mc-dropout", "mc-dropout-ll", "svi", "svi-ll")},
}
TIMES = {"default": (1, 2.5), "ensemble": (10, 20.0), "qipf": (1, 4.0), "mc-dropout": (100, 100.0)}  # forward: 2 ms


def plant(root: Path) -> Results:
    """Two networks per pair, three intensities, levels that differ by pair and seed; ResNet-18 with a common part."""
    for number, (dataset, net) in enumerate(PAIRS):
        folder = root / "paper" / f"{dataset}-{net}"
        folder.mkdir(parents=True)
        about, nan = (dataset, net, 0, "clean", 0.0, 0, "entropy", "score", "base", "accuracy"), float("nan")
        own = Row(*about[:6], "mc-dropout", "entropy", "own", "accuracy", 0.9, nan, nan, 10_000, 0.9, "all")
        more = [own] if number == 0 else []
        table = pandas.DataFrame(
            [*more, *rows_of(number, dataset, net), Row(*about, 0.875, nan, nan, 10_000, 0.875, "all")]
        )
        shifted = table[table["metric"] == "roc_auc"]
        both = [table, shifted.assign(metric="pr_auc", value=shifted["value"] - 0.1)]
        pandas.concat(both).to_parquet(folder / "table.parquet", index=False)
        times = pandas.DataFrame([(m, p, ms, ms / 2) for m, (p, ms) in TIMES.items()])
        times.columns = ["method", "passes", "method_ms", "ratio"]
        times.assign(dataset=dataset, net=net, forward_ms=2.0, device="cpu").to_csv(folder / "times.csv", index=False)
    return Results(root)


def rows_of(number, dataset, net):
    part, nan = net == "resnet18", float("nan")
    for ((method, score), level), seed, shift, severity in itertools.product(LEVELS.items(), (0, 1), SHIFTS, (1, 2, 3)):
        if method == "svi" and part and seed:
            continue
        value = level + 0.01 * number + 0.02 * seed + 0.03 * severity - 0.06
        about = (dataset, net, seed, shift, float(severity), severity, method, score, "base", "roc_auc")
        yield Row(*about, value, nan, nan, 2000, 0.5, "common" if part else "all")
        if part and score == "score":
            yield Row(*about, value - 0.2, nan, nan, 10_000, 0.5, "all")  # must not be compared with the others


def line(table: str, *starts: str) -> list[str]:
    """The cells of the first row that starts with these, without them."""
    found = next(row for row in table.splitlines() if row.startswith("| " + " | ".join(starts)))
    return [cell.strip() for cell in found.strip("|").split("|")][len(starts) :]
