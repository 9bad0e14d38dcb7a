"""Rebuild sequential Keras networks from HDF5 files as torch modules.

Neither Keras nor any code stored in the file is run. A file stores the layers as JSON (`model_config`), together with
their arrays. Keras stores convolution kernels as (row, column, in, out) and dense kernels as (in, out), and it flattens
images with the channels last. The torch module takes images as (N, channels, height, width) and returns logits, because
a final softmax is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qipf._common.optional import require
from qipf.weights.weight_files import read

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid, "elu": nn.ELU,
}  # fmt: skip
_KERNELS = ("kernel", "kernel_posterior_loc")
_BIASES = ("bias", "bias_posterior_loc")
_BUILT = (
    "Conv2D, AveragePooling2D or MaxPooling2D with padding='valid', Flatten, Dense, DenseFlipout, Dropout, "
    "Activation or Softmax"
)


class KerasLayer(NamedTuple):
    """One layer of a Keras file."""

    kind: str
    config: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def name(self) -> str:
        """The name of the layer."""
        return str(self.config.get("name", self.kind))

    def array(self, names: tuple[str, ...]) -> Tensor | None:
        """Return the first of the named arrays that the layer has, or None."""
        found = next((self.arrays[name] for name in names if name in self.arrays), None)
        return None if found is None else torch.from_numpy(found)


class ChannelsLast(nn.Module):
    """A layer that flattens images as Keras does, with the channels last; vectors are unchanged."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, height * width * channels) for images (N, channels, height, width)."""
        return (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).flatten(1)


def load_keras(path: str | Path) -> nn.Sequential:
    """Load the network of a Keras HDF5 file, in evaluation mode.

    A `DenseFlipout` layer of TensorFlow Probability is loaded with the means of its weights.

    Raises:
        ValueError: The file contains no sequential network, or the network has an unsupported layer.
    """
    net, ended = nn.Sequential(), False
    for layer in read_keras_layers(path):
        if ended:
            raise ValueError(f"{path}: layer {layer.name} follows a softmax; expected the softmax at the end")
        for name, module in _built(layer, path):
            net.add_module(name, module)
        ended = layer.kind == "Softmax" or layer.config.get("activation") == "softmax"
    return net.eval()


def read_keras_layers(path: str | Path) -> list[KerasLayer]:
    """Return the layers of a sequential Keras HDF5 file, in order."""
    h5py = require("h5py", extra="bench")
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no Keras file {path}")
    try:
        with h5py.File(path, "r") as file:
            entries = json.loads(file.attrs["model_config"])["config"]["layers"]
        described = [(entry["class_name"], dict(entry["config"])) for entry in entries]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a Keras HDF5 file with a sequential network: {error}") from None
    if any("inbound_nodes" in entry for entry in entries):
        raise ValueError(f"{path}: the layers form a graph; expected a sequential network, one layer after the other")
    stored = {tuple(name.split(".")): array for name, array in read(Path(path)).items()}
    layers = []
    for kind, config in described:
        arrays = {
            leaf.partition(":")[0]: array for (*groups, leaf), array in stored.items() if config.get("name") in groups
        }
        layers.append(KerasLayer(kind, config, arrays))
    return [layer for layer in layers if layer.kind != "InputLayer"]


def _built(layer: KerasLayer, path: str | Path) -> list[tuple[str, nn.Module]]:
    """Return the named modules for a layer: the layer itself, and its activation if it has one."""
    kind, config = layer.kind, layer.config
    activation = config.get("activation", "linear")
    if activation not in (*ACTIVATIONS, "linear", "softmax"):
        known = ", ".join(ACTIVATIONS)
        raise ValueError(
            f"{path}: layer {layer.name} has the activation {activation!r}; expected {known}, linear or softmax"
        )
    if config.get("data_format", "channels_last") != "channels_last":
        raise ValueError(
            f"{path}: layer {layer.name} has data_format={config['data_format']!r}; expected 'channels_last'"
        )
    if kind in ("Dropout", "Softmax"):
        return []
    if kind == "Conv2D":
        module: nn.Module = _convolution(layer, path)
    elif kind in ("Dense", "DenseFlipout"):
        kernel, bias = _weights(layer, path)
        module = nn.Linear(*kernel.shape, bias=bias is not None)
        _fill(module, kernel.T, bias)
    elif kind in ("AveragePooling2D", "MaxPooling2D") and config.get("padding") == "valid":
        pool = nn.AvgPool2d if kind == "AveragePooling2D" else nn.MaxPool2d
        module = pool(tuple(config["pool_size"]), tuple(config["strides"]))
    elif kind == "Flatten":
        module = ChannelsLast()
    elif kind == "Activation":
        module = nn.Identity()
    else:
        raise ValueError(f"{path}: layer {layer.name} ({kind}) is not supported; expected {_BUILT}")
    after = [(f"{layer.name}_{activation}", ACTIVATIONS[activation]())] if activation in ACTIVATIONS else []
    return [(layer.name, module), *after]


def _convolution(layer: KerasLayer, path: str | Path) -> nn.Conv2d:
    kernel, bias = _weights(layer, path)
    config = layer.config
    if config.get("groups", 1) != 1 or list(config.get("dilation_rate", [1, 1])) != [1, 1]:
        raise ValueError(f"{path}: layer {layer.name} has groups or dilation; expected neither")
    rows, columns, channels, filters = kernel.shape
    settings = {"stride": tuple(config["strides"]), "padding": config["padding"], "bias": bias is not None}
    net = nn.Conv2d(channels, filters, (rows, columns), **settings)
    _fill(net, kernel.permute(3, 2, 0, 1), bias)
    return net


def _weights(layer: KerasLayer, path: str | Path) -> tuple[Tensor, Tensor | None]:
    kernel = layer.array(_KERNELS)
    if kernel is None:
        raise ValueError(f"{path}: layer {layer.name} has no kernel; save the whole model, not a part of it")
    return kernel, layer.array(_BIASES)


def _fill(module: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    module.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
