"""Compute and record ROC-AUC, average precision and AURC of many conditions at once, with replicates for intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qipf._common.files import atomic_write, replacing
from twin.setting import Condition

REPLICATES = 50


def ranked(scores: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """Return the order of every row of (K, N) scores, least sure first, and True for each error in that order."""
    order = scores.double().argsort(dim=1, descending=True, stable=True)
    return order, wrong.gather(1, order)


def detection(order: Tensor, wrong: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return ROC-AUC, average precision and AURC of every row of `ranked`; NaN if all predictions or none are wrong.

    `weights` (N,) says how often each prediction counts; None for once.
    """
    error = wrong.double()
    weight = torch.ones_like(error) if weights is None else weights.double()[order]
    error, right = error * weight, (1 - error) * weight
    errors, rights = error.sum(1), right.sum(1)
    seen_errors, seen = error.cumsum(1), weight.cumsum(1)
    auc = ((seen_errors - error / 2) * right).sum(1) / (errors * rights)
    precision = (error * seen_errors / seen.clamp_min(1e-9)).sum(1) / errors
    # AURC: the mean error rate among the accepted, over all coverages; accepted are those with the lowest scores
    left_errors, left = errors[:, None] - seen_errors + error, seen[:, -1:] - seen + weight
    aurc = (weight * left_errors / left.clamp_min(1e-9)).sum(1) / seen[:, -1]
    bad = (errors == 0) | (rights == 0)
    return tuple(torch.where(bad, torch.nan, value) for value in (auc, precision, aurc))  # pyright: ignore


class Record:
    """The metrics and replicates of every score on every network."""

    def __init__(self, listed: list[Condition], count: int, device: str) -> None:
        generator = torch.Generator().manual_seed(12345)  # the same weights for every score
        self.weights = torch.poisson(torch.ones(REPLICATES, count), generator=generator).to(device)
        self.listed = listed
        self.families = list(dict.fromkeys((c.group, c.family) for c in listed if c.group != "ood"))
        self.rows: list[dict[str, Any]] = []
        self.values: dict[str, list[np.ndarray]] = {name: [] for name in ("metrics", "replicates")}

    def add(self, base: int, name: str, scores: Tensor, wrong: Tensor, **more: Any) -> None:
        """Add the (K, N) scores of one method on one base network."""
        shown = [i for i, c in enumerate(self.listed) if c.group != "ood"]
        metrics = torch.stack(detection(*ranked(scores, wrong)))
        outside = [i for i, c in enumerate(self.listed) if c.group == "ood"]
        for i in outside:  # tell inputs of another dataset from clean test images
            both = torch.cat([scores[0], scores[i]])[None]
            foreign = torch.cat([torch.zeros_like(wrong[0]), torch.ones_like(wrong[0])])[None]
            metrics[:, i] = torch.stack(detection(*ranked(both, foreign)))[:, 0]
        order = ranked(scores[shown], wrong[shown])
        drawn = [torch.stack(detection(*order, each)[:2]) for each in self.weights]
        drawn = torch.stack(drawn, dim=2)  # (ROC-AUC and average precision, conditions, replicates)
        inside = [[shown.index(i) for i in shown if self.listed[i][:2] == family] for family in self.families]
        replicates = torch.stack([drawn[:, rows].nanmean(1) for rows in inside], dim=1).cpu()
        self.rows.append({"base": base, "score": name, "images": wrong.shape[1], **more})
        self.values["metrics"].append(metrics.float().cpu().numpy())
        self.values["replicates"].append(replicates.half().numpy())

    def write(self, path: Path, facts: dict[str, Any]) -> None:
        """Write one file of arrays (if there are rows) and then one file of facts, which replace earlier files."""
        if self.rows:
            with replacing(path.with_suffix(".npz")) as file:
                np.savez_compressed(file, **{name: np.stack(values) for name, values in self.values.items()})
        listed = [condition._asdict() for condition in self.listed]
        about = {"families": self.families, **facts, "conditions": listed, "rows": self.rows}
        atomic_write(path.with_suffix(".json"), json.dumps(about, indent=1).encode())
