"""Table 3: milliseconds per sample of every method beside a bare forward pass, on a machine with nothing else to do.

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

from qipf.study import load_plan, open_store, parse_plan, run_plan
from timing import environment

PAIRS = {
    "mnist": ("mnist", "lenet", 1, 28),
    "cifar10-vgg3": ("cifar10", "vgg3", 3, 32),
    "cifar10-resnet18": ("cifar10", "resnet18", 3, 32),
}
"""By plan, one per network: dataset and network, channels and size of an image."""
METHODS = (
    "qipf", "qipf-published", "entropy", "max-logit", "knn", "mahalanobis", "class-field", "default",
    "mc-dropout", "mc-dropout-ll", "svi", "svi-ll", "ensemble",
)  # fmt: skip
PARTS = {"train": 20_000, "test": 2_000, "held_out": 500}
FILES = {"cpu": "times.csv", "cuda": "times-cuda.csv"}
"""Pages about a folder read the first alone, as they compare times with one another."""


def main() -> None:
    """Write one file per plan, with one line per method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--device", choices=FILES, default="cpu")
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
    machines[given.device] = environment(given.device)
    kept.write_text(json.dumps(machines, indent=1, sort_keys=True) + "\n")


def times_of(name: str, device: str, folder: Path) -> list[dict[str, object]]:
    """Time every method of a plan."""
    dataset, net, channels, size = PAIRS[name]
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for part, count in PARTS.items():
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, channels, size, size), dtype=np.uint8)
        arrays[f"y_{part}"] = rng.integers(0, 10, count)
    np.savez(folder / f"{net}.npz", **arrays)
    (settings,) = load_plan(name).pairs
    tables = {}
    for method in [method for method in settings.methods if method.name in METHODS]:
        params = {key: 0 if key == "epochs" else value for key, value in method.params.items()}
        tables[method.name] = {"kind": method.kind, **params}
    values = {
        "name": f"table3-{name}", "seeds": [0], "pool": 10, "test_size": PARTS["test"], "bootstrap": 0,
        "multi_pass_size": 10, "reference_size": PARTS["train"], "shifts": [], "methods": tables,
        "pairs": [{"dataset": f"{net}.npz", "net": net, "train": {"epochs": 0}}],
    }  # fmt: skip
    report, _ = run_plan(
        parse_plan(values, folder=folder), folder / "store", engine="serial", device=device, quiet=True
    )
    if report.failed:
        raise SystemExit("\n".join(f"{name}: {failure}" for failure in report.failed))
    return [{**line, "dataset": dataset} for line in open_store(folder / "store").times()]


if __name__ == "__main__":
    main()
