"""What a graph says about its model: where the logits, the features and the places to read are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

_PASS = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Cast", "Dropout", "Transpose")
"""Operators that change neither values nor their order within a row."""
_SAME_ORDER = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that change nothing but the shape."""
_AFTER_MAPS = ("Identity", "Cast", "Dropout", "Add", "Mul", "Div", "Sub", "Resize", "Upsample")
"""Operators that may stand between the convolution behind the logits of pixels and these logits."""
_LINEAR = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")
_SHAPES = ("Shape", "Size")
"""What they give depends on the form of the inputs alone, so it counts as constant."""
_FLOATS = (1, 10, 11)
"""float, float16 and double among the types of tensors."""


class Ending(NamedTuple):
    """How a graph ends: the tensors that may hold its logits, best first, and the operator after them."""

    before: tuple[str, ...]
    operator: str


class LogitsAt(NamedTuple):
    """The tensor with the logits of a model."""

    tensor: str
    probabilities: bool = False
    """whether it has probabilities, whose logarithms are the logits"""
    flat: bool = False
    """whether all numbers of an input are its logits, because only a change of shape follows this tensor"""
    last: bool = False
    """whether the classes of pixels are last, (N, H, W, C), because a transposition follows this tensor"""

    def moved(self, values: np.ndarray) -> np.ndarray:
        """The values with the classes where they belong."""
        return np.moveaxis(values, 3, 1) if self.last else values


class Graph:
    """A model's graph.

    Args:
        model: what `files.read_model` returned.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        graph = model.graph
        self.outputs = [output.name for output in graph.output]
        self._maker = {name: node for node in graph.node for name in node.output if name}
        stored = {tensor.name for tensor in graph.initializer} | {part.values.name for part in graph.sparse_initializer}
        self.inputs = [one.name for one in graph.input if one.name not in stored]
        self._constant = set(stored)
        for node in graph.node:  # in an order in which every tensor is made before it is used
            if node.op_type in _SHAPES or all(not name or name in self._constant for name in node.input):
                self._constant |= set(node.output)

    @property
    def tensors(self) -> list[str]:
        """The names of all tensors that depend on the inputs, in the order in which they are made."""
        return [name for name in self._maker if name not in self._constant]

    def check(self, name: str) -> None:
        """Raise ValueError with similar names where there is no such tensor, or where it is constant."""
        if name in self._maker and name not in self._constant:
            return
        known = self.tensors
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[-3:]
        raise ValueError(
            f"layers: the ONNX model has no tensor {name!r} that depends on the inputs; did you mean "
            f"{' or '.join(map(repr, near))}? `qipf inspect MODEL` lists them"
        )

    def with_outputs(self, names: Iterable[str]) -> bytes:
        """The model as bytes, with these tensors as outputs in addition to its own."""
        added = type(self._model)()
        for name in names:
            if name not in self.outputs:
                added.graph.output.add().name = name
        return self._model.SerializeToString() + added.SerializeToString()  # protobuf merges what stands in a row

    def ending(self, output: str) -> Ending | None:
        """What stands before the softmax or sigmoid that makes `output`; None where there is none.

        A softmax that is written out, as exp(x - max) / sum, has two candidates: x and x - max.
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
        """The tensors that may be read as what enters the linear layer behind the logits, best first; often none.

        The first one enters the layer. The others hold the same numbers in the same order in other shapes, as where the
        places of a sequence are joined to one long batch. Which of them has one row per input shows when they are run.
        A transposition that moves the batch may mix the rows of several inputs, and nothing is found behind one.
        """
        node = self._source(logits, ordered=True)
        while node is not None and node.op_type in ("Add", "Mul", "Div", "Sub"):  # a bias, a temperature
            moving = [name for name in node.input if name not in self._constant]
            node = self._source(moving[0], ordered=True) if len(moving) == 1 else None
        if node is None or node.op_type not in _LINEAR or node.input[1] not in self._constant:
            return ()
        found = [node.input[0]]
        while (node := self._maker.get(found[-1])) is not None and node.op_type in _SAME_ORDER:
            found.append(node.input[0])
        return tuple(name for name in found if name not in self.inputs and name not in self._constant)

    def map_input(self, logits: str) -> str | None:
        """The tensor that enters the convolution behind the logits of pixels, which may be enlarged after it."""
        node = self._maker.get(logits)
        while node is not None and node.op_type in _AFTER_MAPS:
            moving = [name for name in node.input if name and name not in self._constant]
            node = self._maker.get(moving[0]) if len(moving) == 1 else None
        if node is None or node.op_type not in ("Conv", "ConvTranspose", "FusedConv"):
            return None
        fixed = node.input[1] in self._constant and node.input[0] not in self.inputs
        return node.input[0] if fixed and node.input[0] in self._maker else None

    def first_linear(self) -> str | None:
        """The output of the first linear layer."""
        for node in self._model.graph.node:
            moving = [name for name in node.input if name not in self._constant]
            if node.op_type in _LINEAR and len(moving) == 1 and moving[0] == node.input[0]:
                return node.output[0]
        return None

    def cuts(self, target: str) -> list[str]:
        """The tensors that every way from the inputs to `target` passes through, in order.

        These are the states of the network, unlike what a branch, an attention map or a gate makes on the side.
        """
        needed = self._needed(target)
        nodes = [node for node in self._model.graph.node if any(name in needed for name in node.output)]
        last = {name: place for place, node in enumerate(nodes) for name in node.input if name in needed}
        open_tensors = {name for name in self.inputs if name in needed}
        found = []
        for place, node in enumerate(nodes):
            open_tensors |= {name for name in node.output if name in needed}
            open_tensors = {name for name in open_tensors if last.get(name, -1) > place or name == target}
            if len(open_tensors) == 1:
                found.append(next(iter(open_tensors)))
        return [name for name in dict.fromkeys(found) if name in self._maker and name != target]

    def kernels(self) -> dict[str, np.ndarray]:
        """The stored floating-point tensors with two or more dimensions larger than 1, by name.

        Biases are often stored as (1, width). Tensors in other files are left out.
        """
        from onnx import numpy_helper

        stored = [tensor for tensor in self._model.graph.initializer if tensor.data_type in _FLOATS]
        return {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in stored
            if sum(size > 1 for size in tensor.dims) > 1 and not tensor.external_data
        }

    def stored(self) -> list[bytes]:
        """The bytes of every tensor that is stored in the graph, sorted; none where some are in other files."""
        from onnx import numpy_helper

        constants = [part.t for node in self._model.graph.node if node.op_type == "Constant" for part in node.attribute]
        tensors = [tensor for tensor in (*self._model.graph.initializer, *constants) if tensor.data_type]
        if any(tensor.external_data for tensor in tensors):
            return []
        return sorted(np.ascontiguousarray(numpy_helper.to_array(tensor)).tobytes() for tensor in tensors)

    def operator(self, name: str) -> str:
        """The operator that makes a tensor."""
        return self._maker[name].op_type

    def _source(self, name: str, ordered: bool = False) -> Any:
        """The node that makes a tensor, past nodes that only pass values on; if `ordered`, none that moves rows."""
        node = self._maker.get(name)
        while node is not None and node.op_type in _PASS and not (ordered and _moves_rows(node)):
            node = self._maker.get(node.input[0])
        return node

    def _needed(self, target: str) -> set[str]:
        """The tensors that `target` depends on, with itself, without those that are constant."""
        found, waiting = set(), [target]
        while waiting:
            name = waiting.pop()
            if name in found or name in self._constant or not name:
                continue
            found.add(name)
            waiting += self._maker[name].input if name in self._maker else ()
        return found


def _moves_rows(node: Any) -> bool:
    """Whether a transposition moves the first dimension."""
    order = next((list(part.ints) for part in node.attribute if part.name == "perm"), [])
    return node.op_type == "Transpose" and order[:1] != [0]
