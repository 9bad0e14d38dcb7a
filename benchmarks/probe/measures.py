"""ROC-AUC, average precision and AURC of many conditions at once, with replicates for intervals."""

from __future__ import annotations

import torch
from torch import Tensor

BINS = 100
REPLICATES = 50


def detection(scores: Tensor, wrong: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """ROC-AUC, average precision and AURC of every row of (K, N) scores; NaN where all or none is wrong.

    Args:
        scores: higher is less sure.
        wrong: whether each prediction is wrong.
        weights: (N,) how often each prediction counts; None for once.
    """
    order = ranking(scores)
    return ranked_detection(order, wrong.gather(1, order), weights)


def ranking(scores: Tensor) -> Tensor:
    """The order of every row, least sure first."""
    return scores.double().argsort(dim=1, descending=True, stable=True)


def ranked_detection(order: Tensor, ranked: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """`detection` with the ranking, and what is wrong in that order, given."""
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


def errors_by_rank(scores: Tensor, wrong: Tensor) -> Tensor:
    """How many predictions are wrong in each of `BINS` equal parts of the ranking, least sure first: (K, BINS)."""
    ranked = wrong.gather(1, ranking(scores))
    usable = ranked.shape[1] // BINS * BINS
    return ranked[:, :usable].reshape(len(ranked), BINS, -1).sum(2).to(torch.uint8)


def replicate_weights(count: int, device: torch.device | str) -> Tensor:
    """(REPLICATES, count) Poisson weights, the same for every score."""
    generator = torch.Generator().manual_seed(12345)
    return torch.poisson(torch.ones(REPLICATES, count), generator=generator).to(device)
