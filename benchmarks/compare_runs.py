"""Two runs of the same plans, number by number, to the decimals that are published.

git show 66c6115:results/headline/table.parquet > old.parquet
python benchmarks/compare_runs.py old.parquet results/paper

What one forward pass gives should be the same in both. Methods of many passes ran in single precision in the
old run and in half precision in the new one: by how much that moves ROC-AUC under shift, for the networks whose
ensembles have the same members in both.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

from pack_results import DECIMALS

KEYS = ["dataset", "net", "seed", "shift", "severity", "method", "score", "errors", "metric"]
PLANS = ("mnist", "kmnist", "cifar10-vgg3")  # ResNet-18 has other settings in the old run
COPIED = ("vgg3", 2)  # a network whose published rows are the old run's
MANY_PASSES = ("ensemble", "mc-dropout-ll")
SAME_MEMBERS = 0  # the seed whose ensemble is the first ten networks in both runs


def main(old: str, results: str) -> None:
    """Write how many numbers differ, and how far."""
    after = pd.concat([pd.read_parquet(Path(results) / plan / "table.parquet") for plan in PLANS])
    after = after[(after["net"] != COPIED[0]) | (after["seed"] != COPIED[1])]
    both = pd.read_parquet(old).merge(after, on=KEYS, suffixes=("_old", "_new"))
    before = both["value_old"].round(DECIMALS)
    both["gap"] = (before - both["value_new"]).abs().where(before.notna() | both["value_new"].notna(), 0.0)
    one_pass = both[~both["method"].isin(MANY_PASSES)]
    different = ~(one_pass["gap"] < 0.1 * 10**-DECIMALS)  # also where only one of two is a number
    found = {"one pass": {"numbers": len(one_pass), "different": int(different.sum())}}
    areas = both[(both["metric"] == "roc_auc") & (both["severity"] > 0) & (both["errors"] == "base")]
    areas = areas[(areas["method"] != "ensemble") | (areas["seed"] == SAME_MEMBERS)]
    for method in MANY_PASSES:
        gaps = areas[areas["method"] == method]["gap"]
        found[method] = {"numbers": len(gaps), "mean": float(gaps.mean()), "largest": float(gaps.max())}
    (Path(results) / "repeated.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
