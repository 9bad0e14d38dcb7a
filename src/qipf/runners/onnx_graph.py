"""Read an untrusted ONNX file, and find in its graph the logits and the input of the layer that computes them.

Nothing outside the folder of the file is opened, and no code is loaded.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qipf._common.errors import Problem, first_line
from qipf._common.optional import require
from qipf.runners.runner import CORNER, computes

_PASS = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Cast", "Dropout", "Transpose")
"""Operators that change at most the shape, order or type of the values."""
_SAME_ORDER = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that change at most the shape."""
_AFTER_MAPS = ("Identity", "Cast", "Dropout", "Add", "Mul", "Div", "Sub", "Resize", "Upsample")
"""Operators that may follow the convolution that computes per-pixel logits."""
_LINEAR = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")
_SHAPES = ("Shape", "Size")
"""Operators whose output depends only on shapes and therefore counts as constant."""
_FLOATS = (1, 10, 11)
"""The ONNX codes of the tensor types float, float16 and double."""

CHUNK = 2**20
"""The number of weights that are hashed at a time."""
LARGEST = 2**31 - 1
"""The maximum size of an ONNX file in bytes; larger models store their weights in separate files."""
STANDARD = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.nchwc")
"""Operator domains that ONNX Runtime implements; others need a native library."""


class Ending(NamedTuple):
    """The tensors that may be the logits, most likely first, and the operator that follows them."""

    before: tuple[str, ...]
    operator: str


class LogitsAt(NamedTuple):
    """The tensor with the logits of a model."""

    tensor: str
    probabilities: bool = False
    """True if the tensor contains probabilities, whose logarithms are the logits."""
    flat: bool = False
    """True if the values must be reshaped to one row of logits per input."""
    last: bool = False
    """True if the tensor has shape (N, H, W, C), because a transposition follows."""

    def moved(self, values: np.ndarray) -> np.ndarray:
        """Return the values with classes on the axis that tasks expect."""
        return np.moveaxis(values, 3, 1) if self.last else values

    def agrees(self, before: np.ndarray, after: np.ndarray, operator: str) -> bool:
        """Return True if the operator maps `before` to `after`, up to rounding; for images, compare only a corner."""
        if before.size != after.size or before.dtype.kind != "f" or (self.last and not before.ndim == after.ndim == 4):
            return False
        values = self.moved(before)
        if after.ndim == 4 and values.shape != after.shape:
            return False
        values, expected = (corner(one).astype(np.float64) for one in (values.reshape(after.shape), after))
        return computes(operator, values, expected)


class Graph:
    """The graph of an ONNX model.

    Args:
        source: The file, or the content of a file without external weights.
    """

    def __init__(self, source: Path | bytes) -> None:
        self._model = model = read_model(source)
        self._folder = source.parent if isinstance(source, Path) else None
        graph = model.graph
        self.outputs = [output.name for output in graph.output]
        self._maker = {name: node for node in graph.node for name in node.output if name}
        stored = {tensor.name for tensor in graph.initializer} | {part.values.name for part in graph.sparse_initializer}
        self.inputs = [one.name for one in graph.input if one.name not in stored]
        self._constant = set(stored)
        for node in graph.node:  # in topological order
            if node.op_type in _SHAPES or all(not name or name in self._constant for name in node.input):
                self._constant |= set(node.output)

    @property
    def tensors(self) -> list[str]:
        """The names of the tensors that depend on the inputs, in order of computation."""
        return [name for name in self._maker if name not in self._constant]

    def check(self, name: str) -> None:
        """Raise Problem unless the tensor exists and depends on the inputs."""
        if name in self._maker and name not in self._constant:
            return
        near = difflib.get_close_matches(name, self.tensors, n=3, cutoff=0.0)
        raise Problem(
            "layers", f"the ONNX model has no tensor {name!r} that depends on the inputs",
            hint=f"did you mean {' or '.join(map(repr, near))}?",
        )  # fmt: skip

    def with_outputs(self, names: Iterable[str]) -> bytes:
        """Return the serialised model with these tensors as additional outputs."""
        added = type(self._model)()
        for name in names:
            if name not in self.outputs:
                added.graph.output.add().name = name
        return self._model.SerializeToString() + added.SerializeToString()  # protobuf merges concatenated messages

    def ending(self, output: str) -> Ending | None:
        """Return the final softmax or sigmoid and the candidates for its input; None if there is neither.

        For a softmax written as exp(x - max) / sum, the candidates are x and x - max.
        """
        node = self._source(output)
        if node is None:
            return None
        if node.op_type in ("Softmax", "LogSoftmax", "Sigmoid"):
            return Ending((node.input[0],), node.op_type)
        powers = self._source(node.input[0]) if node.op_type == "Div" else None
        if powers is None or powers.op_type != "Exp":
            return None
        inner = self._maker.get(powers.input[0])
        outer = (inner.input[0],) if inner is not None and inner.op_type == "Sub" else ()
        return Ending((*outer, powers.input[0]), "Softmax")

    def head_inputs(self, logits: str) -> tuple[str, ...]:
        """Return the input of the linear layer that computes the logits, then tensors that differ only in shape.

        The tuple is empty if no linear layer computes the logits.
        """
        node = self._source(logits, ordered=True)
        while node is not None and node.op_type in ("Add", "Mul", "Div", "Sub"):  # a bias or a temperature
            moving = [name for name in node.input if name not in self._constant]
            node = self._source(moving[0], ordered=True) if len(moving) == 1 else None
        if node is None or node.op_type not in _LINEAR or node.input[1] not in self._constant:
            return ()
        found = [node.input[0]]
        while (node := self._maker.get(found[-1])) is not None and node.op_type in _SAME_ORDER:
            found.append(node.input[0])
        return tuple(name for name in found if name not in self.inputs and name not in self._constant)

    def map_input(self, logits: str) -> str | None:
        """Return the input of the convolution that computes per-pixel logits, even if they are upsampled later."""
        node = self._maker.get(logits)
        while node is not None and node.op_type in _AFTER_MAPS:
            moving = [name for name in node.input if name and name not in self._constant]
            node = self._maker.get(moving[0]) if len(moving) == 1 else None
        if node is None or node.op_type not in ("Conv", "ConvTranspose", "FusedConv"):
            return None
        fixed = node.input[1] in self._constant and node.input[0] not in self.inputs
        return node.input[0] if fixed and node.input[0] in self._maker else None

    def first_linear(self) -> str | None:
        """Return the output of the first linear layer, if any."""
        for node in self._model.graph.node:
            moving = [name for name in node.input if name not in self._constant]
            if node.op_type in _LINEAR and len(moving) == 1 and moving[0] == node.input[0]:
                return node.output[0]
        return None

    def cuts(self, target: str) -> list[str]:
        """Return the tensors that lie on every path from the inputs to `target`, in order.

        They are the hidden states of the network; tensors inside branches, such as attention maps, are excluded.
        """
        needed = self._needed(target)
        nodes = [node for node in self._model.graph.node if any(name in needed for name in node.output)]
        last = {name: index for index, node in enumerate(nodes) for name in node.input if name in needed}
        open_tensors = {name for name in self.inputs if name in needed}
        found = []
        for index, node in enumerate(nodes):
            open_tensors |= {name for name in node.output if name in needed}
            open_tensors = {name for name in open_tensors if last.get(name, -1) > index or name == target}
            if len(open_tensors) == 1:
                found.append(next(iter(open_tensors)))
        return [name for name in dict.fromkeys(found) if name in self._maker and name != target]

    def kernels(self) -> dict[str, np.ndarray]:
        """Return the floating-point tensors in the file that have at least two dimensions larger than 1, by name."""
        from onnx import numpy_helper

        stored = [tensor for tensor in self._model.graph.initializer if tensor.data_type in _FLOATS]
        return {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in stored
            if sum(size > 1 for size in tensor.dims) > 1 and not tensor.external_data  # a bias may be (1, width)
        }

    def fingerprint(self) -> str | None:
        """Return two digests of the stored values, separated by a colon, or None if there are no values.

        The first covers all tensors and is empty if some are in other files. The second covers floating-point weights
        regardless of names and order, and is equal for most exports of the same network.
        """
        from onnx import numpy_helper

        constants = [part.t for node in self._model.graph.node if node.op_type == "Constant" for part in node.attribute]
        tensors = [tensor for tensor in (*self._model.graph.initializer, *constants) if tensor.data_type]
        contents = []
        if not any(tensor.external_data for tensor in tensors):
            arrays = map(numpy_helper.to_array, tensors)
            contents = sorted(repr(v.tolist()).encode() if v.dtype.hasobject else v.tobytes() for v in arrays)
        weights: set[tuple[int, int]] = set()
        for tensor in _tensors(self._model):
            if tensor.data_type in _FLOATS:
                weights.add(_unordered(numpy_helper.to_array(tensor, str(self._folder or ""))))
        for graph in _graphs(self._model):
            weights |= {_unordered(np.array(part.floats)) for node in graph.node for part in node.attribute}
        exact = b"".join(hashlib.sha256(content).digest() for content in contents)
        several = repr(sorted(one for one in weights if one[0] > 1)).encode()
        found = (hashlib.sha256(exact).hexdigest() if exact else "", hashlib.sha256(several).hexdigest())
        return ":".join(found) if exact or len(several) > 2 else None

    def operator(self, name: str) -> str:
        """Return the operator that computes a tensor."""
        return self._maker[name].op_type

    def _source(self, name: str, ordered: bool = False) -> Any:
        """Return the node that computes the values of a tensor; if `ordered`, stop at a node that moves rows."""
        node = self._maker.get(name)
        while node is not None and node.op_type in _PASS and not (ordered and _moves_rows(node)):
            node = self._maker.get(node.input[0])
        return node

    def _needed(self, target: str) -> set[str]:
        """Return `target` and the tensors that it depends on, without constants."""
        found, waiting = set(), [target]
        while waiting:
            name = waiting.pop()
            if name in found or name in self._constant or not name:
                continue
            found.add(name)
            waiting += self._maker[name].input if name in self._maker else ()
        return found


def _moves_rows(node: Any) -> bool:
    """Return True if a node is a transposition that moves the first dimension."""
    order = next((list(part.ints) for part in node.attribute if part.name == "perm"), [])
    return node.op_type == "Transpose" and order[:1] != [0]


def _unordered(values: np.ndarray) -> tuple[int, int]:
    """Return the number of values and the sum of their hashes."""
    total, values = 0, values.ravel()
    for start in range(0, values.size, CHUNK):
        bits = values[start : start + CHUNK].astype(np.float32).view(np.uint32).astype(np.uint64)
        for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
            bits = (bits ^ bits >> np.uint64(29)) * np.uint64(factor)
        total += int((bits ^ bits >> np.uint64(32)).sum(dtype=np.uint64))
    return values.size, total % 2**64


def corner(values: np.ndarray) -> np.ndarray:
    """Crop per-pixel logits (N, C, H, W) for checks; return other logits unchanged."""
    return values[:, :, :CORNER, :CORNER] if values.ndim == 4 else values


def read_model(source: Path | bytes) -> Any:
    """Parse and check an ONNX file, or the content of a file without external weights, before ONNX Runtime opens it."""
    onnx = require("onnx", extra="onnxruntime")
    name = str(source) if isinstance(source, Path) else "the model"
    content = _content(source) if isinstance(source, Path) else source
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # implementations of protobuf raise different errors
        raise Problem(
            "model", f"{name} is not an ONNX model, or it is damaged ({first_line(error)})", hint="copy it again"
        ) from None
    if not model.HasField("graph") or not model.graph.node or not model.graph.output:
        raise Problem("model", f"{name} is not an ONNX model, or it is damaged (it has no graph)", hint="copy it again")
    _check_files(model, name, source.parent if isinstance(source, Path) else None)
    _check_domains(model, name)
    return model


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    size = path.stat().st_size
    if size > LARGEST:
        raise Problem(
            "model", f"{path} takes up {size / 2**30:.3g} GiB, but an ONNX file may not exceed 2 GiB",
            hint="save its weights in another file: onnx.save(model, path, save_as_external_data=True)",
        )  # fmt: skip
    return path.read_bytes()


def _check_files(model: Any, name: str, folder: Path | None) -> None:
    """Raise Problem unless every external weights file exists in `folder` (None if unknown) after resolving links."""
    for tensor in _tensors(model):
        if tensor.data_location != 1 and not tensor.external_data:
            continue
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        if folder is None:
            raise Problem(
                "model", f"{name} stores the weights {tensor.name!r} in {location!r}, but the folder of the model is "
                "unknown", hint="pass the path of the model",
            )  # fmt: skip
        inside = folder.resolve()
        file = (inside / location).resolve() if location and "\0" not in location else inside
        if not location or Path(location).is_absolute() or inside not in file.parents:
            raise Problem(
                "model", f"{name} stores the weights {tensor.name!r} in {location!r}, outside its own folder",
                hint="put the weights next to the model",
            )  # fmt: skip
        if not file.is_file():
            raise Problem(
                "model",
                f"{name} stores the weights {tensor.name!r} in {location!r}, which does not exist",
                hint="copy that file, too",
            )


def _check_domains(model: Any, name: str) -> None:
    """Raise Problem if an operator needs a native library."""
    own = {function.domain for function in model.functions}
    for graph in _graphs(model):
        for node in graph.node:
            if node.domain not in STANDARD and node.domain not in own:
                raise Problem(
                    "model", f"{name} needs a library for the operator {node.op_type!r} of the domain {node.domain!r}",
                    hint="pass an InferenceSession in which that library is registered",
                )  # fmt: skip


def _graphs(model: Any) -> Iterator[Any]:
    """Yield the graph, the bodies of functions, and all nested graphs; protobuf limits the nesting depth."""
    parts = [model.graph, *model.functions]
    while parts:
        part = parts.pop()
        yield part
        for node in part.node:
            for attribute in node.attribute:
                parts += [attribute.g] if attribute.HasField("g") else []
                parts += attribute.graphs


def _tensors(model: Any) -> Iterator[Any]:
    """Yield every stored tensor."""
    for graph in _graphs(model):
        yield from getattr(graph, "initializer", ())
        for sparse in getattr(graph, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
                yield from [attribute.t] if attribute.HasField("t") else []
                yield from attribute.tensors
                for part in (*sparse, *attribute.sparse_tensors):
                    yield from (part.values, part.indices)
    for training in model.training_info:
        for graph in (training.initialization, training.algorithm):
            yield from graph.initializer
