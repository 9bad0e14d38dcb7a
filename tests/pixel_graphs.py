"""Small ONNX models that classify pixels, with the same network in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import helper
from torch import Tensor, nn
from torch.nn import functional

from onnx_graphs import FLOAT, save

ENDINGS = {
    "": [],
    "softmax": [("Softmax", "z", "y", {"axis": 1})],
    "log-softmax": [("LogSoftmax", "z", "y", {"axis": 1})],
    "sigmoid": [("Sigmoid", "z", "y", {})],
    "transposed": [  # what exporters made of a softmax over the second axis
        ("Transpose", "z", "moved", {"perm": [0, 2, 3, 1]}),
        ("Softmax", "moved", "p", {"axis": -1}),
        ("Transpose", "p", "y", {"perm": [0, 3, 1, 2]}),
    ],
}


class Segmenter(nn.Module):
    """Two convolutions, of which the second makes the logits at half the resolution where they are `enlarged`."""

    def __init__(self, classes: int = 3, enlarged: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enlarged = enlarged
        self.first = nn.Conv2d(3, 8, 3, stride=2 if enlarged else 1, padding=1)
        self.classes = nn.Conv2d(8, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        logits = self.classes(functional.relu(self.first(images)))
        return functional.interpolate(logits, scale_factor=2.0, mode="nearest") if self.enlarged else logits


def segmenter(path: Path, ending: str = "", classes: int = 3, enlarged: bool = False, batch: Any = "N") -> Path:
    """Write `Segmenter` as an ONNX model with one of `ENDINGS`."""
    net = Segmenter(classes, enlarged)
    nodes = [
        helper.make_node("Conv", ["images", "w", "b"], ["c"], pads=[1] * 4, strides=[2 if enlarged else 1] * 2),
        helper.make_node("Relu", ["c"], ["map"]),
        helper.make_node("Conv", ["map", "v", "a"], ["small" if enlarged else "z"]),
    ]
    more: dict[str, np.ndarray] = {}
    if enlarged:
        made = helper.make_node(
            "Resize", ["small", "", "scales"], ["z"], mode="nearest", coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )  # fmt: skip
        nodes.append(made)
        more["scales"] = np.asarray([1, 1, 2, 2], np.float32)
    nodes += [helper.make_node(kind, [given], [to], **settings) for kind, given, to, settings in ENDINGS[ending]]
    shape = [batch, classes, "H", "W"]
    weights = {
        name: values.detach().numpy()
        for name, values in (
            ("w", net.first.weight),
            ("b", net.first.bias),
            ("v", net.classes.weight),
            ("a", net.classes.bias),
        )
        if values is not None
    }
    inputs, outputs = [("images", FLOAT, [batch, 3, "H", "W"])], [("y" if ending else "z", FLOAT, shape)]
    return save(path, nodes, inputs, outputs, **weights, **more)


def pictures(count: int, seed: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 3, 8, 10), and labels that the network often predicts; one pixel of each has none."""
    rng = np.random.default_rng(seed)
    x = rng.random((count, 3, 8, 10)).astype(np.float32)
    with torch.no_grad():
        logits = Segmenter(classes)(torch.from_numpy(x)).numpy()
    y = (logits + 0.1 * rng.gumbel(size=logits.shape)).argmax(1) if classes > 1 else (logits[:, 0] > 0).astype(int)
    y[:, 0, 0] = 255
    return x, y
