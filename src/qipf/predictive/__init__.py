"""Many-pass methods: sampled class probabilities and what can be read off them."""

from qipf.predictive.base import Predictive
from qipf.predictive.dropout import RATES, MCDropout, MCDropoutLastLayer
from qipf.predictive.ensemble import DeepEnsemble
from qipf.predictive.iterates import SGDIterates
from qipf.predictive.summary import Summary
from qipf.predictive.swag import SWAG
from qipf.predictive.variational import SVI, SVILastLayer

METHODS: dict[str, type[Predictive]] = {
    method.name: method
    for method in (MCDropout, MCDropoutLastLayer, SVI, SVILastLayer, DeepEnsemble, SWAG, SGDIterates)
}
"""Every method by its name."""

__all__ = [
    "METHODS", "RATES", "SVI", "SWAG",
    "DeepEnsemble", "MCDropout", "MCDropoutLastLayer", "Predictive", "SGDIterates", "SVILastLayer", "Summary",
]  # fmt: skip
