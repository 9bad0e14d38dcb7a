"""Cells that are quick and known: what the runner and the engines are tested with."""

import os
import time
from pathlib import Path

import numpy as np

from qipf.study.run.graph import Cell, Result


def number(context, params, parents):
    """params["value"] plus what the parents have; writes down that it ran."""
    if "log" in params:
        with Path(params["log"]).open("a") as log:
            log.write(f"{context.key}\n")
    time.sleep(params.get("sleep", 0))
    total = params["value"] + sum(float(context.arrays(parent)["x"][0]) for parent in parents.values())
    return Result({"total": total}, {"x": np.array([total])})


def fail(context, params, parents):
    raise ArithmeticError("the sum is wrong")


def die(context, params, parents):
    """Kill the process that runs it, the first `times` times."""
    marker = Path(params["marker"])
    deaths = len(marker.read_text()) if marker.exists() else 0
    if deaths < params["times"]:
        marker.write_text("x" * (deaths + 1))
        os._exit(9)
    return Result({"total": 1.0}, {"x": np.array([1.0])})


def cell(value, parents=(), *, function="number", kind="number", task="", **params):
    """A toy cell."""
    named = {str(i): parent for i, parent in enumerate(parents)}
    label = f"{function} {value}"
    return Cell(kind, f"toy_cells:{function}", "1", {"value": value, **params}, named, task=task, label=label)


def diamond(log=None, sleep=0.0):
    """1 -> (10, 20) -> sum: 1 + 10, 1 + 20, 100 + 32."""
    extra = {"log": str(log)} if log else {}
    extra |= {"sleep": sleep} if sleep else {}
    top = cell(1.0, **extra)
    sides = [cell(10.0, [top], **extra), cell(20.0, [top], **extra)]
    return cell(100.0, sides, **extra)
