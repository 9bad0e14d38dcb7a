"""Re-export, until the last caller has moved."""

from qipf.runners.features import FeatureSpec as Reading

__all__ = ["Reading"]
