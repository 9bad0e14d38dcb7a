"""What a command saw in a model's outputs: how often the model is right, and signs that something is wrong."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf.arrays import to_numpy
from qipf.models.loading import is_random

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs


@dataclass(frozen=True)
class Seen:
    """Counts over the rows of the data so far."""

    rows: int = 0
    labelled: int = 0
    right: int = 0
    probabilities: int = 0
    """rows between 0 and 1 whose sum is 1"""
    unknown: int = 0
    """rows with one output and no label, which may be a regression or a binary classifier"""

    def __add__(self, other: Seen) -> Seen:
        return Seen(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    def say(self) -> None:
        """Print the accuracy, if it is known."""
        if self.labelled:
            share = 100 * self.right / self.labelled
            print(f"accuracy of the model: {share:.1f} % of {self.labelled} labelled examples", file=sys.stderr)

    def warn(self, spec: str | None, net: Any, data: Path, task: str | None = None) -> None:
        """Print what is probably a mistake.

        Args:
            spec: the model as the user wrote it, where no weights were given.
            net: the model, if it was run.
            data: what was read.
            task: what the scorer was fitted to; None while fitting.
        """
        if self.rows and self.probabilities == self.rows:
            _warn(f"the logits of {data} look like probabilities: every row sums to 1; give what goes into the softmax")
        if self.unknown and task is None:
            _warn(
                f"one output and no labels: taken as a regression; for a binary classifier, add labels of 0 and 1 to "
                f"{data}"
            )
        if spec is not None and net is not None and is_random(spec, net):
            _warn(f"{spec} gives other random weights at every call: this network is not trained; give --weights")


def seen_in(outputs: Outputs, correct: Any = None) -> Seen:
    """Count the rows of some outputs; `correct` says which are right where that is known already."""
    logits = to_numpy(outputs.logits)
    several = logits.shape[1] > 1
    if correct is None and outputs.labels is not None and not outputs.regression:
        correct = to_numpy(outputs.correct)
    sums = logits.sum(axis=1, dtype=np.float64)
    like = (np.abs(sums - 1) < 1e-3) & (logits >= 0).all(axis=1) & (logits <= 1).all(axis=1) if several else [False]
    return Seen(
        rows=len(logits),
        labelled=0 if correct is None else len(correct),
        right=0 if correct is None else int(np.sum(correct)),
        probabilities=int(np.sum(like)),
        unknown=0 if several or outputs.labels is not None else len(logits),
    )


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)
