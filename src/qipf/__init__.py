"""How far can each prediction of a trained neural network be trusted? One forward pass, no retraining."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qipf.decisions.decision import Decision as Decision
from qipf.decisions.monitor import Monitor as Monitor
from qipf.decisions.probability import ErrorProbability as ErrorProbability
from qipf.decisions.sets import PredictionSets as PredictionSets
from qipf.fields import information as information
from qipf.fields import published as published
from qipf.fields.bandwidth import cross_validated_factor as cross_validated_factor
from qipf.fields.bandwidth import silverman as silverman
from qipf.fields.compiled import CompiledField as CompiledField
from qipf.fields.field import Field as Field
from qipf.fields.potential import modes as modes
from qipf.fields.potential import potentials as potentials
from qipf.fields.sketch import FieldSketch as FieldSketch
from qipf.fields.sketch import sketch_weights as sketch_weights
from qipf.metrics import evaluate as evaluate
from qipf.models.collect import collect as collect
from qipf.models.outputs import Outputs as Outputs
from qipf.models.pooling import pool as pool
from qipf.models.weights import kernels as kernels
from qipf.scores import KNN as KNN
from qipf.scores import ClassField as ClassField
from qipf.scores import Combine as Combine
from qipf.scores import Energy as Energy
from qipf.scores import Entropy as Entropy
from qipf.scores import Mahalanobis as Mahalanobis
from qipf.scores import Margin as Margin
from qipf.scores import MaxLogit as MaxLogit
from qipf.scores import PosteriorContrast as PosteriorContrast
from qipf.scores import Probe as Probe
from qipf.scores import SoftmaxResponse as SoftmaxResponse
from qipf.scores import WeightQIPF as WeightQIPF
from qipf.scores.default import default as default
from qipf.scores.old_default import reference_outputs as reference_outputs
from qipf.scores.persistence import load as load

if TYPE_CHECKING:
    from qipf.deploy.onnx_export import export_onnx as export_onnx
    from qipf.deploy.wrapper import wrap as wrap

_NEED_TORCH = {"export_onnx": "qipf.deploy.onnx_export", "wrap": "qipf.deploy.wrapper"}

__all__ = [
    "KNN",
    "ClassField",
    "Combine",
    "CompiledField",
    "Decision",
    "Energy",
    "Entropy",
    "ErrorProbability",
    "Field",
    "FieldSketch",
    "Mahalanobis",
    "Margin",
    "MaxLogit",
    "Monitor",
    "Outputs",
    "PosteriorContrast",
    "PredictionSets",
    "Probe",
    "SoftmaxResponse",
    "WeightQIPF",
    "collect",
    "cross_validated_factor",
    "default",
    "evaluate",
    "export_onnx",
    "information",
    "kernels",
    "load",
    "modes",
    "pool",
    "potentials",
    "published",
    "reference_outputs",
    "silverman",
    "sketch_weights",
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
