"""Pixels: maps equal the scores of the flattened logits, ignored labels are left out, and the model stays as it was."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from qipf.data.batches import Source
from qipf.tasks import Pixels, summarise
from qipf.tasks import pixels as module

N, C, H, W = 5, 4, 6, 7


def read(model: Any, data: Any, *, features: Any = False, batch_size: int | None = None, **options: Any) -> Any:
    task = Pixels(**options)
    return qipf.collect(model, data, task=task, features=features, batch_size=batch_size, progress=False)


def stream(model: Any, data: Any, scorer: Any, *, batch_size: int | None = None, **options: Any) -> Any:
    return scorer.stream(model, data, task=Pixels(**options), batch_size=batch_size, progress=False)


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


@pytest.mark.parametrize("block", [C, 50])
def test_maps_are_the_scores_of_every_pixel(model, images, labels, block, monkeypatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    logits = logits_of(model, images)
    expected = torch.distributions.Categorical(logits=logits.permute(0, 2, 3, 1)).entropy()
    maps = list(stream(model, (images, labels), qipf.Entropy(), batch_size=2))
    assert [len(one) for one in maps] == [2, 2, 1]
    torch.testing.assert_close(torch.cat([one.uncertainty for one in maps]), expected)
    torch.testing.assert_close(torch.cat([one.predicted for one in maps]), logits.argmax(1))
    known = torch.cat([one.counted for one in maps])
    torch.testing.assert_close(known, (labels >= 0) & (labels < C))
    torch.testing.assert_close(torch.cat([one.correct for one in maps])[known], (logits.argmax(1) == labels)[known])

    means = np.concatenate([one.per_input() for one in maps])
    assert np.isnan(means[1])  # no pixel of this image is labelled
    np.testing.assert_allclose(means[0], expected[0, 2:].mean(), rtol=1e-6)
    np.testing.assert_allclose(means[2], expected[2].mean(), rtol=1e-6)
    regions = summarise(maps[0].uncertainty[0], maps[0].predicted[0], how="max")
    for region, value in enumerate(regions):
        inside = expected[0][logits[0].argmax(0) == region]
        assert np.isnan(value) if len(inside) == 0 else np.isclose(value, inside.max())


@pytest.mark.parametrize("features", [None, "body"])
def test_a_sample_has_the_logits_features_and_labels_of_its_pixels(model, images, labels, features) -> None:
    found = read(model, (images, labels), per_image=20, features=features, batch_size=2)
    assert len(found) == 4 * 20  # none of the image without labels
    torch.testing.assert_close(
        found.logits, found.features @ model.head.weight[:, :, 0, 0].T + model.head.bias, rtol=1e-4, atol=1e-5
    )
    flat = logits_of(model, images).permute(0, 2, 3, 1)
    for row, label in zip(found.logits, found.labels, strict=True):
        place = (flat - row).abs().sum(-1).flatten().argmin()
        assert labels.flatten()[place] == label
    again = read(model, (images, labels), per_image=20, batch_size=2)
    torch.testing.assert_close(again.logits, found.logits)
    everything = read(model, (images, labels), per_image=1000)
    assert len(everything) == int(((labels >= 0) & (labels < C)).sum())
    batches = zip(images.split(2), labels.split(2), strict=True)  # of unknown number
    assert len(qipf.collect(model, batches, task="pixels", most=7, progress=False)) == 7


def test_smaller_maps_of_features_are_read_at_the_nearest_place(images) -> None:
    torch.manual_seed(0)
    half = Small(half=True).eval()
    found = read(half, images[:, :, :, :6], per_image=36, features=None)
    expected = found.features @ half.head.weight[:, :, 0, 0].T + half.head.bias
    torch.testing.assert_close(found.logits, expected, rtol=1e-4, atol=1e-5)


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
        return {**large, "out": large["out"] + large["aux"]} if self.blend else large


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_an_auxiliary_head_is_not_taken_for_the_classifier(images, labels, mode: str) -> None:
    torch.manual_seed(0)
    net = TwoHeads(mode)
    found = read(net, (images, labels), per_image=20, features=None, batch_size=2)
    named = read(net, (images, labels), per_image=20, features="classifier.1", batch_size=2)
    assert found.features is not None
    assert found.features.shape == (len(found), 6)
    torch.testing.assert_close(found.features, named.features)
    torch.testing.assert_close(found.logits, named.logits)


def test_an_error_names_the_layers_where_the_classifier_cannot_be_found(images) -> None:
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="classifier"):
        read(TwoHeads("bilinear", blend=True), images, features=None)


def test_features_are_what_the_named_module_returned(images) -> None:
    """Even where the next module overwrites them."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(images.shape[1], 5, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(5, 4, 1))
    found = read(net, images, per_image=10**6, features="0").features
    expected = net[0](images).detach().movedim(1, -1).reshape(-1, 5)
    assert (expected < 0).any()
    torch.testing.assert_close(found.sort(0).values, expected.sort(0).values)


def test_what_does_not_fit_is_named(model, images, labels) -> None:
    with pytest.raises(ValueError, match="batch 0"):
        read(model, images[:, :1])
    one_hot = nn.functional.one_hot(labels.clamp(0, 3), 4)
    for given in (labels[:, 0], labels[:, None], one_hot, labels.float(), labels[:, ::2, ::2]):
        with pytest.raises(ValueError, match=r"\(N, 6, 7\)"):
            read(model, (images, given))
    with pytest.raises(ValueError, match=r"\(N, C, H, W\)"):
        next(stream(nn.Flatten(), images, qipf.Entropy()))
    with pytest.raises(ValueError, match="pixel"):
        read(model, (images, torch.full_like(labels, 255)))
    with pytest.raises(ValueError, match="least"):
        list(stream(model, iter(()), qipf.Entropy()))
    for wrong in ("255", 255.0, [True]):
        with pytest.raises(TypeError, match="ignore"):
            Pixels(ignore=wrong)  # pyright: ignore[reportArgumentType]


def network(classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, classes, 1))


@pytest.fixture
def grey() -> Tensor:
    return torch.randn(6, 1, 5, 7, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def three() -> Tensor:
    return torch.randint(3, (6, 5, 7), generator=torch.Generator().manual_seed(1))


def maps(model: nn.Module, data: Any, **options: Any) -> tuple[Tensor, ...]:
    """Uncertainty, predicted and counted of all images."""
    size = 4 if isinstance(data, tuple | Tensor) else None
    found = list(stream(model, data, qipf.Entropy(), batch_size=size, **options))
    return tuple(torch.cat([getattr(one, name) for one in found]) for name in ("uncertainty", "predicted", "counted"))


def test_a_wrong_label_is_named_by_image_row_and_column(grey, three) -> None:
    three[5, 2, 3] = three[5, 4, 1] = 7
    three[4, 0] = 255
    for run in (
        lambda: maps(network(), (grey, three)),
        lambda: maps(network(), ((grey[row : row + 1], three[row : row + 1]) for row in range(6))),
        lambda: maps(network(), (grey, three), tile=4, overlap=1),
        lambda: read(network(), (grey, three)),
        lambda: qipf.default(network(), (grey, three), progress=False),
    ):
        with pytest.raises(ValueError, match="column"):
            run()
    numbered = Source([(grey[:4], three[:4]), (grey[4:], three[4:])], 4, range(10, 22, 2))
    with pytest.raises(ValueError, match="row 20"):
        qipf.default(network(), numbered, progress=False)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("tile", [None, 4])
def test_logits_that_are_not_finite_are_named(grey, value, tile) -> None:
    class Spoiled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, -x], 1)

    grey[5, 0, 4, 6] = value
    words = "logits: .* at row 4, column 6 of the image in row 5"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tile that is compared may hold the value
        with pytest.raises(ValueError, match=words):
            maps(Spoiled(), grey, tile=tile, overlap=1)
        with pytest.raises(ValueError, match=words):
            read(Spoiled(), grey, per_image=35, tile=tile, overlap=1)


@pytest.mark.parametrize("given", ["long", "bool"])
def test_one_logit_per_pixel_is_a_binary_prediction(grey, three, given) -> None:
    torch.manual_seed(0)
    model, truth = nn.Conv2d(1, 1, 3, padding=1, bias=False), three > 0
    logits = model(grey).detach()[:, 0]
    doubt, predicted, counted = maps(model, (grey, truth if given == "bool" else truth.long()))
    torch.testing.assert_close(predicted, (logits > 0).long())
    assert 0 < int(predicted.sum()) < predicted.numel()
    assert counted.all()
    torch.testing.assert_close(doubt, torch.distributions.Bernoulli(logits=logits).entropy())
    sample = read(model, (grey, truth), per_image=35)
    assert int(sample.correct.sum()) == int(((logits > 0) == truth).sum())
    with pytest.raises(ValueError, match="0 to 1"):
        maps(model, (grey, three.clamp(min=2)))


def test_a_class_255_counts_if_the_model_has_it(grey) -> None:
    labels = torch.full((6, 5, 7), 255)
    assert not maps(network(255), (grey, labels))[2].any()
    assert maps(network(256), (grey, labels))[2].all()
    assert not maps(network(256), (grey, labels), ignore=255)[2].any()
    assert not maps(network(256), (grey, labels), ignore=[np.int64(255)])[2].any()


def test_classes_in_the_last_dimension_are_refused(grey) -> None:
    class Last(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, -x, x], 1).permute(0, 2, 3, 1)

    with pytest.raises(ValueError, match=r"permute\(0, 3, 1, 2\)"):
        maps(Last(), grey)
    layout = grey.to(memory_format=torch.channels_last)  # the same shape, and nothing to refuse
    torch.testing.assert_close(maps(network(), layout)[0], maps(network(), grey)[0])


def test_masks_of_bytes_are_refused() -> None:
    images, masks = torch.rand(9, 1, 8, 8), torch.zeros(9, 8, 8, dtype=torch.int64)
    masks[1:, :4] = 255
    one, many = nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 5, 3, padding=1)
    with pytest.raises(ValueError, match="labels // 255"):
        read(one, (images, masks))
    read(many, (images, masks))
    read(one, (images, masks // 255))
    read(one, (images, masks), ignore=255)


def test_images_of_several_sizes_are_streamed() -> None:
    batches = [torch.rand(2, 1, 8, 8), torch.rand(2, 1, 6, 7)]
    assert [one.uncertainty.shape[1:] for one in stream(network(), batches, qipf.Entropy())] == [(8, 8), (6, 7)]
    with pytest.raises(ValueError, match="stream"):
        qipf.Entropy().score(network(), batches, progress=False)


class Bars(nn.Module):
    """Tells if each pixel is bright, by its own value and those around it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 2, 1)
        with torch.no_grad():
            self.body.weight.zero_()
            self.body.weight[:, :, 1, 1] = torch.tensor([1.0, -1.0, 0.5, 2.0])[:, None]
            self.body.weight[3] = 1 / 9
            self.body.bias.zero_()
            self.head.weight.copy_(torch.tensor([[-2.0, 2.0, 0, 0], [2.0, -2.0, 0, 0]])[:, :, None, None])
            self.head.bias.copy_(torch.tensor([1.0, -1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.head(self.body(x))


def bars(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows that are bright or dark, with noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(count, 12, 1, generator=generator) < 0.5).expand(count, 12, 10).long()
    images = labels + 0.5 * torch.randn(labels.shape, generator=generator)
    return images[:, None].float(), labels


def test_a_probe_of_pixels_finds_errors_that_the_entropy_does_not() -> None:
    model = Bars()
    probe = qipf.default(model, bars(60, 0), task=Pixels(per_image=60), progress=False)
    found = [next(stream(model, bars(40, 1), scorer, batch_size=40)) for scorer in (probe, qipf.Entropy())]
    areas = [qipf.metrics.roc_auc(one.uncertainty.flatten(), one.correct.flatten()) for one in found]
    assert areas[0] > areas[1] + 0.01  # the mean over the neighbours is in its features
