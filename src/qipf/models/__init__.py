"""What is read from a network: outputs, features and weights."""

from qipf.models.collect import collect
from qipf.models.kinds.groups import by_group
from qipf.models.kinds.pixels import PixelMaps, collect_pixels, score_pixels
from qipf.models.kinds.several_labels import SeveralLabels, collect_labels
from qipf.models.kinds.tokens import Tokens, collect_tokens
from qipf.models.outputs import Outputs
from qipf.models.sessions.model import OnnxModel
from qipf.weights.pooling import pool_weights
from qipf.weights.weights import read_weights

__all__ = [
    "OnnxModel",
    "Outputs",
    "PixelMaps",
    "SeveralLabels",
    "Tokens",
    "by_group",
    "collect",
    "collect_labels",
    "collect_pixels",
    "collect_tokens",
    "pool_weights",
    "read_weights",
    "score_pixels",
]
