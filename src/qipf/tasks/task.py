"""The interface of a task: what one prediction is, how its labels are checked, and how passes become rows.

A task is a frozen dataclass whose fields are its options. It knows nothing about what executes the model.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, namespace, to_numpy
from qipf.data.batches import Batch
from qipf.runners.runner import Run
from qipf.tasks.outputs import Outputs, Scored, predicted_classes

if TYPE_CHECKING:
    from qipf.tasks.perturb import Perturb, Perturber
    from qipf.tasks.pixels import Tile


class Part(NamedTuple):
    """What one pass left, or one tile of it.

    Attributes:
        batch: What was read.
        logits: As the task expects them.
        features: By the key of what was read.
        tile: For pixels, where the logits lie in the images.
        chosen: For tokens, which of them count; found before the pass, so that a GPU does not wait.
    """

    batch: Batch
    logits: Array
    features: Mapping[str, Array]
    tile: Tile | None = None
    chosen: Any = None


class Draw:
    """The random numbers of one read of the data.

    Args:
        seed: Of the sample.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.held: Any = None
        self._generator: Any = None

    @property
    def generator(self) -> Any:
        """A generator of torch on the CPU."""
        if self._generator is None:
            import torch

            self._generator = torch.Generator().manual_seed(self.seed)
        return self._generator


class ProbeSettings(NamedTuple):
    """How the recommended probe of a task is fitted.

    Attributes:
        copies: Perturbed copies per input; None if the effort decides.
        reading: What the head reads: the "best" layer for it, or what enters the "head" of the model.
        half: Keep what the head reads in bfloat16.
        settings: Of `qipf.Probe`.
    """

    copies: int | None
    reading: Literal["best", "head"]
    half: bool
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Task(ABC):
    """What one prediction is.

    Attributes:
        name: The word for it in files, plans and arguments.
        noun: What one prediction is called.
        independent: True if predictions are independent of each other, so that promises about them can hold.
        judged_by: How scores are judged: by the errors that they find, or by the intervals that they make.
        batch_size: The default number of inputs per batch.
        raw: The output of the model is read as it is, and not as logits.
        dimensions: Of the output of the model.
        whole: Features are read at every position, and not reduced to one row per input.
        probe: How the recommended probe is fitted; None for a task without classes.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    independent: ClassVar[bool] = True
    judged_by: ClassVar[Literal["errors", "intervals"]] = "errors"
    batch_size: ClassVar[int] = 500
    raw: ClassVar[bool] = False
    dimensions: ClassVar[int] = 2
    whole: ClassVar[bool] = False
    probe: ClassVar[ProbeSettings | None] = None

    @classmethod
    @abstractmethod
    def fits(cls, output: tuple[int, ...], labels: Array | None) -> bool:
        """Return True if an output of this shape with these labels is of this task."""

    @abstractmethod
    def check(self, batch: Batch, output: tuple[int, ...]) -> Array | None:
        """Return the labels of a batch as the task counts them, or None if it has none.

        Args:
            batch: What was read.
            output: The shape of the logits of the first part.

        Raises:
            Problem: A label does not fit; it names the row in the user's data.
        """

    def sample(self, part: Part, labels: Array | None, draw: Draw) -> Outputs:
        """Return rows to fit a scorer to, or to judge it by; `groups` are inputs of the batch. Here, one per input."""
        del draw
        layers = {key.removeprefix("layer:"): v for key, v in part.features.items() if key.startswith("layer:")}
        labels = None if labels is None else namespace(part.logits).asarray(labels)
        features = part.features.get("features")
        return Outputs.unchecked(part.logits, features=features, labels=labels, layers=layers, task=self.name)

    def blocks(self, part: Part) -> Iterator[tuple[Any, Outputs]]:
        """Yield all predictions in blocks: an index into an array of the shape of the predictions, and their rows."""
        yield slice(None), self.sample(part, None, Draw(0))

    def resolved(self, batch: Batch) -> Task:
        """Return the task with the options that the first batch decides."""
        del batch
        return self

    def passes(self, run: Run, batch: Batch) -> Iterator[Part]:
        """Run the model on a batch; drop each part before the next one is asked for."""
        found = run(batch)
        yield Part(batch, self.arranged(found.logits), found.features)

    def arranged(self, logits: Array) -> Array:
        """Return the output of the model in the shape that the task reads."""
        shape = tuple(logits.shape)
        if len(shape) == 1:
            return logits[:, None]
        if len(shape) > 2 and all(size == 1 for size in shape[2:]):
            return namespace(logits).reshape(logits, (shape[0], -1))
        if len(shape) != 2:
            raise Problem("model", f"an output of shape {shape}", expected=f"(N, C) for {self.name}", hint=FORMS)
        return logits

    def counted(self, part: Part, labels: Array | None) -> Array:
        """Return which predictions of a batch exist and have a label that counts, in the shape of the predictions."""
        del labels
        return np.ones(part.logits.shape[0], dtype=bool)

    def predicted(self, outputs: Outputs) -> Array:
        """Return the predictions of rows, (M,)."""
        return predicted_classes(outputs.logits)

    def aligned(self, labels: Array | None) -> Array | None:
        """Return checked labels in the shape of the predictions."""
        return labels

    def check_finite(self, part: Part) -> None:
        """Raise Problem with the first prediction whose logits are NaN or infinite, if there is one."""
        bad = ~np.isfinite(to_numpy(part.logits))
        if bad.any():
            index = np.argwhere(bad)[0].tolist()
            raise Problem(
                "logits", f"NaN or infinite values{self._position(part, index[1:])}",
                row=int(part.batch.numbers[index[0]]),
                hint="check what the model does with this input, or run it in single precision",
            )  # fmt: skip

    def _position(self, part: Part, index: Sequence[int]) -> str:
        del part, index
        return ""

    def finished(self, outputs: Outputs, numbers: Sequence[int], most: int | None, seed: int) -> Outputs:
        """Return collected rows after a last check, or a sample of at most `most` of them."""
        del numbers, most, seed
        return outputs

    def perturber(self, generator: Any, own: Sequence[Perturb], *, builtin: bool = True) -> Perturber:
        """Return what perturbs inputs whose labels stay as they are."""
        from qipf.tasks.perturb import Perturber

        return Perturber(generator, own, builtin=builtin, in_place=self.name if self.whole else "")

    def question(self, outputs: Outputs) -> Outputs:
        """Return what a head learns: the classes of the rows, or whether each is right."""
        return outputs

    def columns(self, scored: Scored, scorer: Any) -> dict[str, np.ndarray]:
        """Return the columns of a table of scores, one row per prediction, or per image for pixels.

        Args:
            scored: One batch.
            scorer: What scored it.
        """
        del scorer
        columns: dict[str, np.ndarray] = {"row": np.asarray(scored.numbers)}
        columns["predicted"] = to_numpy(scored.predicted)
        columns["uncertainty"] = to_numpy(scored.uncertainty)
        if scored.labels is not None:
            columns |= {"label": to_numpy(scored.labels), "correct": to_numpy(scored.correct)}
        return columns

    def noted(self) -> dict[str, Any]:
        """Return the name and the options, as a file keeps them."""
        return {"name": self.name, **dataclasses.asdict(self)}


FORMS = (
    "supported are outputs (N, C) with labels (N,), (N, L) with labels (N, L) of 0 and 1, (N, T, V) with tokens "
    "(N, T), (N, C, H, W) with pixels (N, H, W), and (N, k) with floating-point targets"
)
"""The forms of outputs and labels, for the error about data that fits none of them."""


def squeezed(labels: Array) -> Array:
    """Return labels (N, 1) as (N,), others as they are."""
    return labels[:, 0] if len(labels.shape) == 2 and labels.shape[1] == 1 else labels
