"""Run an ONNX model with ONNX Runtime, without torch; any tensor of its graph can be read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import array_api_compat as compat
import numpy as np

from qipf._common.budget import GIB, VARIABLE, budget
from qipf._common.errors import Problem
from qipf._common.optional import require
from qipf.arrays import to_numpy
from qipf.data.batches import INPUTS, Batch, InputSpec, shape_text
from qipf.runners.features import Candidate, FeatureSpec
from qipf.runners.onnx_graph import Graph, LogitsAt, corner
from qipf.runners.runner import Pass, Run, Runner, check_single, has_probabilities, in_rows, log_probabilities

TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}  # fmt: skip
"""NumPy types, keyed by the type names of ONNX Runtime."""
FLOATING = ("tensor(float)", "tensor(float16)", "tensor(double)")
"""The types of outputs that may contain logits."""
MOST_SESSIONS = 3
"""The maximum number of cached sessions per model; each has its own copy of the weights."""
FOLDER = "session.model_external_initializers_file_folder_path"
_SHARED: WeakKeyDictionary[Any, _Made] = WeakKeyDictionary()


class _Made:
    """The graph of a model, sessions with additional outputs, and cached results."""

    def __init__(self) -> None:
        self.opening = Lock()
        self.graph: Graph | None = None
        self.sessions: dict[tuple[str, ...], Any] = {}
        self.told: set[str] = set()
        self.logits: dict[str, LogitsAt] = {}
        self.heads: dict[str, str | None] = {}
        self.notes: dict[str, str] = {}
        self.fingerprint: str | None = None


class OnnxRunner(Runner):
    """Run a model with ONNX Runtime, and read its logits and any named tensor; available as `qipf.OnnxModel`.

    Args:
        source: The path of an `.onnx` file, or an `onnxruntime.InferenceSession`. The package `onnx` is required to
            open a file and to read tensors that are not outputs.
        output: The output that holds the logits; None for the output "logits", or else the first floating-point output
            (one-dimensional outputs come last).
        providers: The execution providers for a file; None for the CPU.
    """

    def __init__(self, source: Any, *, output: str | None = None, providers: Sequence[str] | None = None) -> None:
        self._providers = list(providers or ["CPUExecutionProvider"])
        self.path: Path | None = None
        if isinstance(source, str | os.PathLike):
            self.path = Path(source)
            self._made = _Made()
            self._made.graph = Graph(self.path)
            self.session = self._open(self._made.graph.with_outputs(()))
        elif is_session(source):
            if providers is not None:
                raise Problem("providers", "a session has its own providers", hint="pass a path, or omit providers")
            self.session = source
            self._made = _SHARED.setdefault(source, _Made())
        else:
            raise Problem("model", type(source).__name__, expected="a path or an InferenceSession")
        self.inputs = [
            InputSpec(one.name, np.dtype(TYPES[one.type]) if one.type in TYPES else None, _declared(one.shape))
            for one in self.session.get_inputs()
        ]
        self.output, self.floating, self.choices = _choose_output(self.session.get_outputs(), output)
        self.noted_output = self.output if len(self.floating) > 1 else None

    def __repr__(self) -> str:
        return f"OnnxModel({str(self.path) if self.path else self.session!r}, output={self.output!r})"

    @property
    def graph(self) -> Graph:
        """The graph of the model."""
        if self._made.graph is None:
            path, content = (getattr(self.session, name, None) for name in ("_model_path", "_model_bytes"))
            if not path and not content:
                raise Problem("model", "the file of this session is unknown", hint="pass the .onnx file")
            self._made.graph = Graph(Path(path) if path else bytes(content or b""))
        return self._made.graph

    def find_graph(self) -> Graph | None:
        """Return the graph, or None if it cannot be read."""
        try:
            return self.graph
        except (ImportError, ValueError, OSError):
            return None

    def parse(self, text: str) -> FeatureSpec:
        """Parse a feature specification; tensor names may contain an "@"."""
        spec = FeatureSpec.parse(text, [*self.graph.tensors, *(one.name for one in self.inputs)])
        if spec.form == "input":
            raise Problem("layers", f"{text!r}: tensors have no input", hint="name the input tensor of the layer")
        return spec

    def fingerprint(self) -> str | None:
        """Return `Graph.fingerprint`, or None if no values can be read."""
        if self._made.fingerprint is None and (graph := self.find_graph()) is not None:
            self._made.fingerprint = graph.fingerprint()
        return self._made.fingerprint

    def bind(self, inputs: Any, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a single input by position or several inputs by name, cast to the types of the model."""
        feeds = {one.name: _cast(values, one, number) for one, values in self._named(inputs, number)}
        sizes = {name: len(values) for name, values in feeds.items() if values.ndim}
        if len(set(sizes.values())) != 1:
            raise Problem("data", f"batch {number}: expected inputs with the same number of rows, got {sizes}")
        return (tuple(feeds.values()), {}) if len(feeds) == 1 else ((), feeds)

    @contextmanager
    def reading(self, read: Mapping[str, FeatureSpec], *, raw: bool = False, show: bool = True) -> Iterator[Run]:
        """See `Runner.reading`."""
        at: LogitsAt | None = None
        tensors: dict[str, FeatureSpec] = {}
        if len(self.choices) > 1:
            known = ", ".join(map(repr, self.choices))
            self._note("outputs", f"the logits are read from the first of the outputs {known}; to select another, use "
                       "OnnxModel(path, output=...)")  # fmt: skip

        def run(batch: Batch) -> Pass:
            nonlocal at
            feeds = self._feeds(batch)
            if at is None:
                found = self._find_logits(feeds)
                at = LogitsAt(self.output) if raw else found
                for key, spec in read.items():
                    name = spec.source or self._find_head(found, feeds, spec.form == "whole")
                    if name is not None:
                        form = "mean-last" if not spec.source and spec.form == "mean" else spec.form
                        tensors[key] = FeatureSpec(name, form)
                self._tell(show, raw)
            wanted = (spec.source for spec in tensors.values() if spec.source not in feeds)
            values = {**feeds, **self.run(feeds, [at.tensor, *wanted])}
            logits = _as_logits(at, values[at.tensor])
            if not raw and at == LogitsAt(self.output):
                check_single(logits)
            return Pass(logits, {key: spec.rows(values[spec.source]) for key, spec in tensors.items()})

        yield run

    def output_shape(self, batch: Batch) -> tuple[int, ...]:
        """Return the shape of the output."""
        return self.run(self._feeds(batch.first(2)), [self.output])[self.output].shape

    def candidates(self, batch: Batch) -> tuple[Candidate, ...]:
        """Return the tensors that lie on every path from the inputs to the logits, or else the input table."""
        feeds, graph = self._feeds(batch.first(2)), self.graph
        at = self._find_logits(feeds)
        logits = at.tensor
        classes = in_rows(_as_logits(at, self.run(feeds, [logits])[logits])).shape[1]
        shapes: dict[str, tuple[int, ...]] = {}
        names = [name for name in graph.cuts(logits) if name not in graph.inputs]
        for start in range(0, len(names), 200):  # a network with thousands of layers needs several runs
            part = self.look(feeds, names[start : start + 200])
            shapes |= {name: values.shape for name, values in part.items() if values.dtype.kind == "f"}
        shapes = {name: shape for name, shape in shapes.items() if len(shape) > 1}
        head = next((name for name in graph.head_inputs(logits) if name in shapes), None)
        width = shapes[head][-1] if head is not None else None
        flat = [name for name, shape in shapes.items() if len(shape) == 2 and shape[1] > 1]
        last = head if head in flat else next((name for name in reversed(flat) if shapes[name][1] != classes), None)
        first = graph.first_linear()
        first = first if first in flat and first != logits else head if head in flat else last
        found = []
        if not shapes or (first is None and not any(len(shape) > 2 for shape in shapes.values())):
            return self._inputs(feeds)
        for name, shape in shapes.items():
            signal = len(shape) == 3 and shape[1] == width and shape[2] != width
            layer = "signal" if signal else "linear" if name == first else ""
            enters = FeatureSpec(name, "rows") if name == last else None
            one = Candidate(name, shape, layer, enters, width if name == head else None)
            if not (one.spatial and classes in ((shape[1], shape[3]) if len(shape) == 4 else shape[1:])):
                found.append(one)
        return tuple(found)

    def _inputs(self, feeds: Mapping[str, np.ndarray]) -> tuple[Candidate, ...]:
        """Return the input if it is a single table, for models without hidden layers, such as random forests."""
        tables = [(name, one.shape) for name, one in feeds.items() if one.ndim == 2 and one.dtype.kind == "f"]
        return tuple(Candidate(name, shape, "linear") for name, shape in tables if len(feeds) == 1)

    def head(self, batch: Batch, output: tuple[int, ...]) -> FeatureSpec | None:
        """See `Runner.head`; without linear layers, the input of the model is read if it is a table."""
        feeds = self._feeds(batch.first(2))
        single = all(size == 1 for size in output[2:])
        name = self._find_head(self._find_logits(feeds), feeds, not single)
        if name is not None:
            return FeatureSpec(name, "mean-last" if single else "whole")
        tables = self._inputs(feeds) if self.find_graph() is not None and self.graph.first_linear() is None else ()
        return FeatureSpec(tables[0].name, "rows") if tables else None

    def run(self, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the named tensors for a batch; run the model several times if its fixed batch size is smaller.

        Args:
            feeds: All inputs by name, in the types of the model.
            names: The names of outputs or other tensors.
        """
        names = list(dict.fromkeys(names))
        session = self._session(tuple(names))
        sizes = {one.batch for one in self.inputs if one.batch is not None and one.name in feeds}
        rows = max((len(values) for values in feeds.values() if values.ndim), default=0)
        size = min(sizes) if sizes else max(1, rows)
        parts: list[dict[str, np.ndarray]] = []
        for start in range(0, rows, size):
            part = _cut(feeds, slice(start, start + size))
            part = part if start + size <= rows else _padded(part, size)
            found = _called(session, names, {key: np.ascontiguousarray(values) for key, values in part.items()})
            parts.append(dict(zip(names, found, strict=True)))
            for name, values in parts[-1].items():
                if not isinstance(values, np.ndarray) or values.ndim == 0 or len(values) != size:
                    shape = f"shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
                    raise Problem(
                        "output" if name == self.output else "layers",
                        f"{name!r}: expected a tensor with {size} rows (one per input), got {shape}",
                        hint="its first dimension is not the batch, so name another tensor",
                    )  # fmt: skip
        if len(parts) == 1:
            return {name: values[:rows] for name, values in parts[0].items()}
        return {name: np.concatenate([part[name] for part in parts])[:rows] for name in names}

    def look(self, feeds: Mapping[str, np.ndarray], names: Sequence[str], keep: bool = False) -> dict[str, np.ndarray]:
        """Run the model on a few rows; return those of the named tensors that have one row per input.

        If `keep` is true, cache the session.
        """
        size = next((one.batch for one in self.inputs if one.batch is not None), None)
        rows = size or max((len(values) for values in feeds.values() if values.ndim), default=0)
        session = self._session(tuple(names)) if keep else self._open(self.graph.with_outputs(names))
        found = dict(zip(names, _called(session, names, _padded(feeds, rows)), strict=True))
        return {key: v for key, v in found.items() if isinstance(v, np.ndarray) and v.ndim and len(v) == rows}

    def _find_logits(self, feeds: Mapping[str, np.ndarray]) -> LogitsAt:
        """Return the tensor with the logits, before any final softmax or sigmoid; the result is cached."""
        if self.output not in self._made.logits:
            self._made.logits[self.output] = self._search(feeds)
        return self._made.logits[self.output]

    def _search(self, feeds: Mapping[str, np.ndarray]) -> LogitsAt:
        graph = self.find_graph()
        shape = next(one.shape for one in self.session.get_outputs() if one.name == self.output)
        few = _cut(feeds, slice(1 if len(shape or ()) == 4 else 8))  # per-pixel logits are large
        ending = None if graph is None else graph.ending(self.output)
        if ending is not None:
            found = self.look(few, [self.output, *ending.before])
            for name in ending.before:
                if name not in found or self.output not in found:
                    continue
                after = in_rows(found[self.output])
                for at in (LogitsAt(name, flat=after.ndim == 2), LogitsAt(name, last=True)):
                    if at.agrees(found[name], after, ending.operator):
                        told = f"{self.output!r} is the output of a {ending.operator}, whose input {name!r} "
                        self._note("ending", f"{told}is read as the logits; for regression, pass task='numbers'")
                        return at
        if has_probabilities(corner(in_rows(self.run(few, [self.output])[self.output]))):
            self._note("ending", f"{self.output!r} holds probabilities, so their logarithms are used as the logits; "
                       "energy and max-logit need the values before the softmax")  # fmt: skip
            return LogitsAt(self.output, probabilities=True)
        return LogitsAt(self.output)

    def _find_head(self, at: LogitsAt, feeds: Mapping[str, np.ndarray], maps: bool) -> str | None:
        """Return the input of the layer that computes the logits if it has one row per prediction; otherwise, None.

        If `maps` is true, also look for a convolution that computes per-pixel logits.
        """
        logits, graph = at.tensor, self.find_graph()
        names = [] if graph is None else list(graph.head_inputs(logits))
        if graph is not None and maps and not names:
            return graph.map_input(logits)
        if logits in self._made.heads:
            return self._made.heads[logits]
        few, seen = _cut(feeds, slice(2)), {}
        for name in names:
            found = {key: one.shape for key, one in self.look(few, [logits, name], keep=name == names[0]).items()}
            seen |= found
            if name in found and logits in found and _one_row_each(found[name], found[logits], at.flat):
                self._made.heads[logits] = name
                return name
        self._made.heads[logits] = None
        if names:
            shapes = " or ".join(f"{name!r} of shape {seen[name]}" for name in names if name in seen) or repr(names[0])
            self._note("head", f"no features are read, because the input of the last linear layer, {shapes}, does not "
                       "have one row per prediction; name another tensor with features=...")  # fmt: skip
        return None

    def _note(self, about: str, message: str) -> None:
        """Store a note about this output for the user."""
        self._made.notes[f"{self.output}:{about}"] = message

    def _tell(self, show: bool, raw: bool) -> None:
        """Print the notes about this output to standard error, once per model."""
        for about in ("outputs", "head", *(() if raw else ("ending",))):
            message = self._made.notes.get(f"{self.output}:{about}")
            if show and message is not None and message not in self._made.told:
                self._made.told.add(message)
                print(f"note: {message}", file=sys.stderr)

    def _feeds(self, batch: Batch) -> dict[str, np.ndarray]:
        """Return the inputs of a batch as NumPy arrays, keyed by name; a perturbed batch may contain torch tensors."""
        named = dict(zip((one.name for one in self.inputs), batch.args, strict=False)) if batch.args else batch.kwargs
        return {one.name: np.asarray(to_numpy(named[one.name])).astype(one.dtype, copy=False) for one in self.inputs}

    def _named(self, inputs: Any, number: int) -> list[tuple[InputSpec, Any]]:
        """Return every input of the model with its values."""
        wanted = ", ".join(map(str, self.inputs))
        if isinstance(inputs, Mapping):
            missing = [one.name for one in self.inputs if one.name not in inputs]
            generic = [key for key in inputs if key in INPUTS]
            if len(self.inputs) == 1 and missing and generic:
                return [(self.inputs[0], inputs[generic[0]])]
            if missing:
                raise Problem(
                    "data", f"batch {number}: the ONNX model takes {wanted}, but the keys of the data are "
                    f"{', '.join(map(repr, inputs))}", hint=f"add {', '.join(map(repr, missing))}",
                )  # fmt: skip
            return [(one, inputs[one.name]) for one in self.inputs]
        given = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
        if len(given) != len(self.inputs):
            several = "pass several inputs as a dict keyed by name, or as ((a, b), labels)"
            raise Problem(
                "data", f"batch {number}: the ONNX model takes {wanted}, but the number of inputs in the data is "
                f"{len(given)}", hint=several if len(self.inputs) > 1 else "pass only this input",
            )  # fmt: skip
        return list(zip(self.inputs, given, strict=True))

    def _session(self, names: tuple[str, ...]) -> Any:
        """Return a session with these outputs: the session of the model, or one that is opened if needed and cached."""
        own = {output.name for output in self.session.get_outputs()}
        extra = tuple(sorted(set(names) - own))
        if not extra:
            return self.session
        with self._made.opening:
            kept = self._made.sessions
            if extra not in kept:
                for name in extra:
                    self.graph.check(name)
                while len(kept) >= MOST_SESSIONS:
                    kept.pop(next(iter(kept)))
                kept[extra] = self._open(self.graph.with_outputs(extra))
            return kept[extra]

    def _open(self, content: bytes) -> Any:
        runtime = require("onnxruntime", extra="onnxruntime")
        path = self.path or getattr(getattr(self, "session", None), "_model_path", None)
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # errors are raised, so they need not be printed
        if path is not None:
            options.add_session_config_entry(FOLDER, str(Path(path).resolve().parent))
        given = getattr(self, "session", None)
        chosen = (
            {"providers": self._providers}
            if given is None
            else {"providers": given.get_providers(), "provider_options": list(given.get_provider_options().values())}
        )
        try:
            return runtime.InferenceSession(content, options, enable_fallback=0, **chosen)
        except Exception as error:  # ONNX Runtime errors have no common base class
            name, version = str(self.path or "the model"), runtime.__version__
            raise Problem("model", f"{name} cannot be run by ONNX Runtime {version}: {_in_one_line(error)}") from None


def is_session(model: Any) -> bool:
    """Return True for an ONNX Runtime session."""
    return type(model).__module__.startswith("onnxruntime") and hasattr(model, "get_inputs") and hasattr(model, "run")


def _declared(sizes: Sequence[Any]) -> tuple[int | None, ...]:
    """Return declared sizes, with None for symbolic ones."""
    return tuple(size if isinstance(size, int) and size > 0 else None for size in sizes)


def _choose_output(declared: Sequence[Any], wanted: str | None) -> tuple[str, list[str], list[str]]:
    """Return the output to read, all floating-point outputs, and the outputs from which it was chosen by position."""
    outputs = {output.name: output for output in declared}
    floating = [name for name, output in outputs.items() if output.type in FLOATING]
    if wanted is not None:
        if wanted not in outputs:
            known = ", ".join(map(repr, outputs))
            raise Problem("output", f"the model has no output {wanted!r}", hint=f"outputs of the model: {known}")
        if wanted not in floating:
            raise Problem(
                "output", f"{wanted!r} of type {outputs[wanted].type}", expected="floating-point logits",
                hint=f"floating-point outputs of the model: {', '.join(map(repr, floating)) or 'none'}",
            )  # fmt: skip
        return wanted, floating, []
    if not floating:
        types = ", ".join(f"{name!r} of type {output.type}" for name, output in outputs.items())
        raise Problem(
            "model", f"the ONNX model has no floating-point output for the logits, only {types}",
            hint="export it with such an output; with skl2onnx, pass options={'zipmap': False}",
        )  # fmt: skip
    if "logits" in floating:
        return "logits", floating, []
    rows = [name for name in floating if len(outputs[name].shape) != 1] or floating
    return rows[0], floating, rows


def _as_logits(at: LogitsAt, found: np.ndarray) -> np.ndarray:
    """Convert a tensor to logits in float32 or wider."""
    values = at.moved(found)
    values = values.astype(np.float32) if values.dtype.itemsize < 4 else values
    if at.probabilities:
        values = log_probabilities(values)
    return values.reshape(len(values), -1) if at.flat else values


def _one_row_each(shape: tuple[int, ...], logits: tuple[int, ...], flat: bool) -> bool:
    if not flat and len(logits) == 3 and logits[2] > 1:  # one prediction per token
        return len(shape) == 3 and shape[:2] == logits[:2]
    return len(shape) > 1 and all(size == 1 for size in shape[1:-1])


def _cut(feeds: Mapping[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
    return {name: values[rows] if values.ndim else values for name, values in feeds.items()}


def _padded(feeds: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """Repeat the inputs to fill this number of rows."""
    size = sum(rows * values[:1].nbytes for values in feeds.values() if values.ndim)
    if size > budget():
        found = f"the ONNX model takes exactly {rows:,} rows at a time, which need {size / GIB:.3g} GiB"
        hint = f"export it with a dynamic batch size, or raise the limit of {budget() / GIB:.3g} GiB with {VARIABLE}"
        raise Problem("model", found, hint=hint)
    return {name: np.resize(v, (rows, *v.shape[1:])) if v.ndim else v for name, v in feeds.items()}


def _called(session: Any, names: Sequence[str], feeds: dict[str, np.ndarray]) -> list[Any]:
    try:
        return session.run(list(names), feeds)
    except Exception as error:  # ONNX Runtime errors have no common base class
        raise Problem("data", f"the ONNX model could not be run: {_in_one_line(error)}") from None


def _in_one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:500]


def _cast(values: Any, to: InputSpec, number: int) -> np.ndarray:
    """Cast values to the type of an input; raise if the cast is unsafe or the shape is wrong."""
    array = to_numpy(values) if compat.is_array_api_obj(values) else np.asarray(values)
    found, name = f"batch {number}: input {to.name!r}", to.dtype
    if name is None:
        raise Problem("data", f"{found} has an unsupported type", hint="only numeric tensors are supported")
    wrong = (
        array.dtype.kind not in "biuf"
        or (name.kind == "f" and array.dtype == np.uint8)
        or (name.kind in "iu" and array.dtype.kind == "f")
        or (name.kind == "b" and array.dtype.kind != "b")
    )
    if wrong:
        scale = f"scale it as in training, for example x.astype('{name}') / 255"
        hint = scale if array.dtype == np.uint8 else "convert the data first"
        raise Problem("data", f"{found} takes {name}, but the data has type {array.dtype}", hint=hint)
    _check_shape(array, to, found)
    if array.dtype == name:
        return array
    if name.kind in "iu" and array.size:
        limits, low, high = np.iinfo(name), array.min(), array.max()
        if int(low) < limits.min or int(high) > limits.max:
            raise Problem("data", f"{found} takes {name}, but the data has values from {low} to {high}")
    with np.errstate(over="ignore"):
        cast = array.astype(name)
    if name == np.float16 and np.isinf(cast).any() and not np.isinf(array).any():
        raise Problem("data", f"{found} takes float16, but the data has values beyond ±65,504", hint="scale it first")
    return cast


def _check_shape(array: np.ndarray, to: InputSpec, found: str) -> None:
    if not to.shape:
        return
    wrong = array.ndim != len(to.shape) or any(
        size is not None and size != own for size, own in zip(to.shape[1:], array.shape[1:], strict=True)
    )
    if wrong:
        hint = "add a batch dimension with x[None]" if array.ndim == len(to.shape) - 1 else ""
        expected = shape_text((None, *to.shape[1:]))
        raise Problem("data", f"{found}: expected shape {expected}, got {array.shape}", hint=hint)
