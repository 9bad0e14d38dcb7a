"""Pixels with inputs that are easily misread, and errors that name the image, the row and the column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from qipf.models import collect_pixels, score_pixels
from qipf.models.kinds.excerpts import Excerpt
from qipf.scores import probe_pixels

N, H, W = 6, 5, 7


@pytest.fixture
def images() -> Tensor:
    return torch.randn(N, 1, H, W, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def labels() -> Tensor:
    return torch.randint(3, (N, H, W), generator=torch.Generator().manual_seed(1))


def network(classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, classes, 1))


def maps(model: nn.Module, data: Any, **settings: Any) -> tuple[Tensor, ...]:
    """Uncertainty, predicted and labelled of all images."""
    found = list(score_pixels(model, data, qipf.Entropy(), batch_size=4, progress=False, **settings))
    return tuple(torch.cat([getattr(one, name) for one in found]) for name in ("uncertainty", "predicted", "labelled"))


def test_a_wrong_label_is_named_by_image_row_and_column(images, labels) -> None:
    labels[5, 2, 3] = labels[5, 4, 1] = 7
    labels[4, 0] = 255
    words = r"got 7 in image 5, row 2, column 3 \(all counted from 0\), the first of 2 "
    for run in (
        lambda: maps(network(), (images, labels)),
        lambda: maps(network(), ((images[row : row + 1], labels[row : row + 1]) for row in range(N))),
        lambda: maps(network(), (images, labels), tile=4, overlap=1),
        lambda: collect_pixels(network(), (images, labels), progress=False),
        lambda: probe_pixels(network(), (images, labels), draws=2, progress=False),
    ):
        with pytest.raises(ValueError, match=words):
            run()
    numbered = Excerpt([(images[:4], labels[:4]), (images[4:], labels[4:])], range(10, 22, 2))
    with pytest.raises(ValueError, match="in image 20, row 2, column 3"):
        probe_pixels(network(), numbered, draws=2, progress=False)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("tile", [None, 4])
def test_logits_that_are_not_finite_are_named(images, labels, value, tile) -> None:
    class Spoiled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, -x], 1)

    images[5, 0, 4, 6] = value
    words = "logits: .* in image 5, row 4, column 6"
    with pytest.raises(ValueError, match=words):
        maps(Spoiled(), (images, labels.clamp(max=1)), tile=tile, overlap=1)
    with pytest.raises(ValueError, match=words):
        collect_pixels(Spoiled(), images, per_image=H * W, tile=tile, overlap=1, progress=False)


@pytest.mark.parametrize("given", ["long", "bool"])
def test_one_logit_per_pixel_is_a_binary_prediction(images, labels, given) -> None:
    model, truth = nn.Conv2d(1, 1, 3, padding=1, bias=False), labels > 0
    logits = model(images).detach()[:, 0]
    doubt, predicted, labelled = maps(model, (images, truth if given == "bool" else truth.long()))
    torch.testing.assert_close(predicted, (logits > 0).long())
    assert 0 < int(predicted.sum()) < predicted.numel()
    assert labelled.all()
    torch.testing.assert_close(doubt, torch.distributions.Bernoulli(logits=logits).entropy())
    sample = collect_pixels(model, (images, truth), per_image=H * W, progress=False)
    assert int(sample.correct.sum()) == int(((logits > 0) == truth).sum())
    with pytest.raises(ValueError, match=r"from 0 to 1, as there is one logit.* got 2 in image"):
        maps(model, (images, labels.clamp(min=2)))


def test_labels_of_true_and_false(images, labels) -> None:
    model = network(2)
    correct = [one.correct for one in score_pixels(model, (images, labels > 0), qipf.Entropy(), progress=False)]
    torch.testing.assert_close(torch.cat(correct), model(images).argmax(1) == (labels > 0))


def test_a_class_255_counts_where_the_model_has_it(images) -> None:
    labels = torch.full((N, H, W), 255)
    assert not maps(network(255), (images, labels))[2].any()
    assert maps(network(256), (images, labels))[2].all()
    assert not maps(network(256), (images, labels), ignore=255)[2].any()
    assert not maps(network(256), (images, labels), ignore=[np.int64(255)])[2].any()
    for wrong in ("255", 255.0, [True]):
        with pytest.raises(TypeError, match="ignore: expected a whole number"):
            maps(network(), (images, labels), ignore=wrong)


def test_classes_in_the_last_dimension_are_refused(images) -> None:
    class Last(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, -x, x], 1).permute(0, 2, 3, 1)

    with pytest.raises(ValueError, match=r"got \(4, 5, 7, 3\) for images of 5 x 7 pixels.*permute\(0, 3, 1, 2\)"):
        maps(Last(), images)
    layout = images.to(memory_format=torch.channels_last)  # the same shape, and nothing to refuse
    torch.testing.assert_close(maps(network(), layout)[0], maps(network(), images)[0])


def test_what_to_do_is_said(images, labels) -> None:
    for given, words in (
        (labels[:, None], r"give labels\[:, 0\]"),
        (nn.functional.one_hot(labels, 3), r"labels\.argmax\(3\)"),
        (nn.functional.one_hot(labels, 3).movedim(3, 1), r"labels\.argmax\(1\)"),
        (labels.float(), "convert them to whole numbers"),
        (labels[:, ::2, ::2], "labels of the height and width of the logits"),
        (labels.repeat_interleave(2, 1).repeat_interleave(2, 2), "enlarge its logits"),
    ):
        with pytest.raises(ValueError, match=words):
            maps(network(), (images, given))
    with pytest.raises(ValueError, match="at least one labelled pixel"):
        collect_pixels(network(), (images, torch.full_like(labels, 255)), progress=False)
    with pytest.raises(ValueError, match=r"at least one image.* used up"):
        maps(network(), iter(()))
    with pytest.raises(TypeError, match="scorer: expected a fitted scorer"):
        next(score_pixels(network(), images, "entropy", progress=False))  # pyright: ignore[reportArgumentType]


def test_masks_of_bytes_draw_a_warning() -> None:
    images, masks = torch.rand(9, 1, 8, 8), torch.zeros(9, 8, 8, dtype=torch.int64)
    masks[5:, :4] = 255
    one, many = nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 5, 3, padding=1)
    with pytest.warns(UserWarning, match="labels // 255"):
        collect_pixels(one, (images, masks), progress=False)
    collect_pixels(many, (images, masks), progress=False)
    collect_pixels(one, (images, masks // 255), progress=False)
    collect_pixels(one, (images, masks), ignore=255, progress=False)
