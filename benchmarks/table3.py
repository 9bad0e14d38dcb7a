"""Table 3: milliseconds a sample of every method beside a bare forward pass, on a machine with nothing else to do.

python benchmarks/table3.py results/paper --device cpu     # about 20 minutes on one core; writes */times.csv there
python benchmarks/table3.py results/paper --device cuda    # two minutes; writes */times-cuda.csv

The networks are untrained and the images random: neither changes what is computed. Scorers that keep references have
20,000 of them, methods of many passes the passes of the plans.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from pathlib import Path

import numpy as np
import torch

from qipf._common.device import usual_device
from qipf.study.plan import plan
from qipf.study.run import consolidate, run, timing
from qipf.study.run import grid as study
from qipf.study.run.executors import open_engine
from qipf.study.run.run import environment
from qipf.study.run.store import Store

PAIRS = {
    "mnist": ("mnist", "lenet", 1, 28),
    "cifar10-vgg3": ("cifar10", "vgg3", 3, 32),
    "cifar10-resnet18": ("cifar10", "resnet18", 3, 32),
}
"""By plan, one a network: dataset and network, channels and size of an image."""
METHODS = (
    "qipf", "qipf-published", "entropy", "max-logit", "knn", "mahalanobis", "class-field", "default",
    "mc-dropout", "mc-dropout-ll", "svi", "svi-ll", "ensemble",
)  # fmt: skip
REFERENCES = 20_000
FILES = {"cpu": "times.csv", "cuda": "times-cuda.csv"}
"""Where the lines go; pages about a folder read the first alone, as they compare times with one another."""


def main() -> None:
    """Write one file a plan, with one line a method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--device", choices=["cpu", "cuda"], default=usual_device("bench"))
    parser.add_argument("--plans", nargs="+", choices=PAIRS, default=list(PAIRS))
    given = parser.parse_args()
    for name in given.plans:
        (given.results / name).mkdir(parents=True, exist_ok=True)  # before the minutes of timing, not after
        with tempfile.TemporaryDirectory() as folder:
            lines = times_of(name, given.device, Path(folder))
        with (given.results / name / FILES[given.device]).open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(lines[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    kept = given.results / "times-environment.json"
    machines = json.loads(kept.read_text()) if kept.is_file() else {}
    machines[given.device] = {**environment(given.device, "serial"), "threads": torch.get_num_threads()}
    kept.write_text(json.dumps(machines, indent=1, sort_keys=True) + "\n")


def times_of(name: str, device: str, folder: Path) -> list[dict[str, object]]:
    """Time every method of a plan."""
    dataset, net, channels, size = PAIRS[name]
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for part, count in (("train", REFERENCES), ("test", max(timing.SAMPLES.values())), ("held_out", 500)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, channels, size, size), dtype=np.uint8)
        arrays[f"y_{part}"] = rng.integers(0, 10, count)
    np.savez(folder / f"{net}.npz", **arrays)
    (settings,) = plan.load(name).pairs
    tables = {}
    for method in [method for method in settings.methods if method.name in METHODS]:
        params = {key: 0 if key == "epochs" else value for key, value in method.params.items()}
        tables[method.name] = {"kind": method.kind, **params}
    values = {
        "name": f"table3-{name}", "seeds": [0], "pool": 10,
        "test_size": max(timing.SAMPLES.values()), "reference_size": REFERENCES,
        "pairs": [{"dataset": f"{net}.npz", "net": net, "train": {"epochs": 0}}], "methods": tables,
    }  # fmt: skip
    entries = study.entries(plan.parse(values, folder=folder), device)
    store = Store(folder / net, create=True)
    report = run.run([e.cell for e in entries if e.cell.kind == "time"], store, open_engine("serial", device=device))
    if not report.complete:
        raise SystemExit(f"{name}: {report.failed or report.skipped}")
    found = consolidate.times(store, [entry.as_json() for entry in entries])
    return [{**line, "dataset": dataset} for line in found]


if __name__ == "__main__":
    main()
