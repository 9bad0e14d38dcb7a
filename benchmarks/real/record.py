"""What is kept of every score on every network: metrics of each condition, and replicates of ROC-AUC for intervals."""

from __future__ import annotations

import json
import platform
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probe.measures import ranked_detection, ranking, replicate_weights
from real.conditions import Condition

METRICS = ("roc_auc", "pr_auc")
STEP = 1e-4
"""Replicates are kept as differences from the value itself, in these steps: more than exact enough, and small."""


class Record:
    """Collects rows, one per network and score, and writes them to two files."""

    def __init__(self, listed: list[Condition]) -> None:
        self.listed = listed
        self.families = list(dict.fromkeys((c.suite, c.family) for c in listed))
        self.rows: list[dict[str, Any]] = []
        self.values: list[np.ndarray] = []
        self.replicates: list[np.ndarray] = []
        self.facts: dict[str, Any] = {
            "versions": {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()},
            "accuracy": {},
        }

    def add(
        self,
        network: str,
        score: str,
        kind: str,
        scores: list[Tensor],
        wrong: list[Tensor],
        *,
        units: Tensor | list[Tensor] | None = None,
    ) -> None:
        """Add the scores of one method on one network.

        Args:
            network: its name.
            score: the name of the score.
            kind: "probe", "single" for a rival with one pass, or "many".
            scores: one row of scores per condition; sizes may differ.
            wrong: whether each prediction is wrong, likewise.
            units: what is resampled for the replicates, where this is not the prediction itself: the number of the unit
                (image) that each prediction belongs to, from 0; a list where this differs between conditions.
        """
        owners = units if isinstance(units, list) else [units] * len(scores)
        values, drawn = zip(*(_measure(*one) for one in zip(scores, wrong, owners, strict=True)), strict=True)
        inside = [[i for i, c in enumerate(self.listed) if c[:2] == family] for family in self.families]
        means = np.stack([_mean(np.stack([values[i][0] for i in rows])) for rows in inside])
        replicates = np.stack([_mean(np.stack([drawn[i] for i in rows])) for rows in inside])
        moved = np.nan_to_num((replicates - means[:, None]) / STEP)
        self.rows.append({"network": network, "score": score, "kind": kind})
        self.values.append(np.stack(values, axis=1))
        self.replicates.append(np.clip(np.round(moved), -32768, 32767).astype(np.int16))

    def write(self, path: Path) -> None:
        """One file of arrays and one of facts."""
        path.parent.mkdir(parents=True, exist_ok=True)
        values = np.stack(self.values).round(5).astype(np.float32)
        np.savez_compressed(path.with_suffix(".npz"), metrics=values, replicates=np.stack(self.replicates))
        listed = [list(condition) for condition in self.listed]
        about = {"conditions": listed, "families": self.families, "rows": self.rows, **self.facts}
        path.with_suffix(".json").write_text(json.dumps(about) + "\n")


_weights = cache(replicate_weights)


def _measure(scores: Tensor, wrong: Tensor, units: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    """ROC-AUC and average precision, (2,), and replicates of the former, (REPLICATES,)."""
    if not bool(torch.isfinite(scores).all()):
        raise ValueError("scores: some are not finite")
    order = ranking(scores[None])
    ranked = wrong[None].gather(1, order)
    value = torch.stack(ranked_detection(order, ranked, None)[:2])[:, 0]
    if units is None:
        weights = _weights(len(scores), scores.device)[:, order[0]].double()
    else:
        weights = _weights(int(units.max()) + 1, scores.device)[:, units[order[0]]].double()
    return value.cpu().numpy(), _weighted(ranked, weights).cpu().numpy()


def _weighted(ranked: Tensor, weights: Tensor) -> Tensor:
    """ROC-AUC of one ranking (1, N) under many weights (R, N), (R,)."""
    error = ranked.double() * weights
    right = weights - error
    errors, rights = error.sum(1), right.sum(1)
    auc = ((error.cumsum(1) - error / 2) * right).sum(1) / (errors * rights)
    return torch.where((errors == 0) | (rights == 0), torch.nan, auc)


def _mean(values: np.ndarray) -> np.ndarray:
    """The mean over the first axis without NaN; NaN where there is nothing else."""
    count = np.isfinite(values).sum(0)
    total = np.where(np.isfinite(values), values, 0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
