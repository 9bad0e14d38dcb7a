"""Weights of modules, pytrees, estimators and files, against what was put into them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import equinox
import flax.linen
import flax.nnx
import h5py
import jax
import numpy as np
import pytest
import safetensors.torch
import torch
from sklearn.neural_network import MLPClassifier, MLPRegressor
from torch import nn
from torch.nn.utils import parametrizations

from qipf.weights.weights import read_weights


def small_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3), nn.LayerNorm((3,)))


def test_torch_module_and_its_state_dict_agree() -> None:
    net = small_net()
    weights, biases = [net[0].weight, net[3].weight], [net[0].bias, net[3].bias]
    expected = dict(zip(("0.weight", "3.weight"), weights, strict=True))
    for source in (net, net.state_dict(), {"state_dict": net.state_dict(), "epoch": 3}, nn.DataParallel(net)):
        equal(read_weights(source), expected)
        found = read_weights(source, biases=True)
        assert list(found) == ["0.weight", "0.bias", "3.weight", "3.bias"]
        np.testing.assert_array_equal(found["3.bias"], biases[1].detach())
        assert set(read_weights(source, norms=True)) == {*expected, "1.weight", "1.bias", "4.weight", "4.bias"}
    equal(read_weights(nn.DataParallel(net).state_dict()), expected)
    equal(read_weights(torch.compile(net, backend="eager")), expected)


def test_norm_layers_with_many_dimensions_are_no_kernels() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm((3, 4)), nn.LayerNorm((3, 4), bias=False))
    assert list(read_weights(net)) == ["0.weight"]
    assert list(read_weights(net[:2].state_dict())) == ["0.weight"]


def test_tied_weights_count_once() -> None:
    net = nn.ModuleDict({"embed": nn.Embedding(6, 4), "head": nn.Linear(4, 6, bias=False)})
    net["head"].weight = net["embed"].weight
    equal(read_weights(net), {"embed.weight": net["embed"].weight})
    equal(read_weights(net.state_dict()), {"embed.weight": net["embed"].weight})
    shared = np.ones((3, 2))
    assert len(read_weights([shared, shared, shared.copy()])) == 2


def test_half_precision_becomes_float32_and_results_are_copies() -> None:
    net = small_net().bfloat16()
    found = read_weights(net)["0.weight"]
    assert found.dtype == np.float32
    before = found.copy()
    np.testing.assert_array_equal(before, net[0].weight.detach().float())
    with torch.no_grad():
        net[0].weight.zero_()
    np.testing.assert_array_equal(found, before)
    net = small_net().double()
    found = read_weights(net)["0.weight"]
    with torch.no_grad():
        net[0].weight.zero_()
    assert found.dtype == np.float64
    assert np.abs(found).min() > 0


def test_parametrised_weights_are_the_effective_ones() -> None:
    layer = parametrizations.weight_norm(nn.Linear(5, 3))
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(2)
    equal(read_weights(layer), {"weight": layer.weight})
    spectral = parametrizations.spectral_norm(nn.Linear(5, 3))
    before = {name: value.clone() for name, value in spectral.state_dict().items()}
    read_weights(spectral)
    for name, value in spectral.state_dict().items():
        assert torch.equal(value, before[name])


def test_scikit_learn(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    for kind in (MLPClassifier, MLPRegressor):
        model = kind(hidden_layer_sizes=(5,), max_iter=3, solver="lbfgs", tol=1e9)
        with pytest.raises(ValueError, match="fitted"):
            read_weights(model)
        model.fit(x, y)
        equal(read_weights(model), {f"layers.{i}.weight": values for i, values in enumerate(model.coefs_)})
        np.testing.assert_array_equal(read_weights(model, biases=True)["layers.0.bias"], model.intercepts_[0])


class FlaxNet(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x: Any) -> Any:
        x = flax.linen.BatchNorm(use_running_average=False)(flax.linen.Dense(4)(x))
        return flax.linen.Dense(2)(x)


def test_flax() -> None:
    variables = FlaxNet().init(jax.random.key(0), np.ones((3, 5), np.float32))
    params = variables["params"]
    expected = {f"Dense_{i}.kernel": params[f"Dense_{i}"]["kernel"] for i in (0, 1)}
    for source in (variables, params):
        found = read_weights(source)
        assert set(found) == set(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
        assert set(read_weights(source, norms=True)) == {*expected, "BatchNorm_0.scale", "BatchNorm_0.bias"}


def test_flax_nnx() -> None:
    class Net(flax.nnx.Module):
        def __init__(self, rngs: flax.nnx.Rngs) -> None:
            self.dense = flax.nnx.Linear(3, 2, rngs=rngs)
            self.norm = flax.nnx.BatchNorm(2, rngs=rngs)
            self.drop = flax.nnx.Dropout(0.5, rngs=rngs)

    net = Net(flax.nnx.Rngs(0))
    equal(read_weights(net), {"dense.kernel": net.dense.kernel[...]})
    assert set(read_weights(net, norms=True)) == {"dense.kernel", "norm.scale", "norm.bias"}
    assert set(read_weights(net, biases=True)) == {"dense.kernel", "dense.bias"}


def test_equinox() -> None:
    net = equinox.nn.Sequential(
        [
            equinox.nn.Conv2d(1, 2, 3, key=jax.random.key(0)),
            equinox.nn.Lambda(jax.nn.relu),
            equinox.nn.LayerNorm((2, 3)),
            equinox.nn.Linear(4, 2, key=jax.random.key(1)),
        ]
    )
    equal(read_weights(net), {"layers.0.weight": net[0].weight, "layers.3.weight": net[3].weight})
    assert read_weights(net, biases=True)["layers.0.bias"].shape == (2, 1, 1)
    assert next(iter(read_weights({"net": net}))) == "net.layers.0.weight"


def test_lists_of_arrays_of_any_library(rng: np.random.Generator) -> None:
    values = rng.normal(size=(3, 2)).astype(np.float32)
    source = [values, torch.asarray(values).clone(), jax.numpy.asarray(values), np.ones(4)]
    equal(read_weights(source), {str(i): values for i in range(3)})
    assert list(read_weights(source, biases=True)) == ["0", "1", "2", "3"]


def test_sources_nobody_knows() -> None:
    for source, error, message in (
        (3, TypeError, "weights"),
        ([np.ones(4)], ValueError, "kernels"),
        ({"a": "text"}, ValueError, "kernels"),
        ([np.ones((2, 2)) * 1j], TypeError, "complex"),
        ([np.eye(2), np.array([[1, 2], [3, np.nan]])], ValueError, "weights"),
        (nn.LazyLinear(3), ValueError, "values"),
        (nn.Linear(3, 3, device="meta"), ValueError, "values"),
        (nn.ReLU(), ValueError, "kernels"),
    ):
        with pytest.raises(error, match=message):
            read_weights(source)


def equal(found: dict[str, np.ndarray], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], np.asarray(values.detach() if hasattr(values, "detach") else values))


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
        b"": "starts with",
        b"GIF89a, and more": "starts with",
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
