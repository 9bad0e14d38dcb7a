"""Keras HDF5 files against a NumPy evaluation with the channels last, as Keras computes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from qipf.weights.keras import load_keras, read_keras_layers

h5py = pytest.importorskip("h5py")

CONV = {"kernel_size": [5, 5], "strides": [1, 1], "activation": "tanh"}
POOL = {"pool_size": [2, 2], "strides": [2, 2], "padding": "valid"}
LENET = [
    ("InputLayer", {"name": "input"}),
    ("Conv2D", {"name": "conv2d", "padding": "same", **CONV}),
    ("AveragePooling2D", {"name": "pool", **POOL}),
    ("Conv2D", {"name": "conv2d_1", "padding": "valid", **CONV}),
    ("AveragePooling2D", {"name": "pool_1", **POOL}),
    ("Flatten", {"name": "flatten"}),
    ("Dense", {"name": "dense", "activation": "tanh"}),
    ("Dense", {"name": "dense_1", "activation": "tanh"}),
    ("Dense", {"name": "dense_2", "activation": "linear"}),
    ("Softmax", {"name": "softmax"}),
]
SHAPES = {
    "conv2d": (5, 5, 1, 6), "conv2d_1": (5, 5, 6, 16), "dense": (400, 120), "dense_1": (120, 84), "dense_2": (84, 10),
}  # fmt: skip


def write(path: Path, layers, weights, graph: bool = False, names=("kernel:0", "bias:0")) -> Path:
    with h5py.File(path, "w") as file:
        entries = [{"class_name": name, "config": config} for name, config in layers]
        entries = [entry | ({"inbound_nodes": []} if graph else {}) for entry in entries]
        file.attrs["model_config"] = json.dumps({"class_name": "MyNet", "config": {"layers": entries}})
        file.create_group("model_weights")
        for name, arrays in weights.items():
            group = file.create_group(f"model_weights/{name}/{name}")
            for key, array in zip(names, arrays, strict=True):
                group[key] = array
    return path


def drawn(shapes):
    generator = np.random.default_rng(0)
    return {
        name: (
            (0.2 * generator.standard_normal(shape)).astype(np.float32),
            generator.standard_normal(shape[-1]).astype(np.float32),
        )
        for name, shape in shapes.items()
    }


def test_a_lenet_computes_what_keras_would(tmp_path: Path) -> None:
    weights = drawn(SHAPES)
    x = np.random.default_rng(1).random((2, 28, 28, 1)).astype(np.float32)

    def convolve(images: np.ndarray, name: str) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(images, (5, 5), axis=(1, 2))
        return np.einsum("nxycij,ijco->nxyo", windows, weights[name][0]) + weights[name][1]

    def pool(images: np.ndarray) -> np.ndarray:
        n, h, w, c = images.shape
        return images.reshape(n, h // 2, 2, w // 2, 2, c).mean((2, 4))

    h = pool(np.tanh(convolve(np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0))), "conv2d")))
    h = pool(np.tanh(convolve(h, "conv2d_1"))).reshape(2, 400)
    for name in ("dense", "dense_1"):
        h = np.tanh(h @ weights[name][0] + weights[name][1])
    expected = h @ weights["dense_2"][0] + weights["dense_2"][1]
    net = load_keras(write(tmp_path / "net.h5", LENET, weights))
    with torch.no_grad():
        np.testing.assert_allclose(net(torch.from_numpy(x).permute(0, 3, 1, 2)).numpy(), expected, atol=1e-4)
    assert not net.training


def test_a_random_last_layer_gets_its_means(tmp_path: Path) -> None:
    loc, bias, rho = (
        np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        np.array([0.5, -0.5], np.float32),
        np.full((3, 2), -3, np.float32),
    )
    names = ("kernel_posterior_loc:0", "bias_posterior_loc:0", "kernel_posterior_untransformed_scale:0")
    layers = [("DenseFlipout", {"name": "last", "activation": "linear"})]
    path = write(tmp_path / "svi.h5", layers, {"last": (loc, bias, rho)}, names=names)
    with torch.no_grad():
        assert load_keras(path)(torch.eye(3)).tolist() == (loc + bias).tolist()
    assert read_keras_layers(path)[0].arrays[names[2].removesuffix(":0")].tolist() == rho.tolist()


@pytest.mark.parametrize(
    ("layers", "graph", "message"),
    [
        ([("LSTM", {"name": "memory"})], False, "LSTM.*not supported"),
        ([("Dense", {"name": "one", "activation": "swish"})], False, "swish"),
        ([("Dense", {"name": "lost"})], False, "lost has no kernel"),
        ([("Softmax", {"name": "end"}), ("Flatten", {"name": "more"})], False, "follows a softmax"),
        ([("Flatten", {"name": "one"})], True, "form a graph"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused(tmp_path: Path, layers, graph, message) -> None:
    path = write(tmp_path / "net.h5", layers, {"one": (np.zeros((2, 2), np.float32), np.zeros(2, np.float32))}, graph)
    with pytest.raises(ValueError, match=message):
        load_keras(path)


def test_arrays_in_another_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(16))
    path = write(tmp_path / "net.h5", [("Dense", {"name": "one"})], {})
    with h5py.File(path, "a") as file:
        stored = [(str(tmp_path / "secret"), 0, 16)]
        file.create_dataset("model_weights/one/kernel:0", shape=(2, 2), dtype="f4", external=stored)
    with pytest.raises(ValueError, match="another file"):
        load_keras(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Keras"):
        load_keras(tmp_path / "missing.h5")
    (tmp_path / "junk.h5").write_bytes(b"not HDF5")
    with pytest.raises(ValueError, match="Keras"):
        load_keras(tmp_path / "junk.h5")


def test_bench_runs_on_a_keras_file(tmp_path: Path) -> None:
    """An 8 x 8 network with one dense layer on the bundled digits, from the file to the table."""
    from qipf.cli import main
    from qipf.study.run.read import open_store

    layers = [("Flatten", {"name": "flatten"}), ("Dense", {"name": "dense", "activation": "softmax"})]
    write(tmp_path / "net.h5", layers, drawn({"dense": (64, 10)}))
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'name = "keras"\nshifts = ["rotation"]\nseverities = [3]\ntest_size = 200\nreference_size = 200\n'
        'calibration_size = 100\n[[pairs]]\ndataset = "digits"\nmodel = "net.h5"\n'
        "[methods.max-logit]\n[methods.qipf]\nfactor = 80\n"
    )
    assert main(["bench", str(plan), "-o", str(tmp_path / "store"), "--engine", "serial", "--no-times", "--quiet"]) == 0
    rows = open_store(tmp_path / "store").rows()
    assert {row.method for row in rows} == {"max-logit", "qipf"}
    assert {row.net for row in rows} == {"net"}


@pytest.mark.real_data
def test_the_authors_lenet_is_as_good_as_they_say(data_dir: Path, author_checkpoint: Path) -> None:
    from qipf.study import datasets

    net = load_keras(author_checkpoint)
    inputs, targets = datasets.load("mnist", data=data_dir, download=False).test
    with torch.no_grad():
        right = sum(
            int((net(x).argmax(1) == y).sum()) for x, y in zip(inputs.split(1000), targets.split(1000), strict=True)
        )
    assert right / 10_000 == pytest.approx(0.987, abs=0.0005)
