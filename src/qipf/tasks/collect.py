"""Run a model over data once and keep one row per prediction, for all tasks and runners."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem, check_whole
from qipf._common.progress import track
from qipf.arrays import Array, namespace, to_numpy
from qipf.data.batches import Batch, Source, is_array
from qipf.runners.features import FeatureSpec
from qipf.runners.loading import open_model
from qipf.runners.runner import Run, Runner, check_single
from qipf.tasks.classes import Classes, warn_of_missing_classes
from qipf.tasks.finding import find_task, make_task
from qipf.tasks.outputs import Outputs
from qipf.tasks.pixels import Pixels
from qipf.tasks.task import Draw, Part, Task
from qipf.tasks.views import View, ViewTrial, has_images, with_views

if TYPE_CHECKING:
    import torch

    from qipf.tasks.perturb import Perturb

WAITING = 2**22
"""The maximum number of bytes buffered on the model's device; a few large copies are faster than many small ones."""
MOST_WAITING = 256
"""The maximum number of buffered batches; it limits the overhead of very small batches."""
LOOK = 8
"""The number of dataset items loaded to infer the task; for arrays, a batch of the default size is used."""
NO_DATA = "is the dataset empty, or the iterator exhausted?"


class Start(NamedTuple):
    """An open model, its data and the task."""

    runner: Runner
    source: Source
    task: Task
    first: Batch
    """The first batch, which the source yields again."""

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the model and the task, to be saved."""
        return {**self.runner.facts(), "task": self.task.noted()}

    @contextmanager
    def reading(self, read: Mapping[str, FeatureSpec | View], *, show: bool) -> Iterator[Run]:
        """See `Runner.reading`; `read` may contain views."""
        views = {key: view for key, view in read.items() if isinstance(view, View)}
        plain = {key: spec for key, spec in read.items() if not isinstance(spec, View)}
        with self.runner.reading(plain, raw=self.task.raw, show=show) as run:
            yield with_views(run, self.task, views)


def begin(model: Any, data: Any, *, task: Any = None, device: Any = None, batch_size: int | None = None) -> Start:
    """Open a model, read the first batch of the data, and infer the task."""
    runner = open_model(model, device=device)
    indexed = not isinstance(data, Source) and Source(data, 1).indexed
    in_items = indexed or any(kind.__name__ == "IterableDataset" for kind in type(data).__mro__)
    if batch_size is not None and not in_items:
        raise Problem("batch_size", "has no effect if the data comes in batches", hint="omit it")
    batch_size = runner.fixed if batch_size is None else batch_size
    whole = indexed and (is_array(data) or isinstance(data, tuple | Mapping))
    usual = Classes.batch_size if whole or not indexed else LOOK
    task = "numbers" if task is None and runner.regression else task
    size = usual if task is None else make_task(task).batch_size
    source = Source.of(data, size if batch_size is None else batch_size)
    with runner.peeking():
        raw = source.peek()
    first = None if raw is None else next(runner.batches([raw]), None)
    if first is None:
        raise Problem("data", "none", expected="at least one row", hint=NO_DATA)
    batch = first
    found = find_task(lambda: tuple(runner.output_shape(batch)), first.labels, task).resolved(first)
    if batch_size is None and indexed and found.batch_size != usual:
        source = Source(data, found.batch_size)
        first = first.first(found.batch_size)
    return Start(runner, source, found, first)


def what_to_read(start: Start, features: str | bool | None, layers: str | Iterable[Any] = ()) -> dict[str, Any]:
    """Return what to record, keyed by "features" and "layer:...".

    "features" is missing if `features` is False, or if it is None and the input of the last layer cannot be read.
    `layers` may also contain views and other readings.
    """
    if not isinstance(layers, Iterable):
        raise Problem("layers", f"{layers!r}", expected="names of modules")
    if not isinstance(features, str | bool | None) or features in ("", True):
        raise Problem("features", f"{features!r}", expected="the name of a module or tensor, None or False")
    read = {}
    if isinstance(features, str):
        spec = start.runner.parse(features)
        if start.task.whole and spec.form not in ("mean", "mean-last", "whole"):
            found = f"{features!r} has one row per input, but the task {start.task.name!r} needs one per position"
            raise Problem("features", found, hint=f"pass {spec.source!r}")
        read["features"] = FeatureSpec(spec.source, "whole") if start.task.whole else spec
    elif features is not False:
        spec = start.runner.head(start.first, (2,) * start.task.dimensions)
        if spec is not None:
            read["features"] = spec
    names = (layers,) if isinstance(layers, str) else tuple(layers)
    return read | {f"layer:{one}": _layer(start.runner, one) for one in names}


def _layer(runner: Runner, layer: Any) -> Any:
    if isinstance(layer, str | View):
        return layer if isinstance(layer, View) else runner.parse(layer)
    return layer.spec(runner)


def parts(
    start: Start, read: Mapping[str, FeatureSpec | View], *, progress: bool, words: str = "collecting"
) -> Generator[Part]:
    """Yield the parts of all batches (see `Task.passes`)."""
    with start.reading(read, show=progress) as run:
        batches = start.runner.batches(start.source)
        for batch in track(batches, words, total=start.source.count, show=progress):
            yield from start.task.passes(run, batch)


def collect(
    model: Any,
    data: Any,
    *,
    task: Task | str | None = None,
    features: str | bool | None = None,
    layers: str | Iterable[str] = (),
    most: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    store: torch.device | str | None = "cpu",
    batch_size: int | None = None,
    progress: bool = True,
) -> Outputs:
    """Run a trained model once over data and return logits, features and labels, with one row per prediction.

    The model and all random states are left unchanged, even after an error. If the model ends in a softmax or sigmoid,
    the input of that layer is returned as logits.

    For tasks with one prediction per input, features are averaged over space or the sequence, giving shape (N, D).
    Floating-point inputs are cast to the model's type; half-precision outputs are stored as float32. If a module is
    called several times, its last call is recorded.

    The results are in the order of the data. They are torch tensors for torch modules and for the tasks "tokens" and
    "pixels", and NumPy arrays otherwise.

    Args:
        model: A torch module, an exported program, an ONNX model (an `onnxruntime.InferenceSession`, the path of an
            `.onnx` file, or `qipf.OnnxModel`), a scikit-learn, XGBoost or LightGBM estimator, or a function of arrays,
            such as a JAX function or a Keras model.
        data: An array, a tuple (inputs, labels), a dict of arrays, a dataset, a DataLoader, or an iterable of batches.
            A tuple of two arrays is read as inputs and labels, a list of two arrays as two batches of inputs. Pass
            several inputs as ((a, b), labels), as ((a, b), None) without labels, or as a dict keyed by argument names
            of `forward`. A single input in a dict may also have a common name such as "image".
        task: "classes", "labels", "tokens", "pixels", "numbers", or a task with options such as
            `qipf.tasks.Pixels(tile=512)`; None to infer it from the output and the labels.
        features: The name of the module or tensor to record; None for the input of the layer that computes the logits,
            if any; False for no features.
        layers: Names of additional modules or tensors to record in `Outputs.layers`.
        most: The maximum number of tokens or pixels, drawn at random; None to keep all tokens, or
            at most `qipf.tasks.Pixels.per_image` pixels per image.
        seed: The seed of the random sample.
        device: The device of the inputs; None for the model's device.
        store: The device of the results; None for the model's device.
        batch_size: The number of inputs per batch, unless the data comes in batches; None for 8 (tokens), 4 (pixels) or
            500 (other tasks).
        progress: Show a progress bar.
    """
    start = begin(model, data, task=task, device=device, batch_size=batch_size)
    if most is not None and not start.task.whole:
        raise Problem(
            "most", f"limits tokens and pixels only, but the task is {start.task.name!r}", hint="pass fewer inputs"
        )
    return collect_from(start, features, layers, most=most, seed=seed, store=store, progress=progress)


def collect_from(
    start: Start, features: str | bool | None, layers: str | Iterable[str] = (), *, most: int | None = None,
    seed: int = 0, store: Any = "cpu", progress: bool = True,
) -> Outputs:  # fmt: skip
    """Return the result of `collect` for an open model and its data."""
    check_whole("most", 1 if most is None else most, 1)
    task, rows = start.task, start.source.rows
    if isinstance(task, Pixels) and most is not None and rows:
        task = replace(task, per_image=max(1, most // rows))
    found = parts(start._replace(task=task), what_to_read(start, features, layers), progress=progress)
    outputs, numbers = gather(task, found, Draw(seed), store=store, rows=rows)
    return task.finished(outputs, numbers, most, seed)


def gather(
    task: Task, found: Generator[Part], draw: Draw, *, store: Any, rows: int | None = None, half: bool = False
) -> tuple[Outputs, list[int]]:
    """Return the rows that a task samples from parts, and the index of each input in the user's data."""
    kept, numbers, labels, first = Columns(store, None if task.whole else rows, half), [], None, 0
    batch: Any = None
    with closing(found):  # so that the model is restored as soon as an error occurs here
        for part in found:
            if part.batch is not batch:
                batch, first = part.batch, len(numbers)
                labels = task.check(batch, tuple(part.logits.shape))
                numbers.extend(batch.numbers)
            kept.append(task.sample(part, labels, draw), first, batch)
            del part  # otherwise the logits of two passes would be in memory
    if not numbers:
        raise Problem("data", "none", expected="at least one row", hint=NO_DATA)
    return kept.finish(task), numbers


def collect_augmented(
    start: Start,
    spec: FeatureSpec,
    *,
    draws: int,
    perturb: bool = True,
    own: Sequence[Perturb] = (),
    size: int | None = None,
    memory: int = 2 * 2**30,
    seed: int = 0,
    trial: ViewTrial | None = None,
    progress: bool = True,
) -> Outputs:
    """Return the rows of the inputs and of their perturbed copies.

    For classes, the rows are in bfloat16 on the model's device, and `positions` contains the index of the copy, which
    is 0 for the unperturbed input.

    Args:
        start: The model and labelled data.
        spec: The features to record, stored in `Outputs.layers` for classes, otherwise in `Outputs.features`.
        draws: The number of perturbed copies per input; `own` may add more (see `Perturber.ways`).
        perturb: Use the built-in perturbations.
        own: User-defined functions that perturb inputs.
        size: The maximum number of inputs.
        memory: The maximum size of the rows in bytes. If the data needs more, it is sampled; loaders and iterables are
            truncated.
        seed: The seed of the sample and the perturbations.
        trial: A test of views on some of the images.
        progress: Show a progress bar.

    Raises:
        Problem: The inputs cannot be perturbed.
    """
    import torch

    check_whole("memory", memory, 1)
    check_whole("size", 1 if size is None else size, 1)
    check_whole("seed", seed, 0)
    runner, task, best = start.runner, start.task, isinstance(start.task, Classes)
    generator = torch.Generator((best and runner.device) or "cpu").manual_seed(seed)
    change = task.perturber(generator, own, builtin=perturb)
    ways = change.ways(start.first.first(2).inputs, draws)
    if not ways and perturb:
        change(start.first.first(2).inputs)  # raises
    copies = 1 + len(ways)
    read = {f"layer:{spec}" if best else "features": spec}
    with runner.reading(read, raw=task.raw, show=progress) as run:
        room = max(1, memory // (copies * _bytes_per_input(task, next(task.passes(run, start.first.first(2))), best)))
        source = start.source.sample(min(room, size or room), seed)
        sizes: list[int] = []

        def every() -> Generator[Part]:
            for batch in track(runner.batches(source), "running the model", total=source.count, show=progress):
                if batch.labels is None:
                    raise Problem(
                        "data", f"batch {batch.number} has no labels, but the probe needs them",
                        hint="pass (inputs, labels), or a loader whose batches are (inputs, labels)",
                    )  # fmt: skip
                sizes.append(batch.rows)
                if trial is not None and has_images(batch.inputs):
                    trial.see(run, batch)
                for copy in range(copies):
                    one = batch if copy == 0 else batch.replaced(change(batch.inputs, ways[copy - 1]))
                    for part in task.passes(run, one):
                        if best:
                            _check_features(part, spec)
                        yield part
                        del part  # otherwise the logits of two passes would be in memory

        expected = None if source.rows is None else copies * source.rows
        draw, store = Draw(seed), None if best else "cpu"
        outputs, numbers = gather(task, every(), draw, store=store, rows=expected, half=best)
    outputs = task.finished(outputs, numbers, None, seed)
    if best and not task.raw:
        check_single(outputs.logits)
    if best:
        warn_of_missing_classes(outputs.labels, outputs.logits.shape[1], stacklevel=4)
        groups = np.concatenate([np.tile(np.arange(*ends), copies) for ends in pairwise(np.cumsum([0, *sizes]))])
        positions = np.concatenate([np.repeat(np.arange(copies), count) for count in sizes])
        places = {"groups": torch.from_numpy(groups), "positions": torch.from_numpy(positions)}
        places = {name: values.to(outputs.logits.device) for name, values in places.items()}
        outputs = Outputs.unchecked(**{**vars(outputs), **places, "inputs": sum(sizes)})
    return outputs


def _bytes_per_input(task: Task, part: Part, half: bool) -> int:
    """Return the size in bytes of the rows and labels of one input."""
    rows = task.sample(part, None, Draw(0))
    floats = [rows.logits, *(one for one in (rows.features, *rows.layers.values()) if one is not None)]
    width = sum(one.shape[1] for one in floats) + (0 if rows.summary is None else 8)
    most = math.prod(task.counted(part, None).shape[1:])
    per_input = min(task.per_image, most) if isinstance(task, Pixels) else max(1, len(rows) // part.batch.rows)
    return per_input * ((2 if half else 4) * width + 8)


def _check_features(part: Part, spec: FeatureSpec) -> None:
    """Raise Problem for the first row whose features are NaN or infinite."""
    values = part.features[f"layer:{spec}"]
    xp = namespace(values)
    if not bool(xp.all(xp.isfinite(values))):
        bad = ~np.isfinite(to_numpy(values)).reshape(part.batch.rows, -1).all(axis=1)
        row = int(part.batch.numbers[int(np.argmax(bad))])
        raise Problem(
            "data", f"the features {str(spec)!r} have NaN or infinite values", row=row,
            hint="check this input, choose another module, or run the model in single precision",
        )  # fmt: skip


class Columns:
    """Named arrays that grow batch by batch.

    Args:
        store: The device of torch tensors; None to leave them on their own devices.
        inputs: The number of inputs, to allocate each buffer only once; None if unknown.
        half: Store floating-point values as bfloat16.
    """

    def __init__(self, store: Any, inputs: int | None, half: bool) -> None:
        self._store, self._inputs, self._half = store, inputs, half
        self._kept: dict[str, _Rows] = {}
        self._waiting: list[dict[str, Array]] = []
        self._bytes = self._seen = 0

    def append(self, rows: Outputs, first: int, batch: Batch) -> None:
        """Append the rows of a batch, or of a part of it; `first` is the index of the first input of the batch."""
        found = {name: self._moved(values) for name, values in rows.arrays().items()}
        if "groups" in found:
            found["groups"] = found["groups"] + first
        self._seen = first + batch.rows
        if not self._kept:
            expected = (self._inputs or 0) * (len(rows) // max(1, batch.rows))
            self._kept = {name: _Rows(name, expected) for name in found}
        for name in {*found, *self._kept} - ({*found} & {*self._kept}):
            found = f"only some of the batches have {name} (detected in batch {batch.number})"
            raise Problem("data", found, hint=f"provide {name} in all batches or in none")
        if all(self._is_home(values) for values in found.values()):
            for name, values in found.items():
                self._kept[name].append(values)
            return
        self._waiting.append(found)
        self._bytes += sum(values.nbytes for values in found.values())
        if self._bytes >= WAITING or len(self._waiting) >= MOST_WAITING:
            self._flush()

    def finish(self, task: Task) -> Outputs:
        """Return all rows."""
        self._flush()
        arrays = {name: rows.finish() for name, rows in self._kept.items()}
        return Outputs.of_arrays(arrays, task=task.name, inputs=self._seen if "groups" in arrays else None)

    def _moved(self, values: Array) -> Array:
        if not self._half:
            return values
        import torch

        tensor = values if isinstance(values, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(values))
        return tensor.bfloat16() if tensor.is_floating_point() else tensor

    def _is_home(self, values: Any) -> bool:
        return values.device == place(self._store, values)

    def _flush(self) -> None:
        for name in self._waiting[0] if self._waiting else ():
            given = [columns[name] for columns in self._waiting]
            joined = given[0] if len(given) == 1 else namespace(given[0]).concat(given)
            self._kept[name].append(joined.to(place(self._store, joined)))
        self._waiting.clear()
        self._bytes = 0


class _Rows:
    """Rows in one buffer, which is allocated once if the number of rows is known."""

    def __init__(self, name: str, expected: int) -> None:
        self._name, self._expected, self._count = name, expected, 0
        self._buffer: Any = None

    def append(self, values: Array) -> None:
        """Append a copy of `values` to the buffer."""
        xp, stop = namespace(values), self._count + values.shape[0]
        if self._buffer is None:
            self._buffer = self._empty(xp, max(self._expected, stop), values)
        if tuple(self._buffer.shape[1:]) != tuple(values.shape[1:]):
            expected = f"rows of shape {tuple(self._buffer.shape[1:])} as in earlier batches"
            raise Problem(self._name, f"{tuple(values.shape[1:])}", expected=expected)
        if stop > self._buffer.shape[0]:
            larger = self._empty(xp, max(2 * self._buffer.shape[0], stop), values)
            larger[: self._count] = self._buffer[: self._count]
            self._buffer = larger
        self._buffer[self._count : stop] = values
        self._count = stop

    def finish(self) -> Array:
        """Return the rows without the unused end of the buffer."""
        full = self._buffer.shape[0] == self._count
        return self._buffer if full else namespace(self._buffer).asarray(self._buffer[: self._count], copy=True)

    def _empty(self, xp: Any, rows: int, like: Array) -> Array:
        return xp.empty((rows, *like.shape[1:]), dtype=like.dtype, device=compat.device(like))


def place(store: Any, values: Array) -> Any:
    """Return `store`, or the device of `values` if `store` is None."""
    if store is None:
        return compat.device(values)
    if not compat.is_torch_array(values):
        if str(store) != "cpu":
            raise Problem("store", f"{store!s}", expected="'cpu' or None for a model that returns NumPy arrays")
        return compat.device(values)
    from qipf.runners.torch import as_device

    return as_device("store", store)
