"""Names of earlier versions: `OnnxModel`, `Outputs`, `collect` and the readers of weights."""

from qipf.runners.onnx import OnnxRunner as OnnxModel
from qipf.tasks.collect import collect
from qipf.tasks.outputs import Outputs
from qipf.weights.pooling import pool_weights
from qipf.weights.weights import read_weights

__all__ = ["OnnxModel", "Outputs", "collect", "pool_weights", "read_weights"]
