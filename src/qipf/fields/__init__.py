"""The mathematics of the paper: fields, potentials, bandwidths and information measures, computed from arrays."""

from qipf.fields import information, published
from qipf.fields.bandwidth import cross_validated_factor, silverman
from qipf.fields.binned import BinnedField
from qipf.fields.field import Derivatives, Field
from qipf.fields.mode_table import ModeTable
from qipf.fields.potential import potentials, uncertainty_modes
from qipf.fields.sketch import FieldSketch

__all__ = [
    "BinnedField",
    "Derivatives",
    "Field",
    "FieldSketch",
    "ModeTable",
    "cross_validated_factor",
    "information",
    "potentials",
    "published",
    "silverman",
    "uncertainty_modes",
]
