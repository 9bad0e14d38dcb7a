"""What to read of a module's output, as one row of numbers per input.

A reading is written after the module's name, separated by "@". The name alone averages over space or over tokens.

| reading | the module's output | the row |
|---|---|---|
| `name` | any | averaged over space, or over tokens |
| `name@2x2` | a map (N, channels, height, width) | averaged over a grid of 2x2 cells, flattened |
| `name@2x2-last` | a map (N, height, width, channels) | the same |
| `name@tokens1` | tokens (N, length, width) | the first token and the mean of the others |
| `name@tokens2` | tokens with two for classes | the first two tokens and the mean of the others |
| `name@first` | tokens, padded to a common length | the first token alone |
| `name@rows` | (N, width) | as it is |
| `name@input` | any; what goes *into* the module is (N, width) | the input as it is |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

_FORM = re.compile(r"(?:([1-9]\d*)x([1-9]\d*)(-last)?|tokens([12])|first|rows|input)\Z")


@dataclass(frozen=True)
class Reading:
    """A module's name and how its output becomes rows.

    Attributes:
        module: the name of the module.
        form: what stands after the "@"; empty to average.
    """

    module: str
    form: str = ""

    @classmethod
    def parse(cls, text: str) -> Reading:
        """The reading that `text` describes.

        Raises:
            ValueError: the part after the "@" is not a known reading.
        """
        module, _, form = text.partition("@")
        if form and not _FORM.match(form):
            raise ValueError(
                f"layers: {text!r} ends in an unknown reading {form!r}; expected for instance "
                f"'{module}@2x2' for a map, '{module}@tokens1' for tokens, or '{module}' for the average"
            )
        return cls(module, form)

    def __str__(self) -> str:
        return f"{self.module}@{self.form}" if self.form else self.module

    @property
    def before(self) -> bool:
        """Whether it reads what goes into the module, rather than what comes out."""
        return self.form == "input"

    def rows(self, output: Tensor) -> Tensor:
        """The rows (N, D), in the precision of `output`.

        Args:
            output: the output of the module, or its input where `before` is true.

        Raises:
            ValueError: the tensor does not have the dimensions that the reading needs.
        """
        found = _FORM.match(self.form)
        if found is None:
            raise ValueError(f"{self}: a plain name is averaged, not read as a grid or as tokens")
        height, width, last, tokens = found.groups()
        wanted = 4 if height else 2 if self.form in ("rows", "input") else 3
        if output.ndim != wanted or (tokens and output.shape[1] <= int(tokens)):
            more = f" and more than {tokens} token(s)" if tokens else ""
            raise ValueError(
                f"{self}: this reading needs a tensor of {wanted} dimensions{more}, and the module has one of shape "
                f"{tuple(output.shape)}; choose another reading of {self.module!r}"
            )
        if height:
            return _grid(output.permute(0, 3, 1, 2) if last else output, int(height), int(width))
        if tokens:
            count = int(tokens)
            return torch.cat([output[:, :count].flatten(1), output[:, count:].mean(1)], dim=1)
        return output[:, 0] if self.form == "first" else output


def _grid(maps: Tensor, rows: int, columns: int) -> Tensor:
    """Means over a grid of cells as one product, which every exporter knows, unlike adaptive pooling."""
    height, width = maps.shape[-2:]
    if (height, width) == (rows, columns):
        return maps.flatten(1)
    sizes = (height, width, rows, columns)
    known = not torch.compiler.is_compiling() and type(maps) is Tensor  # a graph makes a constant of its own
    weights = _known(sizes, maps.dtype, maps.device) if known else cell_means(*sizes).to(maps)
    return (maps.flatten(2) @ weights).flatten(1)


@lru_cache(maxsize=64)
def _known(sizes: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # so that it may be used anywhere later
        return cell_means(*sizes).to(device, dtype)


def cell_means(height: int, width: int, rows: int, columns: int) -> Tensor:
    """The (height * width, rows * columns) matrix of adaptive average pooling, float32."""
    return torch.kron(torch.tensor(_cells(height, rows)), torch.tensor(_cells(width, columns)))


def _cells(size: int, cells: int) -> list[list[float]]:
    """Cell k averages the places from floor(k size / cells) to ceil((k + 1) size / cells), as in torch."""
    ends = [(cell * size // cells, -(-(cell + 1) * size // cells)) for cell in range(cells)]
    return [[1 / (stop - start) if start <= place < stop else 0.0 for start, stop in ends] for place in range(size)]
