"""Compare two runs of the same plans number by number, to the decimals that are published.

git show 66c6115:results/headline/table.parquet > old.parquet
python benchmarks/compare_runs.py old.parquet results/paper

Scores of one forward pass should be the same in both runs. Methods with several passes ran in single precision in the
old run and in half precision in the new one; the comparison says by how much that moves ROC-AUC under shift, for the
networks whose ensembles have the same members in both. Some published networks were trained again with the published
settings: again.csv.gz, next to the tables, has numbers about some of their scores, networks-again.csv their accuracy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

from pack_results import DECIMALS

KEYS = ["dataset", "net", "seed", "shift", "severity", "method", "score", "errors", "metric"]
PLANS = ("mnist", "kmnist", "cifar10-vgg3")  # ResNet-18 has other settings in the old run
MANY_PASSES = ("ensemble", "mc-dropout-ll")
SAME_MEMBERS = 0  # the seed whose ensemble is the first ten networks in both runs


def main(old: str, results: str) -> None:
    """Write how many numbers differ, and how far."""
    published = {path.parent.name: pd.read_parquet(path) for path in Path(results).glob("*/table.parquet")}
    both = _joined(pd.read_parquet(old), pd.concat([published[plan] for plan in PLANS]), KEYS)
    again = [
        _joined(pd.read_csv(Path(results) / plan / "again.csv.gz"), table, [*KEYS, "subset"])
        for plan, table in published.items()
        if (Path(results) / plan / "again.csv.gz").is_file()
    ]
    found = {
        "one pass": _differing(both[~both["method"].isin(MANY_PASSES)]),
        "trained again": _differing(pd.concat(again) if again else both[:0]),
        "accuracies": _accuracies(Path(results)),
    }
    areas = both[(both["metric"] == "roc_auc") & (both["severity"] > 0) & (both["errors"] == "base")]
    areas = areas[(areas["method"] != "ensemble") | (areas["seed"] == SAME_MEMBERS)]
    for method in MANY_PASSES:
        gaps = areas[areas["method"] == method]["gap"]
        found[method] = {"numbers": len(gaps), "mean": float(gaps.mean()), "largest": float(gaps.max())}
    (Path(results) / "repeated.json").write_text(json.dumps(found, indent=1) + "\n")


def _accuracies(results: Path) -> dict[str, int]:
    """How many networks were trained again, and how many of them have a different accuracy."""
    numbers = different = 0
    for path in sorted(results.glob("*/networks-again.csv")):
        both = pd.read_csv(path).merge(pd.read_csv(path.parent / "networks.csv"), on=["dataset", "net", "seed"])
        numbers += len(both)
        different += int((both["accuracy_x"] - both["accuracy_y"]).abs().gt(1e-9).sum())
    return {"numbers": numbers, "different": different}


def _joined(old: pd.DataFrame, new: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The numbers that both runs have, and the distances between them."""
    both = old.merge(new, on=keys, suffixes=("_old", "_new"))
    before = both["value_old"].round(DECIMALS)
    both["gap"] = (before - both["value_new"]).abs().where(before.notna() | both["value_new"].notna(), 0.0)
    return both


def _differing(both: pd.DataFrame) -> dict[str, int]:
    if both.empty:
        raise SystemExit("nothing to compare: the tables have no number in common")
    different = ~(both["gap"] < 0.1 * 10**-DECIMALS)  # also true where only one of the two is a number
    return {"numbers": len(both), "different": int(different.sum())}


if __name__ == "__main__":
    main(*sys.argv[1:])
