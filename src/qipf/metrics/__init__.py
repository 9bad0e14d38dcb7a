"""Metrics of uncertainty scores: error detection, calibration and correlation."""

from qipf.metrics.probabilistic import Brier, adaptive_ece, brier, ece, nll
from qipf.metrics.ranking import (
    augrc,
    aurc,
    excess_aurc,
    fpr_at_tpr,
    point_biserial,
    pr_auc,
    pr_auc_trapezoid,
    roc_auc,
    spearman,
)
from qipf.metrics.summary import METRICS, Metric, evaluate, resamples_for

__all__ = [
    "METRICS",
    "Brier",
    "Metric",
    "adaptive_ece",
    "augrc",
    "aurc",
    "brier",
    "ece",
    "evaluate",
    "excess_aurc",
    "fpr_at_tpr",
    "nll",
    "point_biserial",
    "pr_auc",
    "pr_auc_trapezoid",
    "resamples_for",
    "roc_auc",
    "spearman",
]
