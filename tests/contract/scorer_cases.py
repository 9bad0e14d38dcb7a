"""Every scorer, and outputs with planted uncertainties to try it on. A new scorer is one line in CASES."""

from __future__ import annotations

import numpy as np
import torch

import qipf.scores as scores
from qipf.scores import Scorer
from qipf.scores.probe import Probe
from qipf.tasks.outputs import Outputs

CASES: dict[str, Scorer] = {
    "softmax-response": scores.SoftmaxResponse(),
    "entropy": scores.Entropy(),
    "margin": scores.OneMinusMargin(),
    "max-logit": scores.MaxLogit(),
    "energy": scores.Energy(),
    "logit-margin": scores.LogitMargin(),
    "doctor": scores.Doctor(),
    "gen": scores.GEN(),
    "rel-u": scores.RelU(),
    "contrast": scores.Contrast(),
    "max-logit-p-norm": scores.MaxLogitPNorm(p=3),
    "max-logit-p-norm fallback": scores.MaxLogitPNorm(),
    "knn": scores.KNN(k=10),
    "mahalanobis": scores.Mahalanobis(),
    "last-layer-laplace": scores.LastLayerLaplace(),
    "last-layer-laplace full": scores.LastLayerLaplace(structure="full"),
    "geometric-margin": scores.GeometricMargin(),
    "sirc": scores.SIRC(),
    "sirc norm": scores.SIRC(secondary="norm"),
    "delta-knn": scores.DeltaKNN(),
    "vim": scores.ViM(),
    "probe": Probe(hidden=32, epochs=20),
    "probe with the network's softmax alone": Probe(share=1.0),
    "weight-qipf": scores.WeightQIPF(),
    "weight-qipf exact": scores.WeightQIPF(factor=160, tolerance=None),
    "weight-qipf log-odds": scores.WeightQIPF(factor=160, coordinate="log_odds"),
    # Orders above 0 rank the wrong way round with this bound, as WeightQIPF's docstring says.
    "weight-qipf reference": scores.WeightQIPF(factor=160, lower_bound="reference", orders=(0,)),
    "weight-qipf published": scores.WeightQIPF(factor=80, operator="published"),
    "weight-qipf every weight": scores.WeightQIPF(factor=160, pool=None),
}


CLASSES, WIDTH = 4, 12


CENTRES = 4 * np.eye(CLASSES, WIDTH)


HEAD = 3 * np.eye(WIDTH, CLASSES)


def planted(seed: int, clear: int = 300, vague: int = 60) -> tuple[Outputs, np.ndarray]:
    """Clear predictions near a class centre, vague ones between two; a few of those are wrong."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, clear + vague)
    other = (labels + rng.integers(1, CLASSES, clear + vague)) % CLASSES
    is_vague = np.arange(clear + vague) >= clear
    share = np.where(is_vague, rng.uniform(0.4, 0.6, clear + vague), rng.uniform(0.95, 1.0, clear + vague))[:, None]
    features = share * CENTRES[labels] + (1 - share) * CENTRES[other]
    features = features * np.where(is_vague, 0.9, 1.0)[:, None] + 0.1 * rng.standard_normal(features.shape)
    shuffled = rng.permutation(clear + vague)
    outputs = Outputs(logits=features @ HEAD, features=features, labels=labels)
    return outputs[shuffled], is_vague[shuffled]


def network() -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return net


def in_torch(outputs: Outputs, dtype: torch.dtype = torch.float64) -> Outputs:
    return Outputs(
        logits=torch.asarray(outputs.logits, dtype=dtype),
        features=torch.asarray(outputs.features, dtype=dtype),
        labels=torch.asarray(outputs.labels),
    )
