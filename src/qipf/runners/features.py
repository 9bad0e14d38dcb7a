"""Specify the features to read from a model, and reduce them to one row per input.

A reading is the name of a module or tensor, optionally followed by "@" and a form. Without a form, the tensor is
averaged over space or tokens.

| reading | the tensor | the row |
|---|---|---|
| `name` | any | averaged over space, or over tokens |
| `name@mean-last` | (N, ..., width) | averaged over all dimensions but the first and the last |
| `name@2x2` | a feature map (N, channels, height, width) | averaged over a grid of 2x2 cells, flattened |
| `name@2x2-last` | a feature map (N, height, width, channels) | the same |
| `name@tokens1` | tokens (N, length, width) | the first token and the mean of the others |
| `name@tokens2` | tokens with two class tokens | the first two tokens and the mean of the others |
| `name@first` | tokens, padded to a common length | the first token alone |
| `name@rows` | (N, width) | unchanged |
| `name@input` | the *input* of the module, (N, width) | unchanged |
| `name@whole` | any | not reduced: (N, T, D) for tokens, (N, D, h, w) for pixels |
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, namespace

WIDEST = 2048
"""The maximum number of features in the default reading of a map; a map with more channels yields one per channel."""
_FORM = re.compile(r"(?:([1-9]\d*)x([1-9]\d*)(-last)?|tokens([12])|first|rows|input|mean-last|whole)\Z")


@dataclass(frozen=True)
class FeatureSpec:
    """The name of a module or tensor to read, and the form of its rows.

    Attributes:
        source: The name; "" for the input of the layer that computes the logits.
        form: A form from the table at the top of this module, "mean" if only a name is given, or "copy".
        copy: The `qipf.runners.halves.SecondHalf` whose logits are read, for the form "copy".
    """

    source: str
    form: str = "mean"
    copy: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str, known: Collection[str] = ()) -> FeatureSpec:
        """Parse a reading.

        Args:
            text: A name with an optional form.
            known: All names in the model, if names may contain an "@", as in ONNX files.
        """
        if text in known:
            return cls(text)
        name, at, form = text.rpartition("@") if known else text.partition("@")
        if not at or (known and not _FORM.match(form) and name not in known):
            return cls(text)
        if not _FORM.match(form):
            hint = f"use '{name}@2x2' for a map, '{name}@tokens1' for tokens, or '{name}' for the average"
            raise Problem("layers", f"{text!r} ends in the unknown form {form!r}", hint=hint)
        return cls(name, form)

    def __str__(self) -> str:
        return self.source if self.form == "mean" else f"{self.source}@{self.form}"

    @property
    def before(self) -> bool:
        """True if the input of a module is read instead of its output."""
        return self.form == "input" or not self.source

    def rows(self, values: Array, *, channels_last: bool = False) -> Array:
        """Return the rows (N, D) in float32 or wider; for the form "whole", return the values unchanged.

        Args:
            values: The tensor that was read.
            channels_last: For the form "mean", keep the last dimension instead of the second.
        """
        if self.form == "whole":
            return values
        values = _wide(values, self)
        if self.form in ("mean", "mean-last"):
            return _averaged(values, channels_last or self.form == "mean-last")
        found = _FORM.match(self.form)
        height, width, last, tokens = found.groups() if found else (None,) * 4
        wanted = 4 if height else 2 if self.form in ("rows", "input") else 3
        if values.ndim != wanted or (tokens and values.shape[1] <= int(tokens)):
            more = f" and at least {int(tokens) + 1} tokens" if tokens else ""
            raise Problem(
                "layers", f"{self}: expected a tensor with {wanted} dimensions{more}, got shape {tuple(values.shape)}",
                hint=f"choose another reading of {self.source!r}",
            )  # fmt: skip
        if height and width:
            xp = namespace(values)
            return _grid(xp.permute_dims(values, (0, 3, 1, 2)) if last else values, int(height), int(width))
        if tokens:
            xp, count = namespace(values), int(tokens)
            first = xp.reshape(values[:, :count, :], (values.shape[0], -1))
            return xp.concat([first, xp.mean(values[:, count:, :], axis=1)], axis=1)
        return values[:, 0, :] if self.form == "first" else values


HEAD = FeatureSpec("")
"""The input of the layer that computes the logits, averaged to one row per input."""


class Candidate(NamedTuple):
    """A tensor that a probe may read.

    Attributes:
        shape: The shape for a few rows.
        layer: "linear"; "signal" for a layer with outputs (N, channels, length); "" for other layers.
        head: The reading of the input of the layer that computes the logits, if the tensor is its input or output.
        width: The number of features in that input.
    """

    name: str
    shape: tuple[int, ...]
    layer: Literal["linear", "signal", ""] = ""
    head: FeatureSpec | None = None
    width: int | None = None

    @property
    def spatial(self) -> bool:
        """True for a feature map or a sequence with more than one position."""
        if len(self.shape) == 4:
            return self.shape[2] * self.shape[3] > 1
        return len(self.shape) == 3 and min(self.shape[1:]) > 1


def choose_reading(candidates: Sequence[Candidate], texts: bool) -> FeatureSpec:
    """Return the default reading of a probe.

    | last spatial candidate | reading |
    |---|---|
    | map (N, channels, height, width) | averages over a grid of cells: at most 2,048 features or one per channel |
    | tokens of an image | the class token (two if the model has two heads) and the mean of the other tokens |
    | tokens of a text | the input of the layer that computes the logits; the mean if each token has its own logits |
    | signal (N, channels, length) | the mean over the length |
    | none | the output of the first hidden linear layer, or else the input of the last layer |
    """
    heads = [one for one in candidates if one.head is not None]
    spatial = [one for one in candidates if one.spatial]
    if spatial:
        last = spatial[-1]
        signals = [one for one in spatial if one.shape == last.shape and one.layer == "signal"]
        if len(last.shape) == 3 and signals:
            return FeatureSpec(signals[-1].name)
        if len(last.shape) == 3 and texts:
            pooled = [one.head for one in heads if len(one.shape) == 2 and one.head is not None]
            return pooled[-1] if pooled else FeatureSpec(last.name)
        return FeatureSpec(last.name, _form(last.shape, [one.width for one in heads if one.width is not None]))
    linear = [one for one in candidates if one.layer == "linear" and one.head is None]
    if linear and len(linear[0].shape) == 2:
        return FeatureSpec(linear[0].name, "rows")
    pooled = [one.head for one in heads if one.head is not None and len(one.shape) == 2]
    if pooled:
        return pooled[-1]
    named = [f"{one.name!r} {one.shape}" for one in candidates if one.name and math.prod(one.shape[1:]) > 1]
    hint = f"name the features to read, for example {' or '.join(named[-5:])}"
    if not named:  # no module calls were recorded
        hint = "to use the inputs as features, pass a function of NumPy arrays that calls the model"
    raise Problem("features", "this model has no feature map, no tokens and no hidden linear layer", hint=hint)


def _form(shape: tuple[int, ...], widths: list[int]) -> str:
    if len(shape) == 3:
        return "tokens2" if len(widths) == 2 and shape[1] > 2 else "tokens1"
    width = widths[-1] if widths else None
    last = shape[3] == width and shape[1] != width
    channels, height, across = (shape[3], *shape[1:3]) if last else shape[1:]
    if channels * height * across > WIDEST:
        side = max(1, math.isqrt(WIDEST // channels))
        height, across = min(side, height), min(side, across)
    return f"{height}x{across}" + ("-last" if last else "")


def _wide(values: Array, spec: FeatureSpec) -> Array:
    """Return floating-point values in float32 or wider."""
    xp = namespace(values)
    if compat.is_torch_array(values):  # integer outputs of a module are accepted
        return values if values.is_floating_point() and values.element_size() >= 4 else values.float()
    if not xp.isdtype(values.dtype, "real floating"):
        raise Problem(
            "layers", f"the tensor {spec.source!r} has type {values.dtype}", hint="name a floating-point tensor"
        )
    return xp.astype(values, xp.float32) if xp.finfo(values.dtype).bits < 32 else values


def _averaged(values: Array, channels_last: bool) -> Array:
    xp, shape = namespace(values), values.shape
    if values.ndim <= 2:
        return xp.reshape(values, (shape[0], -1))
    if channels_last:
        return xp.mean(xp.reshape(values, (shape[0], -1, shape[-1])), axis=1)
    return xp.mean(xp.reshape(values, (shape[0], shape[1], -1)), axis=2)


def _grid(maps: Array, rows: int, columns: int) -> Array:
    """Average over a grid of cells with a matrix product, which, unlike adaptive pooling, can always be exported."""
    xp = namespace(maps)
    count, channels, height, width = maps.shape
    if (height, width) != (rows, columns):
        weights = _weights(maps, (height, rows), (width, columns))
        maps = xp.reshape(maps, (count, channels, height * width)) @ weights
    return xp.reshape(maps, (count, channels * rows * columns))


def _weights(maps: Array, *sizes: tuple[int, int]) -> Array:
    """Return the (height * width, rows * columns) matrix of adaptive average pooling, in the type of `maps`."""
    if not compat.is_torch_array(maps):
        return np.kron(*(np.asarray(_cells(*one)) for one in sizes)).astype(maps.dtype)
    import torch

    known = not torch.compiler.is_compiling() and type(maps) is torch.Tensor  # a traced graph needs its own constant
    return _kept(sizes, maps.dtype, maps.device) if known else _product(sizes).to(maps)


@lru_cache(maxsize=64)
def _kept(sizes: tuple[tuple[int, int], ...], dtype: Any, device: Any) -> Array:
    import torch

    with torch.inference_mode(False):  # inference tensors cannot be used in training
        return _product(sizes).to(device, dtype)


def _product(sizes: tuple[tuple[int, int], ...]) -> Array:
    import torch

    return torch.kron(*(torch.tensor(_cells(*one)) for one in sizes))


def _cells(size: int, cells: int) -> list[list[float]]:
    """Return averaging weights, (size, cells).

    As in torch's adaptive pooling, cell k spans floor(k * size / cells) to ceil((k + 1) * size / cells).
    """
    ends = [(cell * size // cells, -(-(cell + 1) * size // cells)) for cell in range(cells)]
    return [[1 / (stop - start) if start <= index < stop else 0.0 for start, stop in ends] for index in range(size)]
