"""Uncertainty scores from one forward pass; higher always means less certain."""

from qipf.scores.base import SCORERS, Fitted, Scorer
from qipf.scores.calibrated import Contrast, MaxLogitPNorm, RelU
from qipf.scores.confidence import (
    GEN,
    Doctor,
    Energy,
    Entropy,
    LogitMargin,
    MaxLogit,
    OneMinusMargin,
    SoftmaxResponse,
)
from qipf.scores.feature_space import SIRC, GeometricMargin, ViM
from qipf.scores.laplace import LastLayerLaplace
from qipf.scores.neighbours import KNN, DeltaKNN, Mahalanobis
from qipf.scores.probe import Probe
from qipf.scores.residual_scale import ResidualScale
from qipf.scores.twin import Twin
from qipf.scores.weight_qipf import WeightQIPF

__all__ = [
    "GEN",
    "KNN",
    "SCORERS",
    "SIRC",
    "Contrast",
    "DeltaKNN",
    "Doctor",
    "Energy",
    "Entropy",
    "Fitted",
    "GeometricMargin",
    "LastLayerLaplace",
    "LogitMargin",
    "Mahalanobis",
    "MaxLogit",
    "MaxLogitPNorm",
    "OneMinusMargin",
    "Probe",
    "RelU",
    "ResidualScale",
    "Scorer",
    "SoftmaxResponse",
    "Twin",
    "ViM",
    "WeightQIPF",
]
