"""Two runs of the same plans, number by number: python benchmarks/compare_runs.py OLD.parquet NEW.csv.gz ... OUT.json

What one forward pass gives should be the same to the last digit. Methods of many passes ran in single precision in the
old run and in half precision in the new one: by how much that moves ROC-AUC under shift, for the networks whose
ensembles have the same members in both.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

KEYS = ["dataset", "net", "seed", "shift", "severity", "method", "score", "errors", "metric"]
MANY_PASSES = ("ensemble", "mc-dropout-ll")
SAME_MEMBERS = 0  # the seed whose ensemble is the first ten networks in both runs


def main(old: str, *rest: str) -> None:
    """Write how many numbers differ, and how far."""
    *new, out = rest
    after = pd.concat([pd.read_csv(path) for path in new])
    both = pd.read_parquet(old).merge(after, on=KEYS, suffixes=("_old", "_new"))
    both["gap"] = (both["value_old"] - both["value_new"]).abs()
    one_pass = both[~both["method"].isin(MANY_PASSES)]
    found = {"one pass": {"numbers": len(one_pass), "different": int((one_pass["gap"] > 0).sum())}}
    areas = both[(both["metric"] == "roc_auc") & (both["severity"] > 0) & (both["errors"] == "base")]
    areas = areas[(areas["method"] != "ensemble") | (areas["seed"] == SAME_MEMBERS)]
    for method in MANY_PASSES:
        gaps = areas[areas["method"] == method]["gap"]
        found[method] = {"numbers": len(gaps), "mean": float(gaps.mean()), "largest": float(gaps.max())}
    Path(out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
