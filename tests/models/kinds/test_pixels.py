"""Pixels: maps equal the scores of the flattened logits, ignored labels are left out, and the model stays as it was."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from qipf.models import collect_pixels, score_pixels
from qipf.models.kinds import pixel_parts

N, C, H, W = 5, 4, 6, 7


class Small(nn.Module):
    """Logits at full size from features at half of it."""

    def __init__(self, half: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Conv2d(8, C, 1)
        self.half = half

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.body(x)
        if self.half:
            hidden = hidden[:, :, ::2, ::2]
        out = self.head(hidden)
        return {"out": nn.functional.interpolate(out, size=x.shape[2:]) if self.half else out}


@pytest.fixture(scope="module")
def model() -> Small:
    torch.manual_seed(0)
    return Small().train()


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randn(N, 3, H, W, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def labels() -> Tensor:
    labels = torch.randint(C, (N, H, W), generator=torch.Generator().manual_seed(2))
    labels[0, :2], labels[1] = 255, -100
    return labels


def logits_of(model: Small, images: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        result = model(images)["out"]
    model.train()
    return result


@pytest.mark.parametrize("block", [C, 50, 2**22])
def test_maps_are_the_scores_of_every_pixel(model, images, labels, block, monkeypatch) -> None:
    monkeypatch.setattr(pixel_parts, "BLOCK", block)
    logits = logits_of(model, images)
    expected = torch.distributions.Categorical(logits=logits.permute(0, 2, 3, 1)).entropy()
    maps = list(score_pixels(model, (images, labels), qipf.Entropy(), batch_size=2, progress=False))
    assert [len(one) for one in maps] == [2, 2, 1]
    torch.testing.assert_close(torch.cat([one.uncertainty for one in maps]), expected)
    torch.testing.assert_close(torch.cat([one.predicted for one in maps]), logits.argmax(1))
    known = torch.cat([one.labelled for one in maps])
    torch.testing.assert_close(known, (labels >= 0) & (labels < C))
    torch.testing.assert_close(torch.cat([one.correct for one in maps])[known], (logits.argmax(1) == labels)[known])

    means = np.concatenate([one.per_image() for one in maps])
    assert np.isnan(means[1])  # no pixel of this image is labelled
    np.testing.assert_allclose(means[0], expected[0, 2:].mean(), rtol=1e-6)
    np.testing.assert_allclose(means[2], expected[2].mean(), rtol=1e-6)
    regions = maps[0].per_region(0, maps[0].predicted[0], "max")
    for region, value in enumerate(regions):
        inside = expected[0][logits[0].argmax(0) == region]
        assert np.isnan(value) if len(inside) == 0 else np.isclose(value, inside.max())


def test_the_model_is_as_it_was_between_two_maps(model, images) -> None:
    for _ in score_pixels(model, images, qipf.Entropy(), batch_size=2, progress=False):
        assert model.training
        assert torch.is_grad_enabled()
        assert not model.head._forward_hooks


@pytest.mark.parametrize("features", [True, "body"])
def test_a_sample_has_the_logits_features_and_labels_of_its_pixels(model, images, labels, features) -> None:
    found = collect_pixels(model, (images, labels), per_image=20, features=features, batch_size=2, progress=False)
    assert len(found) == 4 * 20  # none of the image without labels
    torch.testing.assert_close(
        found.logits, found.features @ model.head.weight[:, :, 0, 0].T + model.head.bias, rtol=1e-4, atol=1e-5
    )
    flat = logits_of(model, images).permute(0, 2, 3, 1)
    for row, label in zip(found.logits, found.labels, strict=True):
        place = (flat - row).abs().sum(-1).flatten().argmin()
        assert labels.flatten()[place] == label
    again = collect_pixels(model, (images, labels), per_image=20, batch_size=2, progress=False)
    torch.testing.assert_close(again.logits, found.logits)
    everything = collect_pixels(model, (images, labels), per_image=1000, progress=False)
    assert len(everything) == int(((labels >= 0) & (labels < C)).sum())


def test_smaller_maps_of_features_are_read_at_the_nearest_place(images) -> None:
    torch.manual_seed(0)
    half = Small(half=True).eval()
    found = collect_pixels(half, images[:, :, :, :6], per_image=36, features=True, progress=False)
    expected = found.features @ half.head.weight[:, :, 0, 0].T + half.head.bias
    torch.testing.assert_close(found.logits, expected, rtol=1e-4, atol=1e-5)


def test_a_probe_scores_maps(model, images, labels) -> None:
    fit = collect_pixels(model, (images, labels), per_image=50, features=True, progress=False)
    probe = qipf.Probe(hidden=16, epochs=1).fit(None, fit)
    (maps,) = score_pixels(model, images[:2], probe, progress=False)
    assert maps.uncertainty.shape == (2, H, W)
    assert maps.labels is None
    with pytest.raises(ValueError, match="no labels"):
        _ = maps.correct


def test_a_scorer_of_another_network_draws_a_warning(model, images, labels) -> None:
    scorer = qipf.KNN().fit(model, collect_pixels(model, (images, labels), features=True, progress=False))
    torch.manual_seed(7)
    other = Small()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(score_pixels(model, images, scorer, progress=False))
    with pytest.warns(UserWarning, match="weights"):
        list(score_pixels(other, images, scorer, progress=False))


class TwoHeads(nn.Module):
    """As the networks of torchvision: an auxiliary head, which is called last, and logits that are enlarged."""

    def __init__(self, mode: str, *, blend: bool = False) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.classifier = nn.Sequential(nn.Conv2d(8, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, C, 1))
        self.aux_classifier = nn.Sequential(nn.Conv2d(8, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, C, 1))
        self.mode, self.blend = mode, blend

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.body(x).relu()
        found = {"out": self.classifier(hidden), "aux": self.aux_classifier(hidden)}
        corners = None if self.mode in ("nearest", "area") else False
        large = {
            name: nn.functional.interpolate(one, size=x.shape[2:], mode=self.mode, align_corners=corners)
            for name, one in found.items()
        }
        return {**large, "out": large["out"].softmax(1)} if self.blend else large


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_an_auxiliary_head_is_not_taken_for_the_classifier(images, labels, mode: str) -> None:
    torch.manual_seed(0)
    net = TwoHeads(mode)
    found = collect_pixels(net, (images, labels), per_image=20, features=True, batch_size=2, progress=False)
    named = collect_pixels(net, (images, labels), per_image=20, features="classifier.1", batch_size=2, progress=False)
    assert found.features is not None
    assert found.features.shape == (len(found), 6)
    torch.testing.assert_close(found.features, named.features)
    torch.testing.assert_close(found.logits, named.logits)


def test_an_error_names_the_layers_where_the_classifier_cannot_be_found(images) -> None:
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"classifier\.2, aux_classifier\.2; name .* features='classifier\.1'"):
        collect_pixels(TwoHeads("bilinear", blend=True), images, features=True, progress=False)


def test_features_are_what_the_named_module_returned(images) -> None:
    """Even where the next module overwrites them."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(images.shape[1], 5, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(5, 4, 1))
    found = collect_pixels(net, images, per_image=10**6, features="0", progress=False).features
    expected = net[0](images).detach().movedim(1, -1).reshape(-1, 5)
    assert (expected < 0).any()
    torch.testing.assert_close(found.sort(0).values, expected.sort(0).values)


def test_what_does_not_fit_is_named(model, images, labels) -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got Tensor"):
        next(score_pixels(images, model, qipf.Entropy(), progress=False))
    with pytest.raises(ValueError, match="batch 0: the model failed on float32"):
        collect_pixels(model, images[:, :1], progress=False)
    cases: list[tuple[Any, str]] = [
        ((images, labels[:, 0]), r"expected whole numbers of shape \(4, 6, 7\).* got int64 of shape \(4, 7\)"),
        ((images, labels.float()), "got float32"),
        ((images, labels.clamp(0, 254) + 4), "expected classes from 0 to 3"),
    ]
    for data, words in cases:
        with pytest.raises(ValueError, match=words):
            collect_pixels(model, data, progress=False)
    with pytest.raises(ValueError, match=r"expected logits \(N, C, H, W\), got \(4, 126\)"):
        next(iter(score_pixels(nn.Flatten(), images, qipf.Entropy(), progress=False)))
