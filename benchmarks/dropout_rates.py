"""MC dropout at several rates: is .1 or .2 the best, as the paper says (Appendix F.2)?

python benchmarks/dropout_rates.py --data FOLDER [--device cuda] [--plans mnist ...] [--out FILE]

Settings, fixed before the first run: the base networks with seeds 0, 1 and 2 of the shipped plans for MNIST, K-MNIST
and CIFAR-10 (VGG-3); 2,000 test images; the five shifts at severities 2, 5 and 8; 100 passes; dropout where the paper
has it, before every layer and before the last one only. The score is the standard deviation over the passes, as in the
paper, and it is judged by the ROC-AUC of finding errors, averaged over the 15 shifted sets of a network.

The claim holds for a way of dropping if the best of the six rates on every pair is the paper's, or if the paper's is
behind the best by less than .005 on average over the networks; .005 is the smallest difference that matters. A trial
with two rates, three passes, 200 images and networks of one epoch had only shown that the program runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

from qipf.study.plan.plan import parse
from qipf.study.run.run import run_plan

RATES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4)
KINDS = {"mc-dropout": "", "mc-dropout-ll": 'before = "last"'}
PLANS = {"mnist": ("mnist", "lenet"), "kmnist": ("kmnist", "lenet"), "cifar10-vgg3": ("cifar10", "vgg3")}
HEAD = """
name = "dropout-rates"
seeds = [0, 1, 2]
pool = 3
shifts = ["rotation", "brightness", "shear", "zoom", "shift"]
severities = [2, 5, 8]
test_size = 2000
bootstrap = 0

[[pairs]]
dataset = "{dataset}"
net = "{net}"

[methods.entropy]
"""


def text(dataset: str, net: str) -> str:
    """The plan for one pair: both ways of dropping, at every rate."""
    methods = [
        f'[methods.{kind}-{round(100 * rate)}]\nkind = "{kind}"\nrate = {rate}\npasses = 100\n{more}\n'
        for kind, more in KINDS.items()
        for rate in RATES
    ]
    return HEAD.format(dataset=dataset, net=net) + "\n".join(methods)


def summary(table: Path) -> dict[str, dict[str, list[float]]]:
    """ROC-AUC of the standard deviation, averaged over shifted sets: by way and rate, one number per network."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    with table.open() as file:
        for row in csv.DictReader(file):
            if row["metric"] == "roc_auc" and row["score"] == "std" and row["shift"] != "clean" and row["value"]:
                values[row["method"], row["seed"]].append(float(row["value"]))
    means = {key: statistics.mean(found) for key, found in values.items()}
    return {
        kind: {f"{rate:g}": [means[f"{kind}-{round(100 * rate)}", seed] for seed in "012"] for rate in RATES}
        for kind in KINDS
    }


def main() -> None:
    """Run the plans one after the other and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--device")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("results/paper/dropout-rates.json"))
    parser.add_argument("--plans", nargs="+", choices=PLANS, default=list(PLANS))
    given = parser.parse_args()
    found: dict[str, object] = {}
    for name in given.plans:
        with tempfile.TemporaryDirectory() as folder:
            plan = parse(tomllib.loads(text(*PLANS[name])))
            report, _ = run_plan(
                plan, Path(folder) / "store", engine="local", data=given.data, device=given.device,
                workers=given.workers, times=False, quiet=True,
            )  # fmt: skip
            if report.failed:
                raise SystemExit("\n".join(str(failure) for failure in report.failed))
            found[name] = summary(Path(folder) / "store" / "table.csv")
        given.out.write_text(json.dumps({"rates": RATES, "roc_auc": found}, indent=1) + "\n")
        print(name, json.dumps(found[name]), flush=True)


if __name__ == "__main__":
    main()
