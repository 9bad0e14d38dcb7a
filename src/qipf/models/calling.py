"""Re-export, until the last caller has moved."""

from qipf.runners.torch import call as call
