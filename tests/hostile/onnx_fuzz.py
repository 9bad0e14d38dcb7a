"""Run as a script: change the parts of valid ONNX models, so that they parse and ONNX Runtime has to judge them.

Prints how many were read and refused as JSON; a crash of the process is what the test looks for.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import onnx

from onnx_graphs import images, table, tokens
from qipf._common.errors import UserError
from qipf._common.text import one_line
from qipf.runners.loading import load_model
from qipf.tasks.collect import collect

OPERATORS = ("Relu", "MatMul", "Gemm", "Softmax", "Add", "Conv", "Flatten", "Gather", "Cast", "Transpose", "Reshape")
NUMBERS = (-1, 0, 1, 2, 7, 255, 2**31 - 1, 2**40, -(2**63), 2**63 - 1)
INPUTS = {
    table: np.ones((3, 6), np.float32),
    images: np.ones((3, 3, 4, 6), np.float32),
    tokens: np.ones((3, 5), np.int64),
}


def change(model: onnx.ModelProto, rng: random.Random) -> None:
    """One change that keeps the file readable."""
    graph = model.graph
    node = rng.choice(graph.node)
    tensor = rng.choice(graph.initializer)
    names = [name for one in graph.node for name in (*one.input, *one.output)] + [tensor.name, "nothing"]
    kind = rng.randrange(9)
    if kind == 0:
        node.op_type = rng.choice(OPERATORS)
    elif kind == 1:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif kind == 2:
        node.output[0] = rng.choice(names)
    elif kind == 3 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
    elif kind == 4:
        tensor.data_type = rng.randrange(25)
    elif kind == 5:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif kind == 6 and node.attribute:
        attribute = rng.choice(node.attribute)
        attribute.i = rng.choice(NUMBERS)
        if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
    elif kind == 7:
        shape = rng.choice((*graph.input, *graph.output)).type.tensor_type
        shape.elem_type = rng.randrange(20)
        shape.shape.dim[0].dim_value = rng.choice(NUMBERS)
    else:
        model.opset_import[0].version = rng.choice((1, 7, 13, 21, 10**6))


def main(count: int, seed: int) -> None:
    """Change and read `count` models."""
    found = {"read": 0, "refused": 0, "failures": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        for case in range(count):
            rng = random.Random(f"{seed} {case}")
            make = rng.choice([*INPUTS])
            model = onnx.load(make(path))
            for _ in range(rng.randint(1, 3)):
                change(model, rng)
            path.write_bytes(model.SerializeToString())
            try:
                collect(load_model(str(path)), INPUTS[make], progress=False)
                found["read"] += 1
            except (UserError, ValueError, TypeError, OSError) as error:
                said = one_line(error)
                found["refused"] += 1
                if len(said) < 10:
                    found["failures"].setdefault(f"says too little: {error!r}", case)
            except BaseException as error:
                found["failures"].setdefault(f"{type(error).__name__}: {one_line(error)[:200]}", case)
    print(json.dumps(found))


if __name__ == "__main__":
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 4 * 2**30, now + 4 * 2**30))
    main(int(sys.argv[1]), int(sys.argv[2]))
