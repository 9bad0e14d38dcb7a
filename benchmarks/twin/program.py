"""Run the twin study on a GPU, unit after unit: a pair and one base network of it.

    python benchmarks/twin/program.py --data DATA --cache CACHE --out results/twin --budget 540

`WORK` lists what is done, in its order. Every part of a unit is kept in the cache once it is done, so that another call
continues. `--out` gets one file of arrays and one of facts for every unit, written again after each part.
results/twin/PROTOCOL.md says what is measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).resolve().parent.parent / "probe"))

import halves
from parts import PARTS, Unit
from setting import Setting

FIRST = ("resnet18-1003", "vgg3-1006", "mnist-1005", "kmnist-1005")
SECOND = ("vgg3-1007", "mnist-1006", "kmnist-1006", "resnet18-1004")
MAIN = ("network", "fit", "scores", "ensemble")
WORK: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (FIRST, MAIN),
    (SECOND, MAIN),
    (FIRST, ("without-elastic",)),
    (FIRST[:1], ("sub-ensemble", "depth")),
    (FIRST[1:], ("depth", "sub-ensemble")),
    (FIRST, ("more-views", "second", "confidnet")),
)
"""Units and their parts, in the order in which they are done."""
NEEDED = ("network", "fit", "scores")
"""Parts without which the later ones make no sense."""


class Stop(Exception):
    """There is no time for what comes next."""


class Clock:
    """The time that is left, and lines about what was done."""

    def __init__(self, budget: float) -> None:
        self.begin, self.budget = time.perf_counter(), budget

    def guard(self, what: str, seconds: float) -> None:
        """Raise Stop if less time than this is left."""
        left = self.budget - (time.perf_counter() - self.begin)
        if left < seconds:
            raise Stop(f"stopped before {what}: it takes about {seconds:.0f} s, and {left:.0f} s are left")

    def say(self, what: str) -> None:
        """Print one line."""
        print(f"[{time.perf_counter() - self.begin:6.1f}] {what}", flush=True)


def run(unit: Unit, wanted: tuple[str, ...], out: Path, clock: Clock) -> None:
    """Do the parts of a unit that are missing, and write the unit after each."""
    for part in wanted:
        path = unit.cache / f"{unit.name}-{part}"
        if path.with_suffix(".json").exists():
            continue
        record = unit.record()
        facts: dict[str, Any] = {"accuracy": {}}
        begin = unit.now()
        try:
            PARTS[part](unit, record, facts)
        except Stop:
            raise
        except Exception:  # the other parts are worth having
            clock.say(f"{unit.name}: {part} failed\n{traceback.format_exc()}")
            if part in NEEDED:
                return
            continue
        facts["part_seconds"] = unit.now() - begin
        with path.with_suffix(".npz").open("wb") as file:
            np.savez_compressed(file, **{name: np.stack(values) for name, values in record.values.items() if values})  # pyright: ignore
        path.with_suffix(".tmp").write_text(json.dumps({"rows": record.rows, **facts}))
        path.with_suffix(".tmp").rename(path.with_suffix(".json"))
        clock.say(f"{unit.name}: {part} in {facts['part_seconds']:.1f} s")
        assemble(unit, out)


def assemble(unit: Unit, out: Path) -> None:
    """One file of arrays and one of facts, of all parts that are done, in the form of the probe study's record."""
    record = unit.record()
    facts: dict[str, Any] = {"pair": unit.setting.pair, "base": unit.base, "accuracy": {}, "parts": {}}
    for part in PARTS:
        path = unit.cache / f"{unit.name}-{part}"
        if not path.with_suffix(".json").exists():
            continue
        about = json.loads(path.with_suffix(".json").read_text())
        record.rows += about.pop("rows")
        facts["accuracy"].update(about.pop("accuracy"))
        facts["parts"][part] = about
        with np.load(path.with_suffix(".npz")) as found:
            for name in found.files:
                record.values[name] += list(found[name])
    facts["device"] = torch.cuda.get_device_name() if unit.setting.device == "cuda" else platform.machine()
    facts["versions"] = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
    if record.rows:
        record.write(unit.cache / f"whole-{unit.name}", facts)
        for suffix in (".npz", ".json"):
            shutil.move(unit.cache / f"whole-{unit.name}{suffix}", out / f"{unit.name}{suffix}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with mnist, kmnist, cifar10 and fashion-mnist")
    parser.add_argument("--cache", type=Path, required=True, help="folder for networks and finished parts")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which nothing new is begun")
    parser.add_argument("--units", nargs="+", default=FIRST + SECOND, help="such as mnist-1003; default: all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plain-steps", action="store_true", help="record no steps as CUDA graphs")
    parser.add_argument("--smoke", action="store_true")
    chosen = parser.parse_args()
    chosen.cache.mkdir(parents=True, exist_ok=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    halves.RECORDED = not chosen.plain_steps
    clock = Clock(chosen.budget)
    settings: dict[str, Setting] = {}
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False  # scores are computed with PyTorch's own defaults
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
