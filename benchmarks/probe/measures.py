"""ROC-AUC, average precision and AURC of many conditions at once, with replicates for intervals, and their record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probe.conditions import Condition

REPLICATES = 50


def detection(scores: Tensor, wrong: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return ROC-AUC, average precision and AURC of every row of (K, N) scores; NaN if all or none are wrong.

    Args:
        scores: higher is less sure.
        wrong: True for each wrong prediction.
        weights: (N,) how often each prediction counts; None for once.
    """
    order = ranking(scores)
    return ranked_detection(order, wrong.gather(1, order), weights)


def ranking(scores: Tensor) -> Tensor:
    """Return the order of every row, least sure first."""
    return scores.double().argsort(dim=1, descending=True, stable=True)


def ranked_detection(order: Tensor, ranked: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return `detection` from the ranking and the errors in that order."""
    error = ranked.double()
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


def replicate_weights(count: int, device: torch.device | str) -> Tensor:
    """Return (REPLICATES, count) Poisson weights, the same for every score."""
    generator = torch.Generator().manual_seed(12345)
    return torch.poisson(torch.ones(REPLICATES, count), generator=generator).to(device)


class Record:
    """Metrics and replicates of every score on every network."""

    def __init__(self, listed: list[Condition], count: int, device: str) -> None:
        self.listed, self.weights = listed, replicate_weights(count, device)
        self.families = list(dict.fromkeys((c.group, c.family) for c in listed if c.group != "ood"))
        self.rows: list[dict[str, Any]] = []
        self.values: dict[str, list[np.ndarray]] = {name: [] for name in ("metrics", "replicates")}

    def add(
        self, base: int, name: str, scores: Tensor, wrong: Tensor, images: Tensor | None = None, **more: Any
    ) -> None:
        """Add the (K, N) scores of one method on one base network; `images` are those that it saw (None: all)."""
        errors = wrong if images is None else wrong[:, images]
        weights = self.weights if images is None else self.weights[:, images]
        shown = [i for i, c in enumerate(self.listed) if c.group != "ood"]
        metrics = torch.stack(detection(scores, errors))
        outside = [i for i, c in enumerate(self.listed) if c.group == "ood"]
        for i in outside:  # tell inputs of another dataset from clean test images
            both = torch.cat([scores[0], scores[i]])[None]
            foreign = torch.cat([torch.zeros_like(errors[0]), torch.ones_like(errors[0])])[None]
            metrics[:, i] = torch.stack(detection(both, foreign))[:, 0]
        order = ranking(scores[shown])
        ranked = errors[shown].gather(1, order)
        drawn = [torch.stack(ranked_detection(order, ranked, each)[:2]) for each in weights]
        drawn = torch.stack(drawn, dim=2)  # (ROC-AUC and average precision, conditions, replicates)
        inside = [[shown.index(i) for i in shown if self.listed[i][:2] == family] for family in self.families]
        replicates = torch.stack([drawn[:, rows].nanmean(1) for rows in inside], dim=1).cpu()
        self.rows.append({"base": base, "score": name, "images": errors.shape[1], **more})
        self.values["metrics"].append(metrics.float().cpu().numpy())
        self.values["replicates"].append(replicates.half().numpy())

    def write(self, path: Path, facts: dict[str, Any]) -> None:
        """Write one file of arrays, if there are rows, and then one of facts; both replace earlier ones."""
        if self.rows:
            with path.with_suffix(".new").open("wb") as file:
                np.savez_compressed(file, **{name: np.stack(values) for name, values in self.values.items()})
            path.with_suffix(".new").rename(path.with_suffix(".npz"))
        listed = [condition._asdict() for condition in self.listed]
        about = {"families": self.families, **facts, "conditions": listed, "rows": self.rows}
        path.with_suffix(".new").write_text(json.dumps(about, indent=1))
        path.with_suffix(".new").rename(path.with_suffix(".json"))
