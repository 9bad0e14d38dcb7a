"""Table 3: milliseconds a sample of every method beside a bare forward pass, on a machine with nothing else to do.

python benchmarks/table3.py results/paper/times-cpu.csv --device cpu     # about 20 minutes on one core

The networks are untrained and the images random: neither changes what is computed. Scorers that keep references have
20,000 of them, methods of many passes the passes of the plans.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np

from qipf.bench import consolidate, plan, runner, study
from qipf.bench.engines import open_engine
from qipf.bench.run import usual_device
from qipf.bench.store import Store

NETS = {"lenet": ("mnist", 1, 28), "vgg3": ("cifar10-vgg3", 3, 32), "resnet18": ("cifar10-resnet18", 3, 32)}
METHODS = (
    "qipf", "qipf-published", "entropy", "max-logit", "knn", "mahalanobis", "class-field", "default",
    "mc-dropout", "mc-dropout-ll", "svi", "svi-ll", "ensemble",
)  # fmt: skip
REFERENCES = 20_000


def main() -> None:
    """Write one line a network and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--device", choices=["cpu", "cuda"], default=usual_device())
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = [line for net in given.nets for line in times_of(net, given.device, Path(folder))]
    with given.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def times_of(net: str, device: str, folder: Path) -> list[dict[str, object]]:
    """Time every method on one network."""
    shipped, channels, size = NETS[net]
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for part, count in (("train", REFERENCES), ("test", 500), ("held_out", 500)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, channels, size, size), dtype=np.uint8)
        arrays[f"y_{part}"] = rng.integers(0, 10, count)
    np.savez(folder / f"{net}.npz", **arrays)
    (settings,) = plan.load(shipped).pairs
    methods = {method.name: dict(method.params) for method in settings.methods}
    tables = {}
    for name in METHODS:
        params = {key: 0 if key == "epochs" else value for key, value in methods[name].items()}
        kind = next(method.kind for method in settings.methods if method.name == name)
        tables[name] = {"kind": kind, **params}
    values = {
        "name": f"table3-{net}", "seeds": [0], "pool": 10, "test_size": 500, "reference_size": REFERENCES,
        "pairs": [{"dataset": f"{net}.npz", "net": net, "train": {"epochs": 0}}], "methods": tables,
    }  # fmt: skip
    entries = study.entries(plan.parse(values, folder=folder), device)
    store = Store(folder / net, create=True)
    report = runner.run([e.cell for e in entries if e.cell.kind == "time"], store, open_engine("serial", device=device))
    if not report.complete:
        raise SystemExit(f"{net}: {report.failed or report.skipped}")
    found = consolidate.times(store, [entry.as_json() for entry in entries])
    return [{**line, "dataset": "", "device": device} for line in found]


if __name__ == "__main__":
    main()
