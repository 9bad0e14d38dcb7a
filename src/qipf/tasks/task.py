"""The interface of a task, which defines a prediction, checks labels and converts model outputs to rows.

A task is a frozen dataclass whose fields are its options. It does not depend on the runner of the model.
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
    from torch import Tensor

    from qipf.tasks.perturb import Perturb, Perturber


class Part(NamedTuple):
    """The result of running the model on one batch, or on one tile of its images.

    Attributes:
        logits: The logits, in the shape that the task expects.
        tile: The `qipf.tasks.pixels.Tile` of the logits; None for other tasks.
        chosen: The tokens to keep, as `qipf.tasks.tokens.Chosen`; None for other tasks.
    """

    batch: Batch
    logits: Array
    features: Mapping[str, Array]
    tile: Any = None
    chosen: Any = None


class Draw:
    """Random numbers for one pass over the data."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.held: Any = None
        self._generator: Any = None

    @property
    def generator(self) -> Any:
        """A torch generator on the CPU."""
        if self._generator is None:
            import torch

            self._generator = torch.Generator().manual_seed(self.seed)
        return self._generator


class ProbeSettings(NamedTuple):
    """Settings of the recommended probe of a task.

    Attributes:
        copies: The number of perturbed copies per input; None if `effort` of `qipf.default` sets it.
        reading: "best" for the runner's default features, "head" for the input of the layer that computes the logits.
        settings: Arguments of `qipf.Probe`.
    """

    copies: int | None
    reading: Literal["best", "head"]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Task(ABC):
    """The definition of one prediction.

    Attributes:
        name: The name used in files, plans and arguments.
        noun: The word for one prediction in messages.
        independent: True if predictions are independent, as statistical guarantees require.
        judged_by: "errors" if scores are evaluated by error detection, "intervals" for regression.
        batch_size: The default number of inputs per batch.
        raw: Read the output itself instead of the input of a final softmax or sigmoid.
        dimensions: The number of output dimensions.
        whole: Read features at every position.
        probe: Settings of the recommended probe; None for regression.
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
        """Return True if an output of this shape and these labels belong to this task."""

    @abstractmethod
    def check(self, batch: Batch, output: tuple[int, ...]) -> Array | None:
        """Return the checked labels of a batch, or None if there are none; `output` is the shape of the logits."""

    def sample(self, part: Part, labels: Array | None, draw: Draw) -> Outputs:
        """Return rows for fitting or evaluating a scorer, by default one per input."""
        del draw
        layers = {key.removeprefix("layer:"): v for key, v in part.features.items() if key.startswith("layer:")}
        labels = None if labels is None else namespace(part.logits).asarray(labels)
        features = part.features.get("features")
        return Outputs.unchecked(part.logits, features=features, labels=labels, layers=layers, task=self.name)

    def blocks(self, part: Part) -> Iterator[tuple[Any, Outputs]]:
        """Yield all predictions in blocks, each as a pair: an index into the array of predictions, and the outputs."""
        yield slice(None), self.sample(part, None, Draw(0))

    def resolved(self, batch: Batch) -> Task:
        """Return the task with unset options inferred from the first batch."""
        del batch
        return self

    def passes(self, run: Run, batch: Batch) -> Iterator[Part]:
        """Run the model on a batch and yield the results in parts.

        To save memory, the caller should delete each part before requesting the next.
        """
        found = run(batch)
        yield Part(batch, self.arranged(found.logits), found.features)

    def arranged(self, logits: Array) -> Array:
        """Return the output of the model in the shape that the task expects."""
        shape = tuple(logits.shape)
        if len(shape) == 1:
            return logits[:, None]
        if len(shape) > 2 and all(size == 1 for size in shape[2:]):
            return namespace(logits).reshape(logits, (shape[0], -1))
        if len(shape) != 2:
            expected = f"(N, C) for the task {self.name!r}"
            raise Problem("model", f"an output of shape {shape}", expected=expected, hint=FORMS)
        return logits

    def counted(self, part: Part, labels: Array | None) -> Array:
        """Return a mask that is False for padding and ignored labels."""
        del labels
        return np.ones(part.logits.shape[0], dtype=bool)

    def predicted(self, outputs: Outputs) -> Array:
        """Return the prediction of each row, (M,)."""
        return predicted_classes(outputs.logits)

    def aligned(self, labels: Array | None) -> Array | None:
        """Return checked labels in the shape of the predictions."""
        return labels

    def check_finite(self, part: Part) -> None:
        """Raise Problem for the first prediction whose logits are NaN or infinite."""
        bad = ~np.isfinite(to_numpy(part.logits))
        if bad.any():
            index = np.argwhere(bad)[0].tolist()
            raise Problem(
                "logits", f"NaN or infinite values{self._position(part, index[1:])}",
                row=int(part.batch.numbers[index[0]]),
                hint="check this input, or run the model in single precision",
            )  # fmt: skip

    def _position(self, part: Part, index: Sequence[int]) -> str:
        del part, index
        return ""

    def finished(self, outputs: Outputs, numbers: Sequence[int], most: int | None, seed: int) -> Outputs:
        """Return the collected rows, possibly after further checks.

        If the task is `whole`, at most `most` rows are returned, chosen at random and kept in order.
        """
        del numbers
        if most is None or not self.whole or len(outputs) <= most:
            return outputs
        return outputs[np.sort(np.random.default_rng(seed).choice(len(outputs), most, replace=False))]

    def perturber(self, generator: Any, own: Sequence[Perturb], *, builtin: bool = True) -> Perturber:
        """Return a perturber that preserves the labels of its inputs."""
        from qipf.tasks.perturb import Perturber

        return Perturber(generator, own, builtin=builtin, in_place=self.name if self.whole else "")

    def question(self, outputs: Outputs) -> Outputs:
        """Return the rows for fitting a probe, labelled with classes or correctness."""
        return outputs

    def columns(self, scored: Scored, scorer: Any) -> dict[str, np.ndarray]:
        """Return the scores of a batch as table columns."""
        del scorer
        columns: dict[str, np.ndarray] = {"row": np.asarray(scored.numbers)}
        columns["predicted"] = to_numpy(scored.predicted)
        columns["uncertainty"] = to_numpy(scored.uncertainty)
        if scored.labels is not None:
            columns |= {"label": to_numpy(scored.labels), "correct": to_numpy(scored.correct)}
        return columns

    def noted(self) -> dict[str, Any]:
        """Return the name and the options, to be saved."""
        return {"name": self.name, **dataclasses.asdict(self)}


FORMS = (
    "supported integer labels: (N,) for outputs (N, C), (N, T) for (N, T, V), (N, H, W) for (N, C, H, W), "
    "(N, L) for (N, L)"
)
"""The supported labels and outputs, for error messages."""


def as_tensor(values: Array) -> Tensor:
    """Convert an array to a torch tensor."""
    import torch

    return values if isinstance(values, torch.Tensor) else torch.from_numpy(np.require(values, requirements=["W", "C"]))


def squeezed(labels: Array) -> Array:
    """Return labels (N, 1) as (N,), and other labels unchanged."""
    return labels[:, 0] if len(labels.shape) == 2 and labels.shape[1] == 1 else labels
