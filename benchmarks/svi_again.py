"""SVI of a published plan, trained again: python benchmarks/svi_again.py results/paper/kmnist --seed 0 [--data FOLDER]

Half an hour a LeNet on one core. Compared is the accuracy of SVI's own mean prediction on the clean test set, on
another device than the published one perhaps. Every run is added to svi-again.csv in the folder.
"""

from __future__ import annotations

import argparse
import csv
from functools import partial
from pathlib import Path

from qipf._common.device import usual_device
from qipf.study.plan import methods
from qipf.study.report.source import open_source
from qipf.study.run import inputs

COLUMNS = ["seed", "device", "published", "new"]


def main() -> None:
    """Train, predict, and add a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=usual_device("bench"))
    parser.add_argument("--epochs", type=int, help="fewer than the plan's, to try the script; nothing is kept then")
    given = parser.parse_args()
    source = open_source(given.folder)
    if source.plan is None:
        parser.error(f"{given.folder} has no plan.json that can be read")
    (pair,) = source.plan.pairs
    svi = next(method for method in pair.methods if method.kind == "svi")
    recipe = {key: value for key, value in pair.train.items() if key != "epochs"}
    settings = {**recipe, **svi.params, **({"epochs": given.epochs} if given.epochs else {})}
    data = inputs.load_data(pair.dataset, pair.calibration_size, given.data, given.device)
    method = methods.build("svi", settings)
    method.fit(partial(inputs.new_network, pair.net, data), data.train, seed=given.seed, device=given.device)
    right = method.summarise(data.test.inputs, seed=given.seed).predicted == data.test.targets
    new = round(float(right.float().mean()), 4)
    wanted = ("svi", "clean", "accuracy", "own", "entropy", "all")
    published = [
        row.value
        for row in source.rows
        if (row.method, row.shift, row.metric, row.errors, row.score, row.subset) == wanted and row.seed == given.seed
    ]
    print(f"network {given.seed}: published {published}, new {new}")
    if not given.epochs:
        with (given.folder / "svi-again.csv").open("a", newline="") as file:
            line = [given.seed, given.device, *(published or [""]), new]
            csv.writer(file, lineterminator="\n").writerows(([] if file.tell() else [COLUMNS]) + [line])


if __name__ == "__main__":
    main()
