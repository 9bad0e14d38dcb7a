"""Clocks for the programs that measure speed. Every figure that they publish is a ratio of times of one run."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Work = Callable[[], object]


def seconds(work: Work, device: str = "cpu") -> float:
    """Return how long a call takes: on a GPU by the clock, on one CPU core in processor time, whatever else runs."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    clock = time.perf_counter if device == "cuda" else time.process_time
    wait()
    began = clock()
    work()
    wait()
    return clock() - began


def shortest(work: Work, device: str = "cpu", budget: float = 1.0) -> float:
    """Return the shortest of many calls: other programs only add to it. The first call warms up and is not counted."""
    work()
    taken = [seconds(work, device)]
    while sum(taken) < budget:
        taken.append(seconds(work, device))
    return min(taken)


def paired(ways: dict[str, Work], device: str, rounds: int, warm: int = 1) -> dict[str, dict[str, float]]:
    """Return seconds of calls that take turns, and by how many per cent each exceeds the first one of its round."""
    for work in list(ways.values()) * warm:
        work()
    taken = [{name: seconds(work, device) for name, work in ways.items()} for _ in range(rounds)]
    first, *others = ways
    return {
        "seconds": {name: statistics.median(one[name] for one in taken) for name in ways},
        "extra_percent": {
            name: 100 * (statistics.median(one[name] / one[first] for one in taken) - 1) for name in others
        },
    }


def environment(device: str) -> dict[str, Any]:
    """Return facts about the machine."""
    name = torch.cuda.get_device_name() if device == "cuda" else f"one core of {platform.machine()}"
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return {"device": name, **versions, "threads": torch.get_num_threads(), "load": os.getloadavg()[0]}


def write(path: Path | None, found: dict[str, Any]) -> None:
    """Write what has been measured so far, with four digits, and print the part that was measured last."""
    print(json.dumps({key: _short(found[key]) for key in list(found)[-1:]}, indent=1), flush=True)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_short(found), indent=1) + "\n")


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
