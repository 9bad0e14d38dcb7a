"""Read weights from PyTorch, Keras, ONNX, scikit-learn and JAX models, safetensors files and lists of arrays."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, to_numpy
from qipf.runners.onnx import OnnxRunner, is_session

_STATISTICS = {"running_mean", "running_var", "moving_mean", "moving_variance", "mean_ema", "var_ema"}
_INSIDE = ("params", "state_dict", "model_state_dict")  # keys of the weights in checkpoints


def read_weights(source: Any, *, biases: bool = False, norms: bool = False) -> dict[str, np.ndarray]:
    """Return the kernels of a model (its parameters of two or more dimensions) as NumPy arrays, keyed by name.

    The kernels keep the order and layout of the source, such as (out, in, height, width) in torch and (height, width,
    in, out) in Keras. Tied weights occur once.

    Args:
        source: A torch module or its state dict, the path of a `.safetensors`, `.h5` or `.weights.h5` file, an ONNX
            model (as for `qipf.collect`), a fitted scikit-learn MLP, a JAX pytree such as flax parameters or an equinox
            module, or a list of arrays. The arrays of safetensors and Keras 3 files are sorted by name.
        biases: Include parameters of fewer than two dimensions outside normalisation layers.
        norms: Include scales and shifts of normalisation layers, but not their running statistics.

    Returns:
        Arrays of float32 or float64; narrower types become float32.

    Raises:
        ValueError: The file is damaged or not a weight file, there are no kernels, or weights are NaN or infinite.
    """
    named, known_norms = _parameters(source)
    chosen: dict[str, np.ndarray] = {}
    seen: set[Any] = set()
    norm_names = _norms(named, known_norms)
    for name, values in named.items():
        is_kernel = len(values.shape) >= 2 and not _is_bias(name)
        is_scale = name in norm_names and not name.endswith((".mean", ".var"))  # the names of statistics in flax.nnx
        wanted = (norms and is_scale) if name in norm_names else (biases or is_kernel)
        if not wanted or not _is_float(name, values):
            continue
        identity = _identity(values)
        if identity in seen:
            continue
        seen.add(identity)
        chosen[name] = _as_float(name, values)
    if not chosen:
        held = ", ".join(f"{name} {tuple(values.shape)}" for name, values in list(named.items())[:5])
        raise ValueError(
            f"source: expected kernels (floating-point parameters of two or more dimensions), got {held or 'no arrays'}"
        )
    return chosen


def _parameters(source: Any) -> tuple[dict[str, Array], set[str]]:
    """Return all parameters by name, and the names of layers known to be normalisation layers."""
    named = isinstance(source, str | os.PathLike) and str(source).endswith(".onnx")
    if named or isinstance(source, OnnxRunner) or is_session(source):
        return (source if isinstance(source, OnnxRunner) else OnnxRunner(source)).graph.kernels(), set()
    if isinstance(source, str | os.PathLike):
        from qipf.weights.weight_files import read

        return read(Path(source)), set()
    torch = sys.modules.get("torch")  # already imported if the source is a torch module
    if torch is not None and isinstance(source, torch.nn.Module):
        return _of_torch(source)
    if hasattr(source, "hidden_layer_sizes"):
        return _of_sklearn(source), set()
    if isinstance(source, Mapping):
        inner = next((source[key] for key in _INSIDE if isinstance(source.get(key), Mapping)), source)
        named = dict(_leaves(inner, ""))
        plain = {name.replace("_orig_mod.", ""): values for name, values in named.items()}
        wrapped = all(name.startswith("module.") for name in plain)  # the prefix that DataParallel adds
        return {name.removeprefix("module.") if wrapped else name: v for name, v in plain.items()}, set()
    if isinstance(source, list | tuple) or _is_pytree(source):
        return dict(_leaves(source, "")), set()
    raise TypeError(
        f"cannot read weights from {type(source).__name__}: expected a torch module, a state dict, a file, "
        "a scikit-learn MLP, a JAX pytree or a list of arrays"
    )


def _of_torch(model: Any) -> tuple[dict[str, Array], set[str]]:
    import copy

    import torch

    from qipf.runners.torch import unwrap

    def clean(name: str) -> str:
        return name.replace("_orig_mod.", "")

    named: dict[str, Array] = {}
    norms: set[str] = set()
    for prefix, module in unwrap(model).named_modules():
        if "Norm" in type(module).__name__:
            norms.add(clean(prefix))
        if "parametrizations" in clean(prefix).split("."):
            continue
        for name, parameter in module.named_parameters(recurse=False):
            if torch.nn.parameter.is_lazy(parameter) or parameter.is_meta:
                raise ValueError(
                    f"parameter {prefix}.{name} has no values yet; run the model or load its weights first"
                )
            named[clean(f"{prefix}.{name}".lstrip("."))] = parameter.detach()
        for name, chain in getattr(module, "parametrizations", {}).items():
            with torch.no_grad():  # the effective weight, from a copy because a spectral norm changes its state
                named[clean(f"{prefix}.{name}".lstrip("."))] = copy.deepcopy(chain).eval()().detach()
    return named, norms


def _of_sklearn(model: Any) -> dict[str, Array]:
    if not hasattr(model, "coefs_"):
        raise ValueError(f"this {type(model).__name__} is not fitted: call its fit() first")
    layers = zip(model.coefs_, model.intercepts_, strict=True)
    return {
        f"layers.{number}.{name}": values
        for number, layer in enumerate(layers)
        for name, values in zip(("weight", "bias"), layer, strict=True)
    }


def _leaves(node: Any, name: str) -> Iterator[tuple[str, Array]]:
    """Yield the arrays in nested dicts, lists and JAX pytrees, in order; everything else is skipped."""
    if compat.is_array_api_obj(node):
        yield name or "0", node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{name}.{key}".lstrip("."))
    elif isinstance(node, list | tuple):
        for number, value in enumerate(node):
            yield from _leaves(value, f"{name}.{number}".lstrip("."))
    elif _is_pytree(node):
        import jax

        for path, value in jax.tree_util.tree_flatten_with_path(node)[0]:
            label = jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")  # added by flax.nnx
            if compat.is_array_api_obj(value):
                yield f"{name}.{label}".lstrip("."), value


def _is_pytree(node: Any) -> bool:
    jax = sys.modules.get("jax")  # already imported if the node is a pytree
    return jax is not None and not jax.tree_util.all_leaves([node])


def _norms(named: Mapping[str, Array], known: set[str]) -> set[str]:
    """Return the names of parameters that belong to normalisation layers.

    If the class of a layer is unknown, the names and shapes of its parameters decide: a scale has one dimension or the
    shape of the bias.
    """
    layers: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for name, values in named.items():
        layer, _, leaf = name.rpartition(".")
        layers[layer][leaf] = tuple(values.shape)
    found = set()
    for layer, shapes in layers.items():
        scale = shapes.get("weight")
        normalises = (
            layer in known
            or not _STATISTICS.isdisjoint(shapes)
            or bool({"gamma", "scale"} & set(shapes))
            or (scale is not None and (len(scale) == 1 or scale == shapes.get("bias")))
            or (all(leaf.isdigit() and len(shape) == 1 for leaf, shape in shapes.items()) and layer != "")
        )
        if normalises:
            found |= {f"{layer}.{leaf}".lstrip(".") for leaf in shapes}
    return found


def _is_bias(name: str) -> bool:
    """Return True if a parameter has the name of a bias; in equinox, a bias can have the shape (out, 1, 1)."""
    leaf = name.rpartition(".")[2]
    return leaf.startswith("bias") or leaf.endswith("_bias")


def _is_float(name: str, values: Array) -> bool:
    if name.rpartition(".")[2] in _STATISTICS:
        return False
    kind = str(values.dtype)
    if "complex" in kind:
        raise TypeError(f"{name} is complex ({kind}): expected real weights")
    return "float" in kind  # by name, because the array API standard lacks bfloat16 and float8


def _as_float(name: str, values: Array) -> np.ndarray:
    """Return a float32 or float64 copy, which later changes to the model do not affect."""
    if compat.is_torch_array(values):
        values = values.detach().cpu()
        values = values.float() if values.element_size() < 4 else values
    array = to_numpy(values)
    array = np.array(array, dtype=np.float64 if array.dtype == np.float64 else np.float32)
    if not np.isfinite(array).all():
        found = f"NaN or infinity in {int((~np.isfinite(array)).sum())} of {array.size} entries"
        raise ValueError(f"{name}: expected finite weights, got {found}; pass a model with finite weights")
    return array


def _identity(values: Array) -> Any:
    """Return a key that is equal for arrays that share the same memory."""
    shape = tuple(values.shape)
    if compat.is_torch_array(values) and values.numel():
        return "torch", str(values.device), values.data_ptr(), shape, values.stride()
    if isinstance(values, np.ndarray) and values.size:
        return "numpy", values.__array_interface__["data"][0], shape, values.strides
    return id(values)
