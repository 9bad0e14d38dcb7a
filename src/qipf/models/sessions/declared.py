"""Re-exports, until the last caller has moved."""

from qipf.data.batches import InputSpec as Input
from qipf.data.batches import shape_text as form

__all__ = ["Input", "form"]
