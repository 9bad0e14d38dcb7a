"""Data sets that need no file: digits, two moons and the regression."""

import numpy as np
import pytest
import torch

from qipf.study import datasets


def test_digits_are_all_there_split_by_class() -> None:
    from sklearn.datasets import load_digits

    dataset = datasets.load()
    assert dataset.name == "digits"
    assert len(dataset.train.targets) + len(dataset.test.targets) == 1797
    both = torch.cat([dataset.train.inputs, dataset.test.inputs])[:, 0].numpy() * 16
    assert sorted(map(bytes, both.astype(np.uint8))) == sorted(map(bytes, load_digits().images.astype(np.uint8)))
    share = dataset.test.targets.bincount() / torch.cat([dataset.train.targets, dataset.test.targets]).bincount()
    assert float((share - 1 / 3).abs().max()) < 0.004
    assert torch.equal(datasets.load("digits").test.inputs, dataset.test.inputs)
    assert dataset.train.inputs.dtype == torch.float32
    assert float(dataset.train.inputs.max()) == 1.0


def test_two_moons_lie_on_their_half_circles() -> None:
    points, labels = datasets.two_moons(400, noise=0.0, seed=1)
    assert labels.bincount().tolist() == [200, 200]
    upper, lower = points[labels == 0], points[labels == 1]
    torch.testing.assert_close(upper.norm(dim=1), torch.ones(200))
    torch.testing.assert_close((lower - torch.tensor([1.0, 0.5])).norm(dim=1), torch.ones(200))
    assert float(upper[:, 1].min()) >= 0
    assert float(lower[:, 1].max()) <= 0.5
    dataset = datasets.load("two-moons", seed=2)
    assert torch.equal(dataset.train.inputs, datasets.load("two-moons", seed=2).train.inputs)
    assert not torch.equal(dataset.train.inputs, datasets.load("two-moons", seed=3).train.inputs)
    assert not torch.equal(dataset.train.inputs, dataset.test.inputs)
    noisy = datasets.two_moons(20_000, noise=0.15, seed=0)
    radius = noisy.inputs[noisy.targets == 0].norm(dim=1)
    assert float(radius.std()) == pytest.approx(0.15, rel=0.05)


def test_the_regression_pairs_lie_in_the_seen_regions_near_the_curve() -> None:
    dataset = datasets.load("regression")
    x, y = dataset.train.inputs[:, 0].double(), dataset.train.targets.double()
    assert x.shape == (120,)
    assert bool((((x >= -1.2) & (x <= 0.1)) | ((x >= 0.7) & (x <= 1))).all())
    assert int((x > 0.5).sum()) == 33, "30 of 110 pairs, as in the authors' program"
    many = datasets.regression(20_000, noise=0.001)
    x, y = many.inputs[:, 0].double(), many.targets.double()
    slope = 4 * torch.cos(4 * x) + 13 * torch.cos(13 * x)  # of y in the noise, at noise 0
    error = y - (x + torch.sin(4 * x) + torch.sin(13 * x))
    assert float((error / slope)[slope.abs() > 2].std()) == pytest.approx(0.001, rel=0.05)
    assert dataset.test.inputs.min() == -2.5
    assert dataset.test.inputs.max() == 2
    at = dataset.test.inputs[:, 0].double()
    expected = at + torch.sin(4 * at) + torch.sin(13 * at)
    torch.testing.assert_close(dataset.test.targets.double(), expected, atol=1e-5, rtol=0)
    assert dataset.classes == 1
