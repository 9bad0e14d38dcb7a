"""How far can each prediction of a trained neural network be trusted? One forward pass, no retraining."""

from qipf import information as information
from qipf import published as published
from qipf.bandwidth import cross_validated_factor as cross_validated_factor
from qipf.bandwidth import silverman as silverman
from qipf.field import Field as Field
from qipf.outputs import Outputs as Outputs
from qipf.outputs import collect as collect
from qipf.pooling import pool as pool
from qipf.potential import modes as modes
from qipf.potential import potentials as potentials
from qipf.weights import kernels as kernels

__all__ = [
    "Field", "Outputs", "collect", "cross_validated_factor", "information", "kernels", "modes", "pool", "potentials",
    "published", "silverman",
]  # fmt: skip
