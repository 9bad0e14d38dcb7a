"""Load the model of a command, open the data, infer the task, and run the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import InputError, Problem, UserError, check_whole
from qipf.cli.arguments import QUIET, check_at_least, check_settings, naming, read_settings, usable_device
from qipf.cli.options import ModelOptions
from qipf.data.batches import Batch
from qipf.data.reading import Data, FileSource, listed, no_labels, open_data
from qipf.runners.loading import WEIGHT_FILES, load_model, open_model
from qipf.runners.runner import OUTPUT, Runner
from qipf.scores.default import EFFORTS, default
from qipf.tasks.collect import collect
from qipf.tasks.finding import TASKS, find_task, make_task
from qipf.tasks.outputs import Outputs
from qipf.tasks.task import Task

if TYPE_CHECKING:
    from qipf.scores.base import Scorer

DEFAULT = "default"
LOOK = 8
"""The number of examples read to infer the task."""
COPIED = 100
"""The maximum number of examples compared to detect a copy of DATA."""
OPTIONS = ("effort", "size", "seed")
"""Settings of the recommended scorer."""


def split_model(model: str) -> tuple[str, str | None]:
    """Split FILE.onnx:OUTPUT into the file and the name of the output (or None)."""
    file, found, output = model.partition(".onnx:")
    return (f"{file}.onnx", output) if found and output else (model, None)


def load(model: str, options: ModelOptions, scorer: Scorer | None = None) -> Any:
    """Return the model on the requested device, or the path of a weights file; `scorer` selects the default output."""
    path, output = split_model(model)
    net = load_model(path, options.weights, output)
    noted = scorer.fitted.facts.get(OUTPUT) if scorer is not None and scorer.fitted else None
    if noted is not None and output is None and getattr(net, "noted_output", None) not in (None, noted):
        net = load_model(path, options.weights, noted)
    if options.device is not None:
        if not hasattr(net, "to"):
            raise UserError(
                f"--device: {model} runs only on the CPU; remove the option, or use the Python API, which accepts "
                "ONNX Runtime sessions on other devices"
            )
        net.to(usable_device(options.device))
    return net


def read_task(text: str | None) -> Task | None:
    """Parse the value of --task, such as "tokens:shift=false"."""
    if text is None:
        return None
    name, _, options = (part.strip() for part in text.partition(":"))
    if name not in TASKS:
        raise UserError(f"--task: expected one of {', '.join(TASKS)}, got {name!r}")
    settings = read_settings([one for one in options.split(",") if one], "--task")
    check_settings("--task", name, settings, [field.name for field in fields(TASKS[name])])
    return make_task({"name": name, **settings})


def open_main(
    path: Path, model: str | None, options: ModelOptions, *, labels: bool = True, several: bool = True
) -> Data:
    """Open DATA, with the labels from --labels if `labels` is true; `several` allows several labels per example."""
    check_at_least("--batch-size", options.batch_size, 1)
    runs = model is not None and not model.endswith(WEIGHT_FILES)
    data = open_data(path, options.labels if labels else None, named=runs, several=several)
    found, first = data.labels, options.labels_from
    if first and found is None and labels:
        raise UserError("--labels-from: DATA has no labels; add labels with --labels FILE.npy, or remove the option")
    if first and found is not None:
        if data.files or found.dtype.kind not in "iu" or found.size != len(found):
            raise Problem("data", "--labels-from requires one integer label per example", hint="remove the option")
        if found.min() < first:
            why = f"--labels-from is {first}, but the lowest label is {found.min()}"
            raise Problem("data", why, hint="reduce --labels-from")
        return replace(data, arrays={**data.arrays, "labels": np.asarray(found, dtype=np.int64) - first})
    return data


def open_other(
    path: Path, flag: str, model: str, options: ModelOptions, data: Data, data_path: Path | None = None
) -> Data:
    """Open labelled data in the same form as DATA; if `data_path` is given, raise InputError for a copy of DATA."""
    with naming(data=flag, labels=flag):
        found = open_main(path, model, options, labels=False)
    if data.classes and found.classes and data.classes != found.classes:
        there, here = ", ".join(found.classes), ", ".join(data.classes)
        raise InputError(f"{flag}: expected the class subfolders {here}, as in DATA, got {there} in {path}")
    if found.labels is None:
        raise InputError(f"{flag}: {no_labels(path).message}")
    if data_path is not None:
        if path.samefile(data_path):
            raise InputError(f"{flag}: {path} is DATA itself; choose different data")
        if _is_copy(found, data):
            raise InputError(f"{flag}: {path} begins with the same examples as DATA; choose different data")
    return found


def _is_copy(one: Data, other: Data) -> bool:
    """Return True if two sets start with the same inputs or logits."""
    count = min(COPIED, len(one), len(other))
    if count < 10:  # so few may be equal by chance
        return False
    if one.files and other.files:
        return all(a.read_bytes() == b.read_bytes() for a, b in zip(one.files[:10], other.files[:10], strict=True))
    both = [{**data.named, **data.arrays} for data in (one, other)]
    common = [name for name in both[0] if name in both[1] and name != "labels"]
    return bool(common) and all(np.array_equal(both[0][name][:count], both[1][name][:count]) for name in common)


@dataclass(frozen=True)
class Work:
    """A model, its task, and the settings for reading its data.

    Attributes:
        net: The result of `load`.
        runner: The runner; None if the data contains logits.
        output: The shape of the output of the model, or of the logits in the data.
        features: The module whose output the scorers read, if specified.
        batch_size: Examples per pass.
    """

    net: Any
    runner: Runner | None
    task: Task
    output: tuple[int, ...]
    features: str | None
    batch_size: int

    @classmethod
    def prepare(
        cls, net: Any, data: Data, task: Any = None, features: str | None = None, batch_size: int = 500
    ) -> tuple[Work, Data]:
        """Return a `Work`, and the data bound to the inputs of the model; if `task` is None, it is inferred."""
        if "logits" in data.arrays or not data.has_inputs:
            if "logits" not in data.arrays:
                raise Problem("data", "there are neither inputs nor logits", hint=f"add {listed('inputs')}, or logits")
            if features is not None:
                raise Problem("features", "a module was named, but DATA contains logits", hint="remove the option")
            output = data.arrays["logits"].shape
            if len(output) == 1:
                raise Problem("logits", f"shape {output}", expected="shape (N, C), one column per class or target")
            found = find_task(output, data.labels, task)
            if found.whole or found.name == "labels":
                raise Problem("data", f"the task {found.name} needs a model", hint="provide inputs instead of logits")
            return cls(net, None, found, output, None, batch_size), data.bound(())
        if net is None or isinstance(net, Path):
            raise Problem("model", "a weights file cannot be run", hint="pass an exported program, or DATA with logits")
        runner = open_model(net)
        batch_size = getattr(net, "fixed_batch", None) or batch_size
        bound = data.bound(runner.inputs)
        ids = _are_ids(bound, runner, getattr(task, "name", None) or (task or {}).get("name"))
        few = np.arange(min(LOOK, batch_size, len(bound)))
        first = next(runner.batches(FileSource(bound.take(few), runner.inputs, len(few), ids=ids)))
        output = tuple(runner.output_shape(first))
        found = find_task(output, data.labels, task).resolved(first)
        return cls(net, runner, found, output, features, batch_size), bound

    def source(self, data: Data) -> FileSource:
        """Return the data in batches."""
        inputs, tokens = self.runner.inputs if self.runner else (), self.task.name == "tokens"
        size = min(self.batch_size, self.task.batch_size) if self.task.whole else self.batch_size
        return FileSource(data, inputs, size, ids=tokens)

    def bound(self, data: Data) -> Data:
        """Bind other data to the inputs of the model."""
        return data.bound(self.runner.inputs if self.runner else ())

    def read(
        self, data: Data, features: str | bool | None = None, layers: Any = (), most: int | None = None
    ) -> Outputs:
        """Return the outputs of the model, or the logits in the data as outputs."""
        if "logits" in data.arrays:
            return self.given(data.arrays, range(len(data)) if data.numbers is None else data.numbers.tolist())
        return collect(
            self.runner, self.source(data), task=self.task, features=features, layers=layers, most=most,
            progress=not QUIET.get(),
        )  # fmt: skip

    def given(self, arrays: dict[str, np.ndarray], numbers: Sequence[int]) -> Outputs:
        """Return logits, features and labels as outputs; `numbers` are the row indices in the file."""
        logits, labels = arrays["logits"], arrays.get("labels")
        if logits.shape[1:] != self.output[1:]:
            columns = f"{logits.shape[1]} columns" if logits.ndim == 2 else f"shape {logits.shape}"
            raise Problem("logits", columns, expected=f"{self.output[1]} columns, as in DATA")
        if labels is not None:
            labels = self.task.check(Batch((), {}, labels, None, len(labels), 0, numbers), logits.shape)
        return Outputs(logits, arrays.get("features"), labels, task=self.task.name)

    def fit(self, scorer: Scorer | None, settings: dict[str, Any], data: Data) -> Scorer:
        """Fit `scorer` or, if it is None, the recommended scorer with `settings`."""
        run: dict[str, Any] = {"features": self.features, "progress": not QUIET.get()}
        if self.runner is None:
            outputs = self.read(data.sample(settings.get("size", len(data))))
            others = {key: value for key, value in settings.items() if key != "size"}
            if scorer is not None:
                return scorer.fit(self.net, outputs)
            return default(None, outputs, progress=not QUIET.get(), **others)
        if scorer is not None:
            return scorer.fit(self.net, self.source(data), task=self.task, **run)
        return default(self.net, self.source(data), task=self.task, **run, **settings)


def _are_ids(data: Data, runner: Runner, task: str | None) -> bool:
    """Return True if rows of bytes are token ids, according to the labels or the task.

    Raises:
        Problem: The rows are ambiguous, and the model has an embedding.
    """
    small = [array for array in data.inputs.values() if array.dtype == np.uint8 and array.ndim == 2]
    if not small or any(one.dtype is not None for one in runner.inputs):
        return False
    labels = data.labels
    if task == "tokens" or (labels is not None and labels.ndim == 2 and labels.dtype.kind in "iu" and labels.max() > 1):
        return True
    module = getattr(runner, "module", None)
    if module is not None and any(type(part).__name__.startswith("Embedding") for part in module.modules()):
        hint = "save token ids as int64, or tables as float32"
        raise Problem("data", "rows of bytes could be token ids or a table", hint=hint)
    return False


def identity(scorer: Scorer) -> str:
    """Return the name and a digest of a fitted scorer, as recorded in tables."""
    fitted = scorer._require_fitted()
    digest = hashlib.sha256(json.dumps([scorer.settings(), dict(fitted.facts)], sort_keys=True, default=str).encode())
    for name, values in sorted(fitted.tensors.items()):
        digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return f"{scorer.name}-{digest.hexdigest()[:8]}"


def make_scorer(name: str, settings: dict[str, Any]) -> Scorer | None:
    """Build a scorer; for the recommended scorer, only check the settings and return None."""
    from qipf.scores import SCORERS

    if name != DEFAULT and name not in SCORERS:
        raise UserError(f"--scorer: there is no scorer {name!r}; available: {', '.join([DEFAULT, *sorted(SCORERS)])}")
    known = OPTIONS if name == DEFAULT else SCORERS[name]().settings()
    check_settings("--option", name, settings, known)
    if name != DEFAULT:
        try:
            return SCORERS[name](**settings)
        except (ValueError, TypeError, OverflowError) as error:
            raise UserError(f"--option: {error}") from None
    if settings.get("effort", "standard") not in EFFORTS:
        raise UserError(f"--option: effort: expected one of {', '.join(EFFORTS)}, got {settings['effort']!r}")
    for key, least in (("size", 1), ("seed", 0)):
        with naming(**{key: f"--option: {key}"}):
            check_whole(key, settings.get(key, least), least)
    return None
