"""The twin study: pieces of a network make the network, no digit is mirrored, and its page quotes the record."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

pytest.importorskip("pandas")

from evidence.results import ROOT, Results
from qipf.study import nets
from twin import halves, tables


@pytest.mark.parametrize("name", halves.DEPTHS)
def test_a_copy_before_training_gives_the_logits_of_the_network(name):
    net = nets.build(name, seed=0).eval()
    channels, size = (1, 28) if name == "lenet" else (3, 32)
    images = torch.rand(3, channels, size, size, generator=torch.Generator().manual_seed(0))
    parts = halves.pieces(name, net)
    for start in halves.DEPTHS[name].values():
        rest = halves.frozen(parts[start:])
        torch.testing.assert_close(rest(parts[:start](images)), net(images))


def test_views_of_digits_move_them_and_mirror_none():
    images = torch.zeros(1, 1, 5, 5)
    images[0, 0, 2, 1] = 1.0
    found = [tuple(map(int, view(images)[0, 0].nonzero()[0])) for view in halves.views(digits=True)]
    assert found == [(2, 1), (2, 2), (3, 1), (2, 0)]
    assert [tuple(map(int, view(images)[0, 0].nonzero()[0])) for view in halves.views(digits=False)[:2]] == [
        (2, 1),
        (2, 3),
    ]


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
            (row,) = (n for n, row in enumerate(facts["rows"]) if row["score"] == "probe without elastic")
            shifted = [n for n, condition in enumerate(facts["conditions"]) if condition["group"] == "shift"]
            with np.load(path.with_suffix(".npz")) as file:
                values.append(file["metrics"][row, 0, shifted].mean())  # ten intensities in every family
        shown.append(f"{np.mean(values):.3f}"[1:])
    assert tables.one(Results(), "probe without elastic", "shift", "vgg3", "resnet18") == " and ".join(shown)
