"""Small ONNX models whose outputs NumPy computes as well."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(7)
INNER = RNG.standard_normal((6, 5)).astype(np.float32)
BIAS = RNG.standard_normal(5).astype(np.float32)
OUTER = RNG.standard_normal((5, 3)).astype(np.float32)


def save(
    path: Path,
    nodes: Sequence[Any],
    inputs: Sequence[tuple[str, int, list[Any]]],
    outputs: Sequence[tuple[str, int, list[Any]]],
    **weights: np.ndarray,
) -> Path:
    """Write a model of the given nodes; `weights` are stored in it by name."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(*one) for one in outputs],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def table(path: Path, ending: str = "", batch: Any = "N", dtype: int = FLOAT) -> Path:
    """Two linear layers on six numbers, with an operator at the end: Softmax, Sigmoid, exp (written out) or none."""
    cast = [helper.make_node("Cast", ["x"], ["c"], to=FLOAT)]
    nodes = [
        *(cast if dtype != FLOAT else [helper.make_node("Identity", ["x"], ["c"])]),
        helper.make_node("MatMul", ["c", "inner"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["act@1"]),
        helper.make_node("MatMul", ["act@1", "outer"], ["z"]),
    ]
    last = "z"
    if ending == "exp":
        nodes += [
            helper.make_node("ReduceMax", ["z"], ["top"], axes=[1], keepdims=1),
            helper.make_node("Sub", ["z", "top"], ["below"]),
            helper.make_node("Exp", ["below"], ["powers"]),
            helper.make_node("ReduceSum", ["powers", "one"], ["sum"], keepdims=1),
            helper.make_node("Div", ["powers", "sum"], ["p"]),
        ]
        last = "p"
    elif ending:
        nodes.append(helper.make_node(ending, ["z"], ["p"]))
        last = "p"
    weights = {"inner": INNER, "bias": BIAS, "outer": OUTER, "one": np.array([1])}
    return save(path, nodes, [("x", dtype, [batch, 6])], [(last, FLOAT, [batch, 3])], **weights)


def table_logits(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The logits of `table`, what its last layer reads, and what its first layer gives."""
    hidden = x @ INNER + BIAS
    act = np.maximum(hidden, 0)
    return act @ OUTER, act, hidden


def softmax(z: np.ndarray) -> np.ndarray:
    powers = np.exp(z - z.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


KERNEL = RNG.standard_normal((4, 3, 1, 1)).astype(np.float32)
HEAD = RNG.standard_normal((4, 3)).astype(np.float32)


def images(path: Path, dtype: int = FLOAT, last: bool = False) -> Path:
    """A convolution of one pixel, a rectifier, a mean over space and a linear layer, on images of 4 x 6 pixels."""
    nodes = [helper.make_node("Cast", ["x"], ["f"], to=FLOAT)]
    if last:
        nodes.append(helper.make_node("Transpose", ["f"], ["t"], perm=[0, 3, 1, 2]))
    nodes += [
        helper.make_node("Conv", ["t" if last else "f", "kernel"], ["conv"]),
        helper.make_node("Relu", ["conv"], ["map"]),
        helper.make_node("GlobalAveragePool", ["map"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["row"]),
        helper.make_node("Gemm", ["row", "head"], ["logits"]),
    ]
    shape = ["N", 4, 6, 3] if last else ["N", 3, 4, 6]
    return save(path, nodes, [("x", dtype, shape)], [("logits", FLOAT, ["N", 3])], kernel=KERNEL, head=HEAD)


def image_map(x: np.ndarray) -> np.ndarray:
    """The map (N, 4, 4, 6) of `images`, whose mean over space times HEAD are the logits."""
    return np.maximum(np.einsum("oc,nchw->nohw", KERNEL[:, :, 0, 0], x), 0)


def two_inputs(path: Path) -> Path:
    """The logits are a times OUTER' plus b times a weight; the inputs are `a` (N, 5) and `b` (N, 2), int32."""
    nodes = [
        helper.make_node("MatMul", ["a", "outer"], ["left"]),
        helper.make_node("Cast", ["b"], ["f"], to=FLOAT),
        helper.make_node("MatMul", ["f", "other"], ["right"]),
        helper.make_node("Add", ["left", "right"], ["logits"]),
    ]
    inputs = [("a", FLOAT, ["N", 5]), ("b", TensorProto.INT32, ["N", 2])]
    return save(path, nodes, inputs, [("logits", FLOAT, ["N", 3])], outer=OUTER, other=OUTER[:2])


EMBEDDED = RNG.standard_normal((11, 5)).astype(np.float32)


def tokens(path: Path) -> Path:
    """Logits of every token: an embedding times OUTER; the input is int64 (N, T)."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["state"]),
        helper.make_node("MatMul", ["state", "outer"], ["z"]),
        helper.make_node("Softmax", ["z"], ["p"], axis=-1),
    ]
    ids = ("ids", TensorProto.INT64, ["N", "T"])
    return save(path, nodes, [ids], [("p", FLOAT, ["N", "T", 3])], table=EMBEDDED, outer=OUTER)
