"""Multi-pass methods, which sample several predictions per input, and statistics over the passes."""

from typing import Any

from qipf.predictive.dropout import MCDropout, MCDropoutLastLayer
from qipf.predictive.ensemble import DeepEnsemble
from qipf.predictive.method import Predictive
from qipf.predictive.moments import Summary
from qipf.predictive.swag import SWAG, SGDIterates
from qipf.predictive.variational import SVI, SVILastLayer

METHODS: dict[str, type[Predictive]] = {
    method.name: method
    for method in (MCDropout, MCDropoutLastLayer, SVI, SVILastLayer, DeepEnsemble, SWAG, SGDIterates)
}
"""All methods, keyed by name."""

_KERAS_ADAM: dict[str, Any] = {"learning_rate": 1e-3, "schedule": "constant", "weight_decay": 0.0, "augment": "none"}
AUTHORS_SETTINGS: dict[str, dict[str, Any]] = {
    "mc-dropout-ll": {"before": "second-to-last"},
    "svi": {"start": "scratch", "convolution": False, "full_batch": True, "scale_kl": False, **_KERAS_ADAM},
    "svi-ll": {"start": "trunk", "batch_size": 10_000, "scale_kl": False, **_KERAS_ADAM},
}
"""Settings of the authors' public code that differ from those in the paper, keyed by method name."""

__all__ = [
    "AUTHORS_SETTINGS",
    "METHODS",
    "SVI",
    "SWAG",
    "DeepEnsemble",
    "MCDropout",
    "MCDropoutLastLayer",
    "Predictive",
    "SGDIterates",
    "SVILastLayer",
    "Summary",
]
