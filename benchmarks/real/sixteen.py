"""The sixteen classes of the texture-shape conflict images, and which of the 1,000 classes of ImageNet belong to each.

The numbers are those that Geirhos et al. publish with the images (`rgeirhos/texture-vs-shape`,
code/helper/human_categories.py), and so is the rule: the probability of one of the sixteen is the mean of the
probabilities of its ImageNet classes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from qipf.models.outputs import Outputs


def _numbers(text: str) -> list[int]:
    """Numbers and ranges, for instance "8 10-16"."""
    found: list[int] = []
    for part in text.split():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


MEMBERS = {
    name: _numbers(text)
    for name, text in {
        "airplane": "404",
        "bear": "294-297",
        "bicycle": "444 671",
        "bird": "8 10-16 18-20 22-24 80-83 87-96 98-100 127-133 135-145",
        "boat": "472 554 625 814 914",
        "bottle": "440 720 737 898 899 901 907",
        "car": "436 511 817",
        "cat": "281-286",
        "chair": "423 559 765 857",
        "clock": "409 530 892",
        "dog": "152-191 193-203 205-226 228-241 243-250 252-257 259 261-263 265-268",
        "elephant": "385 386",
        "keyboard": "508 878",
        "knife": "499",
        "oven": "766",
        "truck": "555 569 656 675 717 734 864 867",
    }.items()
}
NAMES = list(MEMBERS)
OF_CLASS = {number: place for place, numbers in enumerate(MEMBERS.values()) for number in numbers}
"""Which of the sixteen an ImageNet class belongs to."""


def log_means(logits: Tensor) -> Tensor:
    """The log of the mean probability of each of the sixteen, (N, 16), from 1,000 logits."""
    logs = logits.double().log_softmax(1)
    means = [logs[:, numbers].logsumexp(1) - math.log(len(numbers)) for numbers in MEMBERS.values()]
    return torch.stack(means, dim=1).to(logits.dtype)


def inside(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The rows whose ImageNet class belongs to one of the sixteen, and which one, from 0 to 15."""
    place = torch.full((1000,), -1, device=labels.device)
    for number, own in OF_CLASS.items():
        place[number] = own
    found = place[labels.long()]
    rows = (found >= 0).nonzero()[:, 0]
    return rows, found[rows]


def regrouped(outputs: Outputs, labels: Tensor) -> Outputs:
    """The same outputs with sixteen logits and these labels."""
    return Outputs(log_means(outputs.logits), outputs.features, labels, outputs.layers)


def sixteen(outputs: Outputs) -> Outputs:
    """The rows of the sixteen classes, with sixteen logits and labels from 0 to 15."""
    assert outputs.labels is not None
    rows, labels = inside(outputs.labels)
    return regrouped(outputs[rows], labels)
