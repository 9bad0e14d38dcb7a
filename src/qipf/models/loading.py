"""Re-exports, until the last caller has moved."""

from qipf.runners.loading import WEIGHT_FILES as WEIGHT_FILES
from qipf.runners.loading import is_random as is_random
from qipf.runners.loading import is_weights as is_weights
from qipf.runners.loading import load_model as load_model
