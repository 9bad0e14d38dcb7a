"""A plain training loop for the methods that train networks of their own, and for the study."""

from qipf.training.loop import (
    MOMENTUM,
    EpochReport,
    accuracy,
    device_of,
    negative_log_likelihood,
    one_cycle,
    seeded,
    train,
)

__all__ = [
    "MOMENTUM", "EpochReport", "accuracy", "device_of", "negative_log_likelihood", "one_cycle", "seeded", "train",
]  # fmt: skip
