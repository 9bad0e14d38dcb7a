"""Every score with one forward pass, fitted to what the protocol allows it to see."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from qipf.models.collect import collect
from qipf.models.outputs import Outputs
from qipf.scores import (
    GEN,
    KNN,
    SIRC,
    ClassField,
    Contrast,
    DeltaKNN,
    Doctor,
    Energy,
    Entropy,
    GeometricMargin,
    LastLayerLaplace,
    LogitMargin,
    Mahalanobis,
    MaxLogit,
    MaxLogitPNorm,
    OneMinusMargin,
    Probe,
    RelU,
    SoftmaxResponse,
    ViM,
    WeightQIPF,
)

Score = Callable[[Outputs], Any]

FREE: dict[str, Any] = {
    "entropy": Entropy(),
    "max softmax": SoftmaxResponse(),
    "softmax margin": OneMinusMargin(),
    "max logit": MaxLogit(),
    "logit margin": LogitMargin(),
    "energy": Energy(),
    "GEN": GEN(),
    "Doctor": Doctor(),
}
"""Scores of the logits that need no fitting."""

HELD_OUT: dict[str, Callable[[], Any]] = {
    "contrast, fitted temperature": Contrast,
    "max logit, p-norm": MaxLogitPNorm,
    "REL-U": RelU,
    "Delta-KNN": DeltaKNN,
}
"""Scores that are fitted to held-out labels."""

FIELD_REFERENCES = 5000


def referenced(train_size: int, *, published: bool) -> dict[str, Any]:
    """Scores that are fitted to reference outputs.

    Args:
        train_size: how many inputs the network was trained on.
        published: whether the paper's score by the authors' program is among them.
    """
    found: dict[str, Any] = {
        "geometric margin": GeometricMargin(),
        "KNN": KNN(),
        "Mahalanobis": Mahalanobis(),
        "ViM": ViM(),
        "SIRC, residual": SIRC(),
        "SIRC, norm": SIRC(secondary="norm"),
        "last-layer Laplace": LastLayerLaplace(train_size=train_size),
        "class fields": ClassField(),
        "QIPF, exact operator": WeightQIPF(factor=160),
    }
    if published:
        found["QIPF, authors' program"] = WeightQIPF(factor=80, operator="published")
    return found


def fitted_rivals(
    net: nn.Module,
    reference: Outputs,
    held_out: Outputs,
    train_size: int,
    *,
    published: bool = True,
) -> tuple[dict[str, Score], dict[str, str]]:
    """All rivals by name, and the reason for each that cannot be fitted to this network."""
    found: dict[str, Score] = dict(FREE)
    missing: dict[str, str] = {}
    tasks = [(name, make(), held_out) for name, make in HELD_OUT.items()]
    for name, scorer in referenced(train_size, published=published).items():
        tasks.append((name, scorer, reference[:FIELD_REFERENCES] if name == "class fields" else reference))
    for name, scorer, outputs in tasks:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = scorer.fit(net, outputs)
        except (ValueError, MemoryError) as error:
            missing[name] = str(error)
    return found, missing


def with_share(probe: Probe, share: float) -> Probe:
    """The same fitted head with another weight of the network's own softmax."""
    other = Probe(space=probe.space, share=share)
    other._use(probe._require_fitted())
    return other


def head_alone(probe: Probe) -> Probe:
    """The probe without the network's own softmax."""
    return with_share(probe, 0.0)


def read(net: nn.Module, images: Tensor, layers: tuple[str, ...], labels: Tensor | None = None) -> Outputs:
    """What scores read of these images, kept on their device."""
    data: Any = images if labels is None else (images, labels)
    return collect(net, data, layers=layers, store=None, batch_size=_batch(images), progress=False)


def _batch(images: Tensor) -> int:
    """Images per pass: fewer where they are large or there is no GPU."""
    pixels = images.shape[-1] * images.shape[-2]
    return max(20, (4_096_000 if images.is_cuda else 1_600_000) // pixels)


def scored(scorers: dict[str, Score], outputs: Outputs) -> dict[str, Tensor]:
    """Scores in single precision, (N,) by name."""
    return {name: torch.as_tensor(scorer(outputs)).float() for name, scorer in scorers.items()}
