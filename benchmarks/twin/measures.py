"""ROC-AUC, average precision and AURC in many conditions at once, with bootstrap replicates."""

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
    """Return the order of scores (K, N), least certain first, and the errors in that order."""
    order = scores.double().argsort(dim=1, descending=True, stable=True)
    return order, wrong.gather(1, order)


def detection(order: Tensor, wrong: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return ROC-AUC, average precision and AURC of every row; NaN if none or all of its predictions are wrong.

    Args:
        order: The first result of `ranked`.
        wrong: The second result of `ranked`.
        weights: The weight (N,) of each prediction; None for equal weights.
    """
    error = wrong.double()
    weight = torch.ones_like(error) if weights is None else weights.double()[order]
    error, right = error * weight, (1 - error) * weight
    errors, rights = error.sum(1), right.sum(1)
    seen_errors, seen = error.cumsum(1), weight.cumsum(1)
    auc = ((seen_errors - error / 2) * right).sum(1) / (errors * rights)
    precision = (error * seen_errors / seen.clamp_min(1e-9)).sum(1) / errors
    # AURC is the mean error rate of the accepted predictions, those with the lowest scores, over all coverages
    left_errors, left = errors[:, None] - seen_errors + error, seen[:, -1:] - seen + weight
    aurc = (weight * left_errors / left.clamp_min(1e-9)).sum(1) / seen[:, -1]
    bad = (errors == 0) | (rights == 0)
    return tuple(torch.where(bad, torch.nan, value) for value in (auc, precision, aurc))  # pyright: ignore


class Record:
    """The metrics and replicates of all scores on all networks."""

    def __init__(self, listed: list[Condition], count: int, device: str) -> None:
        generator = torch.Generator().manual_seed(12345)  # the same weights for every score
        self.weights = torch.poisson(torch.ones(REPLICATES, count), generator=generator).to(device)
        self.listed = listed
        self.families = list(dict.fromkeys((c.group, c.family) for c in listed if c.group != "ood"))
        self.rows: list[dict[str, Any]] = []
        self.values: dict[str, list[np.ndarray]] = {name: [] for name in ("metrics", "replicates")}

    def add(self, base: int, name: str, scores: Tensor, wrong: Tensor, **more: Any) -> None:
        """Add the scores (K, N) of one method on one base network."""
        shown = [i for i, c in enumerate(self.listed) if c.group != "ood"]
        metrics = torch.stack(detection(*ranked(scores, wrong)))
        outside = [i for i, c in enumerate(self.listed) if c.group == "ood"]
        for i in outside:  # inputs of another dataset against clean test images
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
        """Write the facts and any arrays, replacing earlier files."""
        if self.rows:
            with replacing(path.with_suffix(".npz")) as file:
                np.savez_compressed(file, **{name: np.stack(values) for name, values in self.values.items()})
        listed = [condition._asdict() for condition in self.listed]
        about = {"families": self.families, **facts, "conditions": listed, "rows": self.rows}
        atomic_write(path.with_suffix(".json"), json.dumps(about, indent=1).encode())
