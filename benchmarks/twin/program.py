"""Run the twin study on a GPU, unit by unit. A unit is one base network of a pair of dataset and architecture.

    python benchmarks/twin/program.py --data DATA --cache CACHE --out results/twin --budget 540
    python benchmarks/twin/program.py --data DATA --cache CACHE --out OUT --smoke --device cpu --units kmnist-1006

DATA contains the folders mnist, kmnist, cifar10, fashion-mnist and resnets (see `published.py`). After each part of a
unit, its arrays and facts are written to two files in OUT. CACHE holds networks, scorers and predictions. A later call
with the same CACHE continues after the parts in OUT. A step is started only if it is expected to end within `--budget`
seconds. `WORK` lists units and parts in order; results/twin/PROTOCOL.md describes them.

With `--smoke`, everything is tiny and the numbers are meaningless; a LeNet takes a minute on a CPU core.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).resolve().parent.parent))

from twin.measures import Record
from twin.parts import PARTS, Unit
from twin.setting import Setting

CIFAR = ("resnet18-1004", "vgg3-1008")
PUBLISHED = ("published-20", "published-32")
TRANSFORMER = ("vit-1000", "vit-1001")
DIGITS = ("kmnist-1006",)
MAIN = ("network", "fit", "scores", "ensemble")
WORK: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (CIFAR, MAIN),
    (CIFAR, ("few", "depth", "sub-ensemble", "confidnet")),
    (CIFAR, ("second", "more-views")),
    (CIFAR, ("without-elastic",)),
    (PUBLISHED, ("few",)),
    (TRANSFORMER, MAIN),
    (DIGITS, (*MAIN, "sub-ensemble", "confidnet", "depth", "second", "without-elastic", "few")),
)
"""Units and their parts, in order; those of earlier runs are in earlier commits."""
NEEDED = ("network", "fit", "scores")
"""Parts on which all later parts depend."""


class Stop(Exception):
    """Too little time is left for the next step."""


class Clock:
    """A time budget with a log."""

    def __init__(self, budget: float) -> None:
        self.begin, self.budget = time.perf_counter(), budget

    def guard(self, what: str, seconds: float) -> None:
        """Raise Stop if fewer than `seconds` are left."""
        left = self.budget - (time.perf_counter() - self.begin)
        if left < seconds:
            raise Stop(f"stopped before {what}, which takes about {seconds:.0f} s: only {left:.0f} s are left")

    def say(self, what: str) -> None:
        """Print a line with the elapsed seconds."""
        print(f"[{time.perf_counter() - self.begin:6.1f}] {what}", flush=True)


def run(unit: Unit, wanted: tuple[str, ...], out: Path, clock: Clock) -> None:
    """Run the missing parts of a unit."""
    path = out / f"{unit.name}.json"
    done = json.loads(path.read_text())["parts"] if path.exists() else {}
    lost = unit.lost(done)
    if lost:
        clock.say(f"{unit.name}: skipped because CACHE has no {lost}; restore it, or delete {unit.name}.* from OUT")
        return
    for part in wanted:
        if part in done:
            continue
        if part not in NEEDED and not set(NEEDED) <= set(done):
            return
        record = unit.record()
        facts: dict[str, Any] = {"accuracy": {}}
        begin = unit.now()
        try:
            PARTS[part](unit, record, facts)
        except Stop:
            raise
        except Exception:  # other parts can still run
            clock.say(f"{unit.name}: {part} failed\n{traceback.format_exc()}")
            continue
        facts["part_seconds"] = unit.now() - begin
        done[part] = facts
        add(unit, part, record, facts, path)
        clock.say(f"{unit.name}: {part} in {facts['part_seconds']:.1f} s")


def add(unit: Unit, part: str, record: Record, facts: dict[str, Any], path: Path) -> None:
    """Append a part to the files of a unit."""
    about: dict[str, Any] = {"rows": [], "pair": unit.setting.pair, "base": unit.base, "accuracy": {}, "parts": {}}
    if path.exists():
        about = json.loads(path.read_text())
    rows = about.pop("rows")
    if rows:
        with np.load(path.with_suffix(".npz")) as earlier:
            for name, values in record.values.items():
                values[:0] = earlier[name][: len(rows)]  # there are more if a call was killed between the two writes
    record.rows[:0] = rows
    about["accuracy"] |= facts.pop("accuracy")
    about["parts"][part] = facts
    about["device"] = torch.cuda.get_device_name() if unit.setting.device == "cuda" else platform.machine()
    about["versions"] = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
    record.write(path, about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the data")
    parser.add_argument("--cache", type=Path, required=True, help="folder for networks and finished parts")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--budget", type=float, default=1e9, help="time limit in seconds")
    parser.add_argument("--units", nargs="+", default=CIFAR, help="units to run, such as kmnist-1006")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smoke", action="store_true", help="run a tiny version as a test")
    chosen = parser.parse_args()
    chosen.cache.mkdir(parents=True, exist_ok=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    clock = Clock(chosen.budget)
    settings: dict[str, Setting] = {}
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False  # as by default in PyTorch
    try:
        for names, parts in WORK:
            for name in names:
                pair, base = name.split("-")
                if name not in chosen.units:
                    continue
                if pair not in settings:
                    settings[pair] = Setting(pair, chosen.data, chosen.device, chosen.smoke)
                run(Unit(settings[pair], int(base), chosen.cache, clock.guard), parts, chosen.out, clock)
    except Stop as reason:
        clock.say(str(reason))


if __name__ == "__main__":
    main()
