"""The names of the scores in the tables of the probe."""

from __future__ import annotations

NAMES = {
    "probe": "**qipf.default (the probe)**",
    "probe, head alone": "probe, head alone",
    "logistic head on the same data": "logistic head on the same perturbed images",
    "probe without perturbations": "probe without perturbed images",
    "ensemble of 10, contrast": "ensemble of 10, contrast of the predicted class",
    "ensemble of 10, entropy": "ensemble of 10, entropy of the mean",
    "MC dropout, contrast": "MC dropout, 20 passes, contrast†",
    "MC dropout, entropy": "MC dropout, 20 passes, entropy†",
    "previous default (class fields)": "class fields (the previous default)",
    "entropy": "entropy of the softmax",
    "max softmax": "max softmax",
    "contrast, temperature fitted": "contrast, fitted temperature",
    "max logit": "max logit",
    "max logit, p-norm": "max logit, p-norm",
    "energy": "energy",
    "GEN": "GEN",
    "Doctor": "Doctor",
    "QIPF, exact operator": "the paper's QIPF, exact operator",
    "QIPF, authors' program": "the paper's QIPF, authors' program",
    "KNN": "KNN",
    "Mahalanobis": "Mahalanobis",
    "ViM": "ViM",
    "last-layer Laplace": "last-layer Laplace",
    "network retrained on perturbed images, contrast": "a second network, trained on perturbed images, contrast‡",
    "ensemble of 5 retrained on perturbed images, contrast": "ensemble of 5, trained on perturbed images, contrast‡",
}
"""The scores that are quoted."""
