"""A training loop for `qipf.study` and for methods that train their own networks."""

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
