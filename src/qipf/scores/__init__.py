"""Scores from one forward pass, one method a file. Higher is less sure, always."""

from qipf.scores.base import SCORERS, Scorer
from qipf.scores.class_field import ClassField, PosteriorContrast
from qipf.scores.combine import Combine
from qipf.scores.confidence import Energy, Entropy, Margin, MaxLogit, SoftmaxResponse
from qipf.scores.contrast import Contrast
from qipf.scores.laplace import LastLayerLaplace
from qipf.scores.neighbours import KNN, Mahalanobis
from qipf.scores.p_norm import MaxLogitPNorm
from qipf.scores.vim import ViM
from qipf.scores.weight_field import WeightQIPF

__all__ = [
    "KNN",
    "SCORERS",
    "ClassField",
    "Combine",
    "Contrast",
    "Energy",
    "Entropy",
    "LastLayerLaplace",
    "Mahalanobis",
    "Margin",
    "MaxLogit",
    "MaxLogitPNorm",
    "PosteriorContrast",
    "Scorer",
    "SoftmaxResponse",
    "ViM",
    "WeightQIPF",
]
