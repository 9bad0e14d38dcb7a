"""The formats that are read: a valid file of each, its reader, and what the reader must find."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from PIL import Image
from safetensors.torch import save

from onnx_graphs import table
from qipf.data.images import read_images
from qipf.data.reading import open_data
from qipf.data.tables import read_columns
from qipf.runners.loading import load_model
from qipf.scores import Mahalanobis, WeightQIPF
from qipf.scores.saving import load
from qipf.study.plan import plan as plans
from qipf.study.run.consolidate import Row
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


def _onnx(path: Path) -> np.ndarray:
    model = load_model(str(path))
    return np.asarray(collect(model, np.ones((3, 6), np.float32), features=False, progress=False).logits)


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


def _image(ending: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        pixels = io.BytesIO()
        Image.fromarray(RNG.integers(0, 256, (9, 8, 3), dtype=np.uint8)).save(pixels, ending)
        path.write_bytes(pixels.getvalue())

    return make


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
    Format("plan.toml", lambda path: path.write_text(PLAN) and None, lambda path: plans.load(str(path)), share=20),
    *(Format(f"image.{ending}", _image(ending), _pixels, share=5) for ending in ("png", "jpeg", "bmp", "webp")),
]
