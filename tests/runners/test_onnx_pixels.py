"""Pixels of an ONNX model: the same maps as those of the torch module that it was made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import qipf
from pixel_graphs import Segmenter, pictures, segmenter


def entropy(logits: torch.Tensor) -> torch.Tensor:
    if logits.shape[1] == 1:
        return torch.distributions.Bernoulli(logits=logits[:, 0].double()).entropy()
    return torch.distributions.Categorical(logits=logits.movedim(1, 3).double()).entropy()


@pytest.mark.parametrize(("ending", "classes"), [("log-softmax", 3), ("transposed", 3), ("sigmoid", 1), ("", 1)])
def test_maps_are_those_of_the_module(tmp_path: Path, ending: str, classes: int) -> None:
    path = segmenter(tmp_path / "net.onnx", ending, classes)
    x, y = pictures(5, 1, classes)
    with torch.no_grad():
        logits = Segmenter(classes)(torch.from_numpy(x))
    found = list(qipf.Entropy().stream(path, (x, y), batch_size=4, progress=False))
    assert [len(one) for one in found] == [4, 1]
    doubt = torch.cat([one.uncertainty for one in found])
    np.testing.assert_allclose(doubt, entropy(logits), atol=2e-5)
    predicted = logits.argmax(1) if classes > 1 else (logits[:, 0] > 0).long()
    assert torch.equal(torch.cat([one.predicted for one in found]), predicted)
    assert torch.equal(torch.cat([one.counted for one in found]), torch.from_numpy(y != 255))


@pytest.mark.parametrize("enlarged", [False, True])
def test_a_probe_reads_the_map_before_the_classes(tmp_path: Path, enlarged: bool) -> None:
    path, module = segmenter(tmp_path / "net.onnx", "softmax", enlarged=enlarged), Segmenter(enlarged=enlarged)
    x, y = pictures(20, 1)
    given = torch.from_numpy(x), torch.from_numpy(y)
    ours, theirs = (qipf.collect(net, given, progress=False) for net in (path, module))
    named = qipf.collect(path, given, features="map", progress=False)
    for name in ("logits", "features", "labels"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-5)
        np.testing.assert_array_equal(getattr(named, name), getattr(ours, name))
    assert ours.features is not None
    assert ours.features.shape == (20 * 79, 8)
