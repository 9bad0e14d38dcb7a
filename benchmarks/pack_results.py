"""Pack the tables of a benchmark for publication: python benchmarks/pack_results.py STORE results/paper/NAME

STORE is the folder that `qipf bench -o` wrote, or a folder with its tables. Numbers are rounded to four decimals, which
is far less than they differ between networks, and rows about the same inputs stand together. Four benchmarks thus take
less than ten megabytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

from qipf.study.report.source import open_source

DECIMALS = 4


def main(store: str, target: str) -> None:
    """Write table.parquet, times.csv, networks.csv, plan.json and environment.json."""
    source, folder = open_source(store), Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(source.rows)
    numbers = ["value", "low", "high", "accuracy"]
    table[numbers] = table[numbers].round(DECIMALS)
    table["place"] = table["shift"].factorize()[0]
    table = table.sort_values(["dataset", "net", "seed", "place", "severity"], kind="stable").drop(columns="place")
    table.to_parquet(folder / "table.parquet", compression="zstd", compression_level=19, index=False)
    for name, lines in (("times", source.times), ("networks", source.networks)):
        if lines:
            pd.DataFrame(lines).to_csv(folder / f"{name}.csv", index=False)
    if source.plan is not None:
        (folder / "plan.json").write_text(json.dumps(source.plan.as_json(), indent=1) + "\n")
    (folder / "environment.json").write_text(json.dumps(source.environment, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
