"""A plain training loop for the methods that train networks of their own, and for the study."""

from qipf.training.loop import (
    EpochReport,
    accuracy,
    device_of,
    negative_log_likelihood,
    one_cycle,
    seeded,
    train,
)

__all__ = ["EpochReport", "accuracy", "device_of", "negative_log_likelihood", "one_cycle", "seeded", "train"]
