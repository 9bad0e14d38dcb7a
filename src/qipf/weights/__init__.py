"""Read the weights of trained models, and pool them by averaging."""

from qipf.weights.pooling import pool_weights
from qipf.weights.weights import read_weights

__all__ = ["pool_weights", "read_weights"]
