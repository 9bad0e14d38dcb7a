"""Pack the tables of a benchmark for publication.

python benchmarks/pack_results.py STORE results/paper/NAME
python benchmarks/pack_results.py STORE [STORE ...] results/paper/NAME --into

STORE is the folder that `qipf bench -o` wrote, or a folder with its tables. Numbers are rounded to four decimals, which
is far less than they differ between networks, and rows about the same inputs stand together. Four benchmarks thus take
less than ten megabytes.

With `--into`, each STORE holds some methods of a published plan that were measured again
(`benchmarks/rivals_again.py`), on some of its networks. Give all stores of a plan at once.
Their rows take the place of the published ones; the others stay. The scores that were not changed must repeat the
published numbers exactly, or nothing is written. environment-again.json records the machine and what was replaced.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from qipf.study.report.source import open_source
from rivals_again import CHECKS, SAME

DECIMALS = 4
KEYS = ["dataset", "net", "seed", "shift", "severity", "method", "score", "errors", "metric", "subset"]
UNCHANGED = 1e-3
"""The largest difference in ROC-AUC by which a method's numbers count as the published ones."""


def main(store: str, target: str) -> None:
    """Write table.parquet, times.csv, networks.csv, plan.json and environment.json."""
    source, folder = open_source(store), Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    _write(_table(source.rows), folder)
    for name, lines in (("times", source.times), ("networks", source.networks)):
        if lines:
            pd.DataFrame(lines).to_csv(folder / f"{name}.csv", index=False)
    if source.plan is not None:
        (folder / "plan.json").write_text(json.dumps(source.plan.as_json(), indent=1) + "\n")
    (folder / "environment.json").write_text(json.dumps(source.environment, indent=1) + "\n")


def merge(stores: Sequence[str], target: str, without: Sequence[str] = ()) -> None:
    """Put the methods that were measured again in the place of their published rows, apart from those of `without`.

    What was not measured again of a method (inputs of other datasets, say) stays if nothing in the method was mended or
    if its numbers are the published ones, and goes otherwise.
    """
    sources, folder = [open_source(store) for store in stores], Path(target)
    published = pd.read_parquet(folder / "table.parquet")
    again = pd.concat([_table(source.rows) for source in sources], ignore_index=True)
    again = again[~again["method"].isin(without)]
    both = published.merge(again, on=KEYS, suffixes=("", "_again"))
    both["gap"] = (both["value"] - both["value_again"]).abs()
    missing = both["value"].isna(), both["value_again"].isna()
    both["gap"] = both["gap"].mask(missing[0] & missing[1], 0.0).mask(missing[0] ^ missing[1], math.inf)
    checks = both[both["method"].isin(CHECKS)]
    different = int((checks["gap"] > 10**-DECIMALS / 2).sum())
    if checks.empty or different:
        where = ", ".join(stores)
        sys.exit(f"{where}: {different} of {len(checks)} numbers of {' and '.join(CHECKS)} are not the published ones")
    areas = both[both["metric"] == "roc_auc"].groupby("method")["gap"].max()
    kept = {*SAME, *areas[areas <= UNCHANGED].index}
    measured = pd.MultiIndex.from_frame(published[KEYS]).isin(pd.MultiIndex.from_frame(again[KEYS]))
    gone = published["method"].isin(set(again["method"]) - kept) | measured
    _write(pd.concat([published[~gone], again], ignore_index=True), folder)
    facts = {
        "environment": sources[0].environment,
        "networks": {method: sorted(map(int, rows["seed"].unique())) for method, rows in again.groupby("method")},
        "checked": {"scores": list(CHECKS), "numbers": len(checks), "different": different},
        "largest difference in ROC-AUC": {
            method: round(float(gap), DECIMALS) if math.isfinite(gap) else None for method, gap in areas.items()
        },
        "new": sorted(set(again["method"]) - set(published["method"])),
    }
    (folder / "environment-again.json").write_text(json.dumps(facts, indent=1) + "\n")


def _table(rows: object) -> pd.DataFrame:
    """The long table in published decimals."""
    table = pd.DataFrame(rows)
    numbers = ["value", "low", "high", "accuracy"]
    table[numbers] = table[numbers].round(DECIMALS)
    return table


def _write(table: pd.DataFrame, folder: Path) -> None:
    """Write the table with the rows about the same inputs next to each other."""
    table = table.assign(place=table["shift"].factorize()[0])
    table = table.sort_values(["dataset", "net", "seed", "place", "severity"], kind="stable").drop(columns="place")
    table.to_parquet(folder / "table.parquet", compression="zstd", compression_level=19, index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", metavar="store")
    parser.add_argument("folder")
    parser.add_argument("--into", action="store_true")
    parser.add_argument("--without", nargs="+", default=[], help="methods of the store that are left out")
    given = parser.parse_args()
    if given.into:
        merge(given.stores, given.folder, given.without)
    elif len(given.stores) == 1:
        main(given.stores[0], given.folder)
    else:
        parser.error("several stores are for --into")
