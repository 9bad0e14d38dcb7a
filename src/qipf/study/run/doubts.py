"""What makes the results of a user's own data doubtful, although they can be computed."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from qipf.arrays import to_numpy
from qipf.study.datasets import Split
from qipf.study.run.inputs import StudyData

SHARE = 0.05
"""The share of test inputs that may occur in another part of the data before it is noted."""


def notes_of(data: StudyData) -> list[str]:
    """What a reader should know about the data of a plan, one sentence each."""
    parts = (
        ("x_train", data.train, "scores are fitted"),
        ("the held-out inputs", data.held_out, "scores and intervals are calibrated"),
    )
    notes = [_repeated_note(name, part, data.test, use) for name, part, use in parts]
    return [note for note in notes if note]


def _repeated_note(name: str, part: Split, test: Split, use: str) -> str:
    if part.inputs.shape[1:] != test.inputs.shape[1:] or part.targets.shape[1:] != test.targets.shape[1:]:
        return ""  # models that take inputs of several sizes
    known = set(_rows(part))
    count = sum(row in known for row in _rows(test))
    if count < SHARE * len(test.inputs):
        return ""
    return (
        f"{count} of {len(test.inputs)} test inputs are also in {name}, with the same labels: {use} there, so the "
        "results are better than on new inputs; remove them from one of the two"
    )


def _rows(split: Split) -> list[bytes]:
    """A digest of each input with its labels."""
    inputs, targets = (np.ascontiguousarray(to_numpy(part)) for part in split)
    return [blake2b(x.tobytes() + y.tobytes(), digest_size=16).digest() for x, y in zip(inputs, targets, strict=True)]
