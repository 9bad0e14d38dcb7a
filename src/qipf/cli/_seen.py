"""What a command saw in a model's outputs: how often the model is right, and whether it was trained."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf.arrays import to_numpy
from qipf.models.loading import is_random

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs


@dataclass(frozen=True)
class Seen:
    """Counts over the rows of the data so far."""

    labelled: int = 0
    right: int = 0

    def __add__(self, other: Seen) -> Seen:
        return Seen(self.labelled + other.labelled, self.right + other.right)

    def say(self, what: str = "labelled examples", how: str = "accuracy of the model") -> None:
        """Print the accuracy, if it is known; `what` says what was counted, and `how` what is right."""
        if self.labelled:
            share = 100 * self.right / self.labelled
            print(f"{how}: {share:.1f} % of {self.labelled} {what}", file=sys.stderr)


def warn_of_random(spec: str, net: Any) -> None:
    """Print a warning about a model that nobody trained.

    Args:
        spec: the model as the user wrote it, where no weights were given.
        net: the model, if it was run.
    """
    if net is not None and is_random(spec, net):
        print(
            f"warning: {spec} gives other random weights at every call: this network is not trained; give --weights",
            file=sys.stderr,
        )


def seen_in(outputs: Outputs, correct: Any = None) -> Seen:
    """Count the rows of some outputs; `correct` says which are right where that is known already."""
    if correct is None and outputs.labels is not None and not outputs.regression:
        correct = to_numpy(outputs.correct)
    return Seen() if correct is None else Seen(len(correct), int(np.sum(correct)))
