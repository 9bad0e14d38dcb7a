"""The twin study: pieces of a network make the network, and its page quotes the record."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

pytest.importorskip("pandas")

from evidence.results import ROOT, Results
from qipf.study import nets
from twin import halves, tables


@pytest.mark.parametrize("name", halves.MIDDLE)
def test_pieces_of_a_network_give_its_logits(name):
    net = nets.build(name, seed=0).eval()
    channels, size = (1, 28) if name == "lenet" else (3, 32)
    halves.check_pieces(name, net, torch.rand(3, channels, size, size, generator=torch.Generator().manual_seed(0)))


def test_images_without_bending_are_clean_in_one_of_four_cases():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(400, 1, 8, 8, generator=generator)
    same = (halves.draw_without_bending(images, generator) == images).flatten(1).all(1).float().mean()
    assert 0.18 < float(same) < 0.34


def test_a_published_number_by_hand():
    """The probe without elastic distortion under the five shifts, from the files alone."""
    shown = []
    for pair in ("vgg3", "resnet18"):
        values = []
        for path in sorted((ROOT / "results" / "twin").glob(f"{pair}-*.json")):
            facts = json.loads(path.read_text())
            found = [n for n, row in enumerate(facts["rows"]) if row["score"] == "probe without elastic"]
            shifted = [n for n, condition in enumerate(facts["conditions"]) if condition["group"] == "shift"]
            with np.load(path.with_suffix(".npz")) as file:
                values += [file["metrics"][row, 0, shifted].mean() for row in found]  # ten intensities in every family
        shown.append(f"{np.mean(values):.3f}"[1:])
    assert tables.one(Results(), "probe without elastic", "shift", "vgg3", "resnet18") == " and ".join(shown)
