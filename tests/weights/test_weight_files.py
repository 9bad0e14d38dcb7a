"""Weights read from files: safetensors, both formats of Keras, and files that are foreign, damaged or hostile."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import h5py
import numpy as np
import pytest
import safetensors.torch
import torch
from same_weights import equal

from qipf.weights.weights import read_weights


def test_safetensors_are_sorted_as_people_count(tmp_path: Path) -> None:
    tensors = {f"layers.{i}.weight": torch.full((2, 2), float(i), dtype=torch.bfloat16) for i in (10, 2, 0)}
    tensors["layers.2.bias"] = torch.ones(2)
    safetensors.torch.save_file(tensors, tmp_path / "net.safetensors")
    expected = {f"layers.{i}.weight": np.full((2, 2), i) for i in (0, 2, 10)}
    equal(read_weights(tmp_path / "net.safetensors"), expected)
    equal(read_weights(str(tmp_path / "net.safetensors")), expected)


def test_keras2_file(author_checkpoint: Path) -> None:
    found = read_weights(author_checkpoint)
    names = ["conv2d", "conv2d_1", "dense", "dense_1", "dense_2"]
    assert list(found) == [f"{name}.kernel" for name in names]
    with h5py.File(author_checkpoint) as file:
        for name in names:
            np.testing.assert_array_equal(found[f"{name}.kernel"], file[f"model_weights/{name}/{name}/kernel:0"])
    assert sum(values.size for values in read_weights(author_checkpoint, biases=True).values()) == 61_706


def keras2(path: Path, layers: dict[str, dict[str, np.ndarray]]) -> Path:
    with h5py.File(path, "w") as file:
        names = np.array(list(layers), dtype="S")
        file.attrs["layer_names0"], file.attrs["layer_names1"] = names[:1], names[1:]
        for name, weights in layers.items():
            group = file.create_group(name)
            group.attrs["weight_names"] = np.array([f"{name}/{key}:0" for key in weights], dtype="S")
            for key, values in weights.items():
                group[f"{name}/{key}:0"] = values
    return path


def test_keras2_order_norms_and_lists_of_names_in_pieces(tmp_path: Path, rng: np.random.Generator) -> None:
    layers = {
        "z_first": {"kernel": rng.normal(size=(3, 2)), "bias": np.zeros(2)},
        "norm": {"gamma": np.ones(2), "beta": np.ones(2), "moving_mean": np.ones(2), "moving_variance": np.ones(2)},
        "a_last": {"kernel": rng.normal(size=(2, 2))},
    }
    path = keras2(tmp_path / "net.h5", layers)
    equal(
        read_weights(path), {"z_first.kernel": layers["z_first"]["kernel"], "a_last.kernel": layers["a_last"]["kernel"]}
    )
    assert set(read_weights(path, norms=True)) == {"z_first.kernel", "a_last.kernel", "norm.gamma", "norm.beta"}


@pytest.mark.parametrize("container", ["layers", "_layer_checkpoint_dependencies"])
def test_keras3_file(tmp_path: Path, rng: np.random.Generator, container: str) -> None:
    weights = {f"dense_{i}": rng.normal(size=(3, 3)).astype(np.float32) for i in (10, 2)}
    path = tmp_path / "net.weights.h5"
    with h5py.File(path, "w") as file:
        for name, values in weights.items():
            file[f"{container}/{name}/vars/0"] = values
            file[f"{container}/{name}/vars/1"] = np.zeros(3)
        for i in range(4):
            file[f"{container}/batch_normalization/vars/{i}"] = np.full(3, float(i))
        file[f"{container}/multi_head_attention/query_dense/vars/0"] = np.eye(3)
        file[f"{container}/dropout/seed_generator/vars/0"] = np.ones((2, 2), dtype=np.uint32)
        file.create_group(f"{container}/flatten/vars")
        file["optimizer/vars/1"] = np.ones((3, 3))
    expected = {"dense_2.0": weights["dense_2"], "dense_10.0": weights["dense_10"]}
    expected["multi_head_attention.query_dense.0"] = np.eye(3)
    equal(read_weights(path), expected)
    assert set(read_weights(path, biases=True)) == {*expected, "dense_2.1", "dense_10.1"}
    assert set(read_weights(path, norms=True)) == {*expected, "batch_normalization.0", "batch_normalization.1"}


def test_foreign_and_damaged_files(tmp_path: Path, author_checkpoint: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError, match="exist"):
        read_weights(path)
    for content, message in {
        b"": "first bytes",
        b"GIF89a, and more": "first bytes",
        b"PK\x03\x04 and more": "weights_only=True",
        struct.pack("<Q", 2**60) + b"{}": "damaged",
        struct.pack("<Q", 2) + b"{!": "damaged",
        author_checkpoint.read_bytes()[:300_000]: "damaged",
    }.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_weights(path)
    header = json.dumps({"w": {"dtype": "F32", "shape": [2**40, 2], "data_offsets": [0, 2**43]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ValueError, match="damaged"):
        read_weights(path)


def test_hostile_hdf5(tmp_path: Path) -> None:
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["w"] = np.ones((2, 2))
    path = tmp_path / "net.h5"

    def refused(message: str) -> None:
        with pytest.raises(ValueError, match=message):
            read_weights(path)

    with h5py.File(path, "w") as file:
        file["layers/a/vars/0"] = h5py.ExternalLink(str(secret), "w")
    refused("is a link")
    with h5py.File(path, "w") as file:
        file["layers/a/loop"] = h5py.SoftLink("/layers")
    refused("is a link")
    with h5py.File(path, "w") as file:
        file.create_dataset("layers/a/vars/0", (2**20, 2**20), "f4", chunks=(1024, 1024))
    refused("decodes to more than")
    with h5py.File(path, "w") as file:
        file.create_dataset("layers/a/vars/0", (2, 2), "f8", external=[(str(secret), 0, 32)])
    refused("another file")
    with h5py.File(path, "w") as file:
        file["layers/a/vars/0"] = "text"
    refused("not an array of numbers")
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = np.array(["missing"], dtype="S")
    refused("damaged|missing|link")
    with h5py.File(path, "w") as file:
        group = file.create_group("layers")
        group["loop"] = group
    refused("damaged")
