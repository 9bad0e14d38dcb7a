"""Weights read from every kind of source, against the arrays that went in."""

from __future__ import annotations

from typing import Any

import equinox
import flax.linen
import flax.nnx
import jax
import numpy as np
import pytest
import torch
from same_weights import equal
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


def test_modules_without_values_are_refused() -> None:
    with pytest.raises(ValueError, match="values"):
        read_weights(nn.LazyLinear(3))
    with pytest.raises(ValueError, match="values"):
        read_weights(nn.Linear(3, 3, device="meta"))
    with pytest.raises(ValueError, match="kernels"):
        read_weights(nn.ReLU())


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
    with pytest.raises(TypeError, match="weights"):
        read_weights(3)
    with pytest.raises(ValueError, match="kernels"):
        read_weights([np.ones(4)])
    with pytest.raises(ValueError, match="kernels"):
        read_weights({"a": "text"})
    with pytest.raises(TypeError, match="complex"):
        read_weights([np.ones((2, 2)) * 1j])
    with pytest.raises(ValueError, match="weights"):
        read_weights([np.eye(2), np.array([[1, 2], [3, np.nan]])])
