"""An ONNX model behind ONNX Runtime: named inputs in, any named tensors out, whatever its batch size is."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from qipf._common.budget import GIB, VARIABLE, budget
from qipf._common.errors import check_flag
from qipf._common.optional import require
from qipf.models.sessions.declared import TYPES, Input, declared_shape
from qipf.models.sessions.files import has_external_data, read_model
from qipf.models.sessions.graph import Graph, LogitsAt
from qipf.models.sessions.outputs import choose_output

MOST_SESSIONS = 3
"""Sessions that are kept for one model: each holds its weights once more."""
FOLDER = "session.model_external_initializers_file_folder_path"
_SHARED: WeakKeyDictionary[Any, _Made] = WeakKeyDictionary()


class _Made:
    """What was derived from a model: its graph, and sessions with more outputs."""

    def __init__(self) -> None:
        self.opening = Lock()
        self.graph: Graph | None = None
        self.sessions: dict[tuple[str, ...], Any] = {}
        self.told: set[str] = set()
        self.logits: dict[str, tuple[LogitsAt, str]] = {}
        self.heads: dict[str, str | None] = {}


class OnnxModel:
    """A model that ONNX Runtime runs, of which `qipf.collect` reads logits, features and any named tensor.

    Args:
        source: The path of an `.onnx` file, or an `onnxruntime.InferenceSession`. Files are checked first, as
            SECURITY.md says, which takes the package `onnx`. Tensors that are not outputs of a session take it too.
        output: The name of the output that holds the logits; None for the one called "logits", or else the first that
            has floating-point numbers.
        providers: Where a file runs, as ONNX Runtime names it; None for the CPU. A session has its own.
        as_is: Read the output as it is, as the numbers of a regression are read. Otherwise what stands before a softmax
            or a sigmoid is read, unless the labels of the data are the targets of a regression.

    Raises:
        TypeError: The source is of another kind.
        ValueError: The file cannot be read, or the model has no such output.
    """

    def __init__(
        self, source: Any, *, output: str | None = None, providers: Sequence[str] | None = None, as_is: bool = False
    ) -> None:
        self.as_is = check_flag("as_is", as_is)
        self._providers = list(providers or ["CPUExecutionProvider"])
        self.path: Path | None = None
        if isinstance(source, str | os.PathLike):
            self.path = Path(source)
            self._made = _Made()
            proto = read_model(self.path)
            self._made.graph = Graph(proto)
            self.session = self._open(self._made.graph.with_outputs(()), external=has_external_data(proto))
        elif is_session(source):
            if providers is not None:
                raise ValueError("providers: a session has its own; give a path, or leave providers out")
            self.session = source
            self._made = _SHARED.setdefault(source, _Made())
        else:
            raise TypeError(f"model: expected a path or an InferenceSession, got {type(source).__name__}")
        self.inputs = [
            Input(one.name, np.dtype(TYPES[one.type]) if one.type in TYPES else None, declared_shape(one.shape))
            for one in self.session.get_inputs()
        ]
        self.output, self.floating, self.choices = choose_output(self.session.get_outputs(), output)

    def __repr__(self) -> str:
        return f"OnnxModel({str(self.path) if self.path else self.session!r}, output={self.output!r})"

    def of_numbers(self) -> OnnxModel:
        """The same model with its output read as it is."""
        model = copy(self)
        model.as_is = True
        return model

    @property
    def graph(self) -> Graph:
        """The graph, which names the tensors inside.

        Raises:
            ImportError: The package `onnx` is not installed.
            ValueError: The session does not tell which file it was made from, or the file cannot be read.
        """
        if self._made.graph is None:
            path, content = (getattr(self.session, name, None) for name in ("_model_path", "_model_bytes"))
            if path:
                self._made.graph = Graph(read_model(Path(path)))
            elif content:
                self._made.graph = Graph(read_model(content))
            else:
                raise ValueError("this session does not tell which model it runs; give the path of the .onnx file")
        return self._made.graph

    def find_graph(self) -> Graph | None:
        """The graph, or None where the package `onnx` is not installed or the model's file is not known."""
        try:
            return self.graph
        except (ImportError, ValueError, OSError):
            return None

    @property
    def known_logits(self) -> dict[str, tuple[LogitsAt, str]]:
        """By output, where its logits were found, and what to tell the user about that."""
        return self._made.logits

    @property
    def known_heads(self) -> dict[str, str | None]:
        """By tensor of logits, the one that enters the linear layer behind it; None where there is no such tensor."""
        return self._made.heads

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the tensors that are stored in the graph, whatever they are called."""
        digests = [hashlib.sha256(content).digest() for content in self.graph.stored()]
        return hashlib.sha256(b"".join(digests)).hexdigest()

    def tell(self, message: str, show: bool) -> None:
        """Print one line on standard error, once per model."""
        if show and message not in self._made.told:
            self._made.told.add(message)
            print(f"note: {message}", file=sys.stderr)

    def run(self, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
        """The tensors with these names for one batch, in runs of as many rows as the model takes.

        Args:
            feeds: Every input by name, in its type.
            names: Outputs of the model, or any tensors inside.

        Raises:
            ValueError: There is no such tensor, or ONNX Runtime cannot run the batch; the message is its first line.
        """
        session = self._session(tuple(dict.fromkeys(names)))
        sizes = {one.batch for one in self.inputs if one.batch is not None and one.name in feeds}
        rows = max((len(values) for values in feeds.values() if values.ndim), default=0)
        size = min(sizes) if sizes else max(1, rows)
        parts = [self._run(session, feeds, slice(start, start + size), size, names) for start in range(0, rows, size)]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in dict.fromkeys(names)}

    def look(self, feeds: Mapping[str, np.ndarray], names: Sequence[str], keep: bool = False) -> dict[str, np.ndarray]:
        """Those of the tensors with these names that have one row per input, for a few rows.

        A session is made for it, which is kept for `run` only if `keep` says so.
        """
        size = next((one.batch for one in self.inputs if one.batch is not None), None)
        rows = size or max((len(values) for values in feeds.values() if values.ndim), default=0)
        cut = _padded(feeds, rows)
        session = self._session(tuple(names)) if keep else self._open(self.graph.with_outputs(names), external=True)
        try:
            found = dict(zip(names, session.run(list(names), cut), strict=True))
        except Exception as error:  # the errors of ONNX Runtime share no class
            raise ValueError(f"the ONNX model could not be run: {in_one_line(error)}") from None
        return {key: v for key, v in found.items() if isinstance(v, np.ndarray) and v.ndim and len(v) == rows}

    def _run(
        self, session: Any, feeds: Mapping[str, np.ndarray], rows: slice, size: int, names: Sequence[str]
    ) -> dict[str, np.ndarray]:
        cut = {name: values[rows] if values.ndim else values for name, values in feeds.items()}
        count = max(len(values) for values in cut.values() if values.ndim)
        if count < size:  # the last part of a model whose batch is fixed
            cut = _padded(cut, size)
        try:
            found = session.run(list(dict.fromkeys(names)), {key: np.ascontiguousarray(v) for key, v in cut.items()})
        except Exception as error:  # the errors of ONNX Runtime share no class
            raise ValueError(f"the ONNX model could not be run: {in_one_line(error)}") from None
        result = dict(zip(dict.fromkeys(names), found, strict=True))
        for name, values in result.items():
            if not isinstance(values, np.ndarray) or values.ndim == 0 or len(values) != size:
                shape = f"shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
                raise ValueError(
                    f"{name!r}: expected a tensor with one row per input, {size}, got {shape}; its first dimension is "
                    "not the batch, so name another tensor"
                )
        return {name: values[:count] for name, values in result.items()}

    def _session(self, names: tuple[str, ...]) -> Any:
        """A session with these outputs: the model's own, or one more that is kept."""
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
                kept[extra] = self._open(self.graph.with_outputs(extra), external=True)
            return kept[extra]

    def _open(self, content: bytes, external: bool) -> Any:
        runtime = require("onnxruntime", extra="onnxruntime")
        path = self.path or getattr(getattr(self, "session", None), "_model_path", None)
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # what goes wrong is raised, and need not be printed as well
        if external and path is not None:
            options.add_session_config_entry(FOLDER, str(Path(path).resolve().parent))
        given = getattr(self, "session", None)
        chosen = (
            {"providers": self._providers}
            if given is None
            else {"providers": given.get_providers(), "provider_options": list(given.get_provider_options().values())}
        )
        try:
            return runtime.InferenceSession(content, options, enable_fallback=0, **chosen)
        except Exception as error:  # the errors of ONNX Runtime share no class
            name = str(self.path or "the model")
            raise ValueError(
                f"{name} cannot be run by ONNX Runtime {runtime.__version__}: {in_one_line(error)}"
            ) from None


def _padded(feeds: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """The inputs with exactly this many rows, repeated where there are fewer."""
    size = sum(rows * values[:1].nbytes for values in feeds.values() if values.ndim)
    if size > budget():
        raise ValueError(
            f"the ONNX model takes exactly {rows:,} rows at a time, which are {size / GIB:.3g} GiB, more than the "
            f"{budget() / GIB:.3g} GiB allowed; export it with a dynamic batch, or allow more with {VARIABLE}"
        )
    return {name: np.resize(v, (rows, *v.shape[1:])) if v.ndim else v for name, v in feeds.items()}


def is_session(model: Any) -> bool:
    """Whether this is a session of ONNX Runtime, which need not be installed to ask."""
    return type(model).__module__.startswith("onnxruntime") and hasattr(model, "get_inputs") and hasattr(model, "run")


def as_onnx(model: Any) -> OnnxModel | None:
    """The ONNX model that this is, by itself, by its session or by its path; None where it is something else."""
    if isinstance(model, OnnxModel):
        return model
    if is_session(model) or isinstance(model, str | os.PathLike):
        return OnnxModel(model)
    return None


def check_no_device(device: Any) -> None:
    """Raise ValueError where a device of torch was named for an ONNX model."""
    if device is not None:
        raise ValueError(
            f"device: an ONNX model runs where its session does, not on {str(device)!r}; make the session with "
            "providers=['CUDAExecutionProvider'], or leave device out"
        )


def in_one_line(error: BaseException) -> str:
    """What an error of ONNX Runtime says, without its code."""
    return (" ".join(str(error).split()) or type(error).__name__)[:500]
