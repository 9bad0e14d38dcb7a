"""Scores from one forward pass, one method or family per file. Higher is less sure, always."""

from qipf.scores.base import SCORERS, Fitted, Scorer
from qipf.scores.class_field import ClassField
from qipf.scores.combine import Combine
from qipf.scores.confidence import (
    GEN,
    Contrast,
    Doctor,
    Energy,
    Entropy,
    LogitMargin,
    MaxLogit,
    OneMinusMargin,
    SoftmaxResponse,
)
from qipf.scores.geometric_margin import GeometricMargin
from qipf.scores.laplace import LastLayerLaplace
from qipf.scores.neighbours import KNN, DeltaKNN, Mahalanobis
from qipf.scores.p_norm import MaxLogitPNorm
from qipf.scores.probe import Probe
from qipf.scores.rel_u import RelU
from qipf.scores.residual_scale import ResidualScale
from qipf.scores.sirc import SIRC
from qipf.scores.twin import Twin
from qipf.scores.vim import ViM
from qipf.scores.weight_qipf import WeightQIPF

__all__ = [
    "GEN",
    "KNN",
    "SCORERS",
    "SIRC",
    "ClassField",
    "Combine",
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
