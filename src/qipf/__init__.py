"""Estimate the uncertainty of a trained network's predictions in one forward pass, without retraining.

The top level contains what most users need. These subpackages and modules contain more:

* `qipf.fields`: the mathematics of QIPF (Singh and Principe, arXiv 2109.10888);
* `qipf.tasks`: the tasks, such as classification and regression, and their options;
* `qipf.weights`: functions that read the weights of a model;
* `qipf.predictive`: methods that need several forward passes;
* `qipf.arrays`: helpers for writing a new score.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qipf import arrays as arrays
from qipf import fields as fields
from qipf import tasks as tasks
from qipf import weights as weights
from qipf.decisions.decision import Decision as Decision
from qipf.decisions.intervals import Intervals as Intervals
from qipf.decisions.monitor import Monitor as Monitor
from qipf.decisions.probability import ErrorProbability as ErrorProbability
from qipf.decisions.sets import PredictionSets as PredictionSets
from qipf.metrics import evaluate as evaluate
from qipf.runners.onnx import OnnxRunner as OnnxModel
from qipf.scores import KNN as KNN
from qipf.scores import Energy as Energy
from qipf.scores import Entropy as Entropy
from qipf.scores import Fitted as Fitted
from qipf.scores import Mahalanobis as Mahalanobis
from qipf.scores import MaxLogit as MaxLogit
from qipf.scores import OneMinusMargin as OneMinusMargin
from qipf.scores import Probe as Probe
from qipf.scores import ResidualScale as ResidualScale
from qipf.scores import Scorer as Scorer
from qipf.scores import SoftmaxResponse as SoftmaxResponse
from qipf.scores import Twin as Twin
from qipf.scores import WeightQIPF as WeightQIPF
from qipf.scores.default import default as default
from qipf.scores.saving import load as load
from qipf.tasks.collect import collect as collect
from qipf.tasks.outputs import Outputs as Outputs

if TYPE_CHECKING:
    from qipf.deploy.onnx_export import export_onnx as export_onnx
    from qipf.deploy.wrapper import wrap as wrap

_NEED_TORCH = {"export_onnx": "qipf.deploy.onnx_export", "wrap": "qipf.deploy.wrapper"}

__all__ = [
    "KNN",
    "Decision",
    "Energy",
    "Entropy",
    "ErrorProbability",
    "Fitted",
    "Intervals",
    "Mahalanobis",
    "MaxLogit",
    "Monitor",
    "OneMinusMargin",
    "OnnxModel",
    "Outputs",
    "PredictionSets",
    "Probe",
    "ResidualScale",
    "Scorer",
    "SoftmaxResponse",
    "Twin",
    "WeightQIPF",
    "collect",
    "default",
    "evaluate",
    "export_onnx",
    "load",
    "wrap",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        from qipf._common.optional import require

        require("torch", extra="torch")
        return getattr(import_module(_NEED_TORCH[name]), name)
    raise AttributeError(f"module 'qipf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
