"""Moved to `qipf.tasks.collect`."""

from qipf.tasks.collect import collect as collect
