"""Moved to `qipf.tasks.outputs`."""

from qipf.tasks.outputs import Outputs as Outputs
from qipf.tasks.outputs import predicted_classes as predicted_classes
