"""Imagenette from a folder of JPEG files: which images fit the probe, which calibrate rivals, and which are judged."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

CLASSES = {
    "n01440764": 0, "n02102040": 217, "n02979186": 482, "n03000684": 491, "n03028079": 497,
    "n03394916": 566, "n03417042": 569, "n03425413": 571, "n03445777": 574, "n03888257": 701,
}  # fmt: skip
"""The ten classes of Imagenette, and their numbers among the 1,000 of ImageNet."""
FIT, HELD_OUT = 200, 50
"""Images per class that the probe and the rivals are fitted to."""
NEW = "ILSVRC2012_val"
"""How the names of images begin that are not training images of ImageNet."""


class Images(NamedTuple):
    """Images as bytes (N, 3, 224, 224), and classes out of 1,000."""

    pixels: Tensor
    labels: Tensor


def parts(listed: list[str]) -> dict[str, list[str]]:
    """The names "train", "held_out" and "test" of the protocol, chosen among `split/class/file` of the whole set."""
    listed = sorted(listed)
    rng = np.random.default_rng(0)
    found: dict[str, list[str]] = {"train": [], "held_out": [], "test": [n for n in listed if NEW in n]}
    for one in CLASSES:
        rest = [name for name in listed if f"/{one}/" in name and NEW not in name]
        order = [rest[n] for n in rng.permutation(len(rest))]
        found["train"] += order[:FIT]
        found["held_out"] += order[FIT : FIT + HELD_OUT]
    return found


def pixels(paths: list[Path]) -> Tensor:
    """The images of these files as bytes (N, 3, H, W), in this order."""
    from PIL import Image

    found = []
    for path in paths:
        with Image.open(path) as image:
            found.append(np.array(image.convert("RGB")))
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2)


def read(folder: Path, names: list[str]) -> Images:
    """The images of these names, in this order."""
    labels = [CLASSES[name.split("/")[1]] for name in names]
    return Images(pixels([folder / name for name in names]), torch.tensor(labels))
