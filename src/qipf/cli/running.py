"""Models on the command line: load one, find its task, and read opened data with it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import Problem, UserError
from qipf._common.text import printable
from qipf.cli.arguments import read_settings, usable_device
from qipf.data.batches import Batch
from qipf.data.reading import Data, FileSource
from qipf.runners.loading import WEIGHT_FILES, is_weights, load_model, open_model
from qipf.runners.runner import OUTPUT, Runner
from qipf.scores.default import EFFORTS, default
from qipf.tasks.collect import collect
from qipf.tasks.finding import find_task, make_task
from qipf.tasks.outputs import Outputs
from qipf.tasks.task import Task

if TYPE_CHECKING:
    from pathlib import Path

    from qipf.scores.base import Scorer

DEFAULT = "default"
LOOK = 8
"""Examples that are read to find the task."""
OPTIONS = ("effort", "size", "seed")
"""Settings of the recommended scorer."""


def takes_names(model: str | None) -> bool:
    """Return True if MODEL is run, so that an .npz may name its inputs."""
    return model is not None and not model.endswith(WEIGHT_FILES)


def load(model: str, weights: Path | None, output: str | None, device: str | None, noted: str | None = None) -> Any:
    """Return the model of a command on its device, or the path of a file of weights.

    Args:
        model: What the user wrote.
        weights: A checkpoint for it.
        output: The output of an ONNX model that was asked for.
        device: Where it runs; None leaves it where it is.
        noted: The output that a scorer was fitted to, if the model has several.
    """
    net = load_model(model, weights, output)
    if noted is not None and output is None and getattr(net, "noted_output", None) not in (None, noted):
        net = load_model(model, weights, noted)
    if device is not None:
        if not hasattr(net, "to"):
            raise UserError(f"--device: {model} runs on the CPU here; in Python, give a session with its providers")
        net.to(usable_device(device))
    return net


def read_task(text: str | None) -> Task | None:
    """Read --task: a name, or a name with options such as tokens:shift=false."""
    if text is None:
        return None
    name, _, options = text.partition(":")
    return make_task({"name": name.strip(), **read_settings([one for one in options.split(",") if one], "--task")})


@dataclass(frozen=True)
class Work:
    """A model, its task, and how its data is read.

    Attributes:
        net: What `load` returned; None if the data brings logits.
        runner: What executes it; None likewise.
        task: What one prediction is.
        output: The shape of what the model returns, or of the logits that the data brings.
        features: The module that scorers read, if one was named.
        batch_size: The most examples per pass.
        quiet: No progress bars.
    """

    net: Any
    runner: Runner | None
    task: Task
    output: tuple[int, ...]
    features: str | None
    batch_size: int
    quiet: bool

    @classmethod
    def prepare(
        cls, net: Any, data: Data, task: Any, features: str | None, batch_size: int, quiet: bool
    ) -> tuple[Work, Data]:
        """Return the work, and the data with the inputs that the model takes.

        Args:
            net: What `load` returned.
            data: What was opened.
            task: What --task named, or what a scorer was fitted to; None to find it.
            features: What --features named.
            batch_size: The most examples per pass.
            quiet: No progress bars.
        """
        if "logits" in data.arrays or not data.has_inputs:
            if "logits" not in data.arrays:
                raise Problem("data", "neither inputs nor logits", hint="give inputs (or x), or logits")
            if features is not None:
                raise Problem("features", "they name a module, and the data brings logits", hint="leave them out")
            found = find_task(data.arrays["logits"].shape, data.labels, task)
            if found.whole or found.name == "labels":
                raise Problem("data", f"{found.name} are read from a model", hint="give inputs instead of logits")
            return cls(net, None, found, data.arrays["logits"].shape, None, batch_size, quiet), data.bound(())
        if net is None or is_weights(net):
            raise Problem("model", "a file of weights cannot be run", hint="give a program, or data with logits")
        runner = open_model(net)
        bound = data.bound(runner.inputs)
        ids = _are_ids(bound, runner, getattr(task, "name", None) or (task or {}).get("name"))
        few = np.arange(min(LOOK, batch_size, len(bound)))
        first = next(runner.batches(FileSource(bound.take(few), runner.inputs, len(few), ids=ids)))
        output = tuple(runner.output_shape(first))
        found = find_task(output, data.labels, task).resolved(first)
        return cls(net, runner, found, output, features, batch_size, quiet), bound

    def source(self, data: Data) -> FileSource:
        """Return data as batches of the size that suits the task."""
        inputs, tokens = self.runner.inputs if self.runner else (), self.task.name == "tokens"
        size = min(self.batch_size, self.task.batch_size) if self.task.whole else self.batch_size
        return FileSource(data, inputs, size, ids=tokens)

    def bound(self, data: Data) -> Data:
        """Return other data with the inputs that the model takes."""
        return data.bound(self.runner.inputs if self.runner else ())

    def read(
        self, data: Data, features: str | bool | None = None, layers: Any = (), most: int | None = None, seed: int = 0
    ) -> Outputs:
        """Return the outputs of the model on data, or those that the data brings."""
        if "logits" in data.arrays:
            return self.given(data.arrays, range(len(data)) if data.numbers is None else data.numbers.tolist())
        return collect(
            self.runner, self.source(data), task=self.task, features=features, layers=layers, most=most, seed=seed,
            progress=not self.quiet,
        )  # fmt: skip

    def given(self, arrays: dict[str, np.ndarray], numbers: Sequence[int]) -> Outputs:
        """Return the logits, features and labels that data brings, as outputs; `numbers` are the rows in the file."""
        logits, labels = arrays["logits"], arrays.get("labels")
        if logits.shape[1:] != self.output[1:]:
            expected = f"{self.output[1]} columns, as the model gives for DATA"
            raise Problem("logits", f"{logits.shape[1]}", expected=expected)
        if labels is not None:
            labels = self.task.check(Batch((), {}, labels, None, len(labels), 0, numbers), logits.shape)
        return Outputs(logits, arrays.get("features"), labels, task=self.task.name)

    def fit(self, scorer: Scorer | None, settings: dict[str, Any], data: Data) -> Scorer:
        """Fit a scorer; None is the recommended one, with settings."""
        run: dict[str, Any] = {"features": self.features, "progress": not self.quiet}
        if self.runner is None:
            outputs = self.read(data.sample(settings.get("size", len(data))))
            others = {key: value for key, value in settings.items() if key != "size"}
            if scorer is not None:
                return scorer.fit(self.net, outputs)
            return default(None, outputs, progress=not self.quiet, **others)
        if scorer is not None:
            return scorer.fit(self.net, self.source(data), task=self.task, **run)
        return default(self.net, self.source(data), task=self.task, **run, **settings)


def _are_ids(data: Data, runner: Runner, task: str | None) -> bool:
    """Return True if rows of bytes are token ids, because labels or the task say so.

    Raises:
        Problem: That is unknown, and the model looks something up.
    """
    small = [array for array in data.inputs.values() if array.dtype == np.uint8 and array.ndim == 2]
    if not small or any(one.dtype is not None for one in runner.inputs):
        return False
    labels = data.labels
    if task == "tokens" or (labels is not None and labels.ndim == 2 and labels.dtype.kind in "iu" and labels.max() > 1):
        return True
    module = getattr(runner, "module", None)
    if module is not None and any(type(part).__name__.startswith("Embedding") for part in module.modules()):
        hint = "save token ids as int64, and the numbers of a table as float32"
        raise Problem("data", "rows of bytes, which may be token ids or a table", hint=hint)
    return False


def noted_features(scorer: Scorer, features: str | None) -> str | None:
    """Return the module that --features named; a different one than in fitting triggers a warning."""
    noted = scorer.fitted.facts.get("features") if scorer.fitted else None
    if features is not None and noted is not None and features != noted:
        print(
            f"warning: --features: the scorer was fitted to the output of {printable(noted)!r}, and these are of "
            f"{printable(features)!r}; if they are not the same numbers, the scores mean nothing",
            file=sys.stderr,
        )
    return features


def noted_output(scorer: Scorer) -> str | None:
    """Return the output of an ONNX model that a scorer was fitted to."""
    return scorer.fitted.facts.get(OUTPUT) if scorer.fitted else None


def make_scorer(name: str, settings: dict[str, Any]) -> Scorer | None:
    """Return a scorer from its name and settings; None for the recommended one, whose settings are checked."""
    from qipf.scores import SCORERS

    if name == DEFAULT:
        _check_options(settings)
        return None
    if name not in SCORERS:
        raise UserError(f"--scorer: there is no {name!r}; there are {', '.join([DEFAULT, *sorted(SCORERS)])}")
    known = SCORERS[name]().settings()
    if unknown := set(settings) - set(known):
        raise UserError(
            f"--option: {name} does not take {', '.join(sorted(unknown))}; its settings: {', '.join(known) or 'none'}"
        )
    try:
        return SCORERS[name](**settings)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserError(f"--option: {error}") from None


def _check_options(settings: dict[str, Any]) -> None:
    """Refuse settings that the recommended scorer does not take, before anything is read or run."""
    if unknown := set(settings) - set(OPTIONS):
        raise UserError(
            f"--option: {DEFAULT} does not take {', '.join(sorted(unknown))}; its settings: {', '.join(OPTIONS)}; "
            "name another scorer by --scorer for the settings of that one"
        )
    if settings.get("effort", "standard") not in EFFORTS:
        raise UserError(f"--option: effort: expected one of {', '.join(EFFORTS)}, got {settings['effort']!r}")
    for name, least in (("size", 1), ("seed", 0)):
        value = settings.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
            raise UserError(f"--option: {name}: expected an integer of at least {least}, got {value!r}")
