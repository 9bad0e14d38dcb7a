"""The formats that are read: a valid file of each, its reader, and what the reader must find."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import onnx
import pyarrow
import pyarrow.parquet
import torch
from mutations import mutate
from PIL import Image
from safetensors.torch import save

from onnx_graphs import images, table, tokens
from qipf._common.printing import MOST_DOTS, parse_toml
from qipf.data.images import SCANS, read_images
from qipf.data.npz import LONGEST_LISTING, read_arrays
from qipf.data.reading import open_data
from qipf.data.tables import MOST_COLUMNS, read_columns
from qipf.runners.loading import load_model
from qipf.scores import Mahalanobis, WeightQIPF
from qipf.scores.saving import load
from qipf.study.plan import plan as plans
from qipf.study.run.read import Row
from qipf.study.tables.frame import read_table
from qipf.tasks.collect import collect
from qipf.tasks.outputs import Outputs
from qipf.weights.weight_files import read as read_weights

RNG = np.random.default_rng(0)
LOGITS, FEATURES = RNG.standard_normal((40, 3)), RNG.standard_normal((40, 4))
LABELS = RNG.integers(0, 3, 40)
ROW = Row("mnist", "lenet", 0, "zoom", 0.5, 3, "entropy", "score", "base", "roc_auc", 0.7, 0.6, 0.8, 100, 0.9, "all")
CSV = "u,v,name,correct\n" + "".join(f"{u},{i},n{i},{i % 2}\n" for i, u in enumerate(LOGITS[:, 0]))
LONG = ",".join(Row._fields) + "\n" + 5 * (",".join(map(str, ROW)) + "\n")
PLAN = resources.files("qipf.study.plan.plans").joinpath("demo.toml").read_text()


@dataclass(frozen=True)
class Format:
    """One kind of file. Where the kind has a checksum, whatever is read must equal the original."""

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    checked: bool = False
    share: int = 10
    """how many cases of all it gets, in relation to the others"""
    change: Callable[[bytes, Random], tuple[bytes, str]] = lambda data, rng: (mutate(data, rng), "")
    """another file, and what must come of it: "read", "refused", or "" for either"""


def _onnx(path: Path, shape: tuple[int, ...] = (3, 6), dtype: Any = np.float32) -> np.ndarray:
    model = load_model(str(path))
    return np.asarray(collect(model, np.ones(shape, dtype), features=False, progress=False).logits)


def _score(path: Path) -> np.ndarray:
    return np.asarray(load(path)(Outputs(LOGITS, FEATURES)))


def _arrays(path: Path) -> list[np.ndarray]:
    return [np.asarray(values) for values in open_data(path).arrays.values()]


def _columns(path: Path) -> list[Any]:
    return [values.tolist() for values in read_columns(path).values()]


def _weights(path: Path) -> list[np.ndarray]:
    return [np.asarray(torch.as_tensor(values).double()) for values in read_weights(path).values()]


def _npz(path: Path, save: Callable[..., None]) -> None:
    save(path, inputs=FEATURES, labels=LABELS, logits=LOGITS)


def _parquet(path: Path) -> None:
    columns = {"u": LOGITS[:, 0], "name": [f"n{i % 3}" for i in range(40)], "correct": LABELS == 0}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, write_page_checksum=True)


def _keras2(path: Path) -> None:
    with h5py.File(path, "w") as file:
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = np.array([b"dense"])
        layer = group.create_group("dense")
        layer.attrs["weight_names"] = np.array([b"dense/kernel:0", b"dense/bias:0"])
        layer["dense/kernel:0"], layer["dense/bias:0"] = FEATURES.astype("f4"), LOGITS[0]


def _keras3(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("layers/dense/vars/0", data=FEATURES, chunks=(10, 2), compression="gzip", shuffle=True)
        file["layers/dense_1/vars/0"] = LOGITS.astype("f4")


def _image(ending: str, **settings: bool) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        pixels = io.BytesIO()
        Image.fromarray(RNG.integers(0, 256, (9, 8, 3), dtype=np.uint8)).save(pixels, ending, **settings)
        path.write_bytes(pixels.getvalue())

    return make


def _size(rng: Random, most: float) -> int:
    return int(10 ** rng.uniform(0, most))


def _wide(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Up to 300,000 columns in the header, or in a row."""
    columns, kind = _size(rng, 5.5), rng.randrange(3)
    if kind == 2:
        return data + b"," * columns + b"\n", "refused" if columns != 3 else "read"
    names = "," * columns if kind else "".join(f",c{number}" for number in range(columns))
    text = f"u,correct{names}\n" + f"0.5,1{',1' * columns}\n" * 2
    return text.encode(), "refused" if columns + 2 > MOST_COLUMNS else "" if kind else "read"


def _deep(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Keys of many parts, arrays in arrays, tables in tables."""
    depth, part = _size(rng, 4.5), rng.choice(("a", "1", '"="', "'['", '"\\\\\u2028"', " a "))
    kind = rng.randrange(4)
    key = ".".join([part] * depth)
    text = (f"{key} = 1", f"[{key}]", f"x = {'[' * depth}{']' * depth}", f"x = {'{a = ' * depth}1{'}' * depth}")[kind]
    bounds = (MOST_DOTS, MOST_DOTS, 100, 100)[kind], (MOST_DOTS + 1, MOST_DOTS + 1, 2000, 2000)[kind]
    wanted = "read" if depth <= bounds[0] else "refused" if depth > bounds[1] else ""
    return f"{text}\n".encode() + (b"" if kind == 1 else data), wanted


def _many(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Up to 30,000 members."""
    members, name, archive = _size(rng, 4.5), "m" * rng.randint(1, 60), io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as one:
        array = one.read("a.npy")
    with zipfile.ZipFile(archive, "w") as file:
        for number in range(members):
            file.writestr(f"{name}{number}.npy", array)
    listing = sum(46 + len(f"{name}{number}.npy") for number in range(members))
    return archive.getvalue(), "refused" if listing > LONGEST_LISTING else "read"


def _scans(data: bytes, rng: Random) -> tuple[bytes, str]:
    """A progressive JPEG with up to 3,000 more scans, or damaged."""
    if rng.random() < 0.5:
        return mutate(data, rng), ""
    start, more = data.rindex(b"\xff\xda"), _size(rng, 3.5)
    scans = data.count(b"\xff\xda") + more
    return data[:start] + data[start:-2] * (more + 1) + data[-2:], "refused" if scans > SCANS else "read"


OPERATORS = ("Relu", "MatMul", "Gemm", "Softmax", "Add", "Conv", "Flatten", "Gather", "Cast", "Transpose", "Reshape")
NUMBERS = (-1, 0, 1, 2, 7, 255, 2**31 - 1, 2**40, -(2**63), 2**63 - 1)


def _graph(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Up to three changes of an ONNX model that keep the file readable, so that ONNX Runtime has to judge it."""
    model = onnx.load_from_string(data)
    for _ in range(rng.randint(1, 3)):
        _change(model, rng)
    return model.SerializeToString(), ""


def _change(model: onnx.ModelProto, rng: Random) -> None:
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


def _pixels(path: Path) -> np.ndarray:
    return read_images((path,), "RGB")


FORMATS = [
    Format("weight.qipf", lambda path: WeightQIPF(factor=40).fit([FEATURES], Outputs(LOGITS)).save(path), _score, True),
    Format(
        "features.qipf",
        lambda path: Mahalanobis().fit(None, Outputs(LOGITS, FEATURES, LABELS)).save(path),
        _score,
        checked=True,
    ),
    Format("stored.npz", lambda path: _npz(path, np.savez), _arrays, checked=True),
    Format("packed.npz", lambda path: _npz(path, np.savez_compressed), _arrays, checked=True),
    Format("array.npy", lambda path: np.save(path, FEATURES), _arrays),
    Format("scores.csv", lambda path: path.write_text(CSV) and None, _columns, share=20),
    Format("table.csv", lambda path: path.write_text(LONG) and None, read_table, share=20),
    Format("table.csv.gz", lambda path: path.write_bytes(gzip.compress(LONG.encode())) and None, read_table, True),
    Format("scores.parquet", _parquet, _columns),
    Format("keras2.h5", _keras2, _weights, share=15),
    Format("keras3.h5", _keras3, _weights, share=15),
    Format(
        "net.safetensors",
        lambda path: path.write_bytes(save({"a": torch.ones(3, 3), "b": torch.ones(2).bfloat16()})) and None,
        _weights,
    ),
    Format("net.onnx", lambda path: table(path, "Softmax") and None, _onnx),
    Format("table.onnx", lambda path: table(path) and None, _onnx, share=20, change=_graph),
    Format(
        "images.onnx",
        lambda path: images(path) and None,
        lambda path: _onnx(path, (3, 3, 4, 6)),
        share=20,
        change=_graph,
    ),
    Format(
        "tokens.onnx",
        lambda path: tokens(path) and None,
        lambda path: _onnx(path, (3, 5), np.int64),
        share=20,
        change=_graph,
    ),
    Format("plan.toml", lambda path: path.write_text(PLAN) and None, lambda path: plans.load(str(path)), share=20),
    *(Format(f"image.{ending}", _image(ending), _pixels, share=5) for ending in ("png", "jpeg", "bmp", "webp")),
    Format("wide.csv", lambda path: path.write_text(CSV) and None, _columns, share=3, change=_wide),
    Format(
        "deep.toml",
        lambda path: path.write_text("b = 1\n") and None,
        lambda path: len(parse_toml(path.read_text())),
        share=6,
        change=_deep,
    ),
    Format(
        "many.npz", lambda path: np.savez(path, a=LABELS), lambda path: len(read_arrays(path)), share=1, change=_many
    ),
    Format("scans.jpeg", _image("JPEG", progressive=True), _pixels, share=3, change=_scans),
]
