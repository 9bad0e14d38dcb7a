"""Probes of tokens, pixels and several labels in one call: what they are fitted to, and that labels stay in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from qipf.models import collect_labels, collect_tokens, score_pixels
from qipf.models.kinds.perturbed import draw_pixels, draw_tokens, perturbed_batches
from qipf.scores import probe_labels, probe_pixels, probe_tokens


class Bars(nn.Module):
    """Says of each pixel whether it is bright, by its own value and those around it."""

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
    probe = probe_pixels(model, bars(60, 0), per_image=60, draws=1, progress=False)
    images, labels = bars(40, 1)
    found = [
        next(score_pixels(model, (images, labels), s, batch_size=40, progress=False)) for s in (probe, qipf.Entropy())
    ]
    areas = [qipf.metrics.roc_auc(one.uncertainty.flatten(), one.correct.flatten()) for one in found]
    assert areas[0] > areas[1] + 0.01  # the mean over the neighbours is in its features


def test_copies_leave_labels_and_places_as_they_are() -> None:
    images, labels = bars(20, 0)
    found = list(perturbed_batches((images, labels), "pixels", draws=2, perturb=True, batch_size=8, seed=0))
    assert [len(one) for one, _ in found] == [8] * 6 + [4] * 3
    for number, (copy, own) in enumerate(found):
        rows = slice(number // 3 * 8, number // 3 * 8 + 8)
        torch.testing.assert_close(own, labels[rows])
        assert torch.equal(copy, images[rows]) == (number % 3 == 0)
        assert copy.shape == images[rows].shape
    again = list(perturbed_batches((images, labels), "pixels", draws=2, perturb=True, batch_size=8, seed=0))
    assert all(torch.equal(one, other) for (one, _), (other, _) in zip(found, again, strict=True))


def test_perturbed_images_keep_their_structure() -> None:
    image = torch.zeros(200, 1, 32, 32)
    image[:, :, :, 16:] = 1.0
    drawn = draw_pixels(image, torch.Generator().manual_seed(0))
    inside = ((drawn >= 0) & (drawn <= 1)).flatten(1).all(1)
    assert 0.1 < 1 - float(inside.float().mean()) < 0.3  # another tone may leave the range
    left, right = drawn[:, :, :, :8].mean((1, 2, 3)), drawn[:, :, :, 24:].mean((1, 2, 3))
    assert bool((right > left).all())  # nothing was bent or cut out


def test_tokens_are_replaced_by_tokens_of_the_batch() -> None:
    ids = torch.randint(5, 900, (400, 50), generator=torch.Generator().manual_seed(0))
    drawn = draw_tokens(ids, torch.Generator().manual_seed(1))
    assert torch.equal(drawn[:, 0], ids[:, 0])
    share = (drawn != ids).float().mean(1)
    assert 0.12 < float(share.mean()) < 0.17
    assert float(share.max()) < 0.55
    assert set(drawn.flatten().tolist()) <= set(ids.flatten().tolist())


class Next(nn.Module):
    """Predicts that each token follows itself plus one, and is unsure about the tokens above 5."""

    def __init__(self, size: float = 6.0) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(10, 10), nn.Linear(10, 10)
        with torch.no_grad():
            self.words.weight.copy_(torch.eye(10))
            self.head.weight.copy_(size * torch.eye(10).roll(1, 0))
            self.head.bias.zero_()

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.words(ids))


@pytest.mark.parametrize("size", [6.0, 1.2])  # the predicted token has a probability of .98 or of .27
def test_a_probe_of_tokens_learns_which_predictions_are_wrong(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randint(10, (300, 1), generator=generator)
    ids = (start + torch.arange(20)) % 10
    wrong = (torch.rand(ids.shape, generator=generator) < 0.7) & (ids > 6)
    ids = torch.where(wrong, torch.randint(7, 10, ids.shape, generator=generator), ids)
    model = Next(size)
    probe = probe_tokens(model, (ids[:200], ids[:200]), draws=0, batch_size=50, progress=False)
    tokens = collect_tokens(model, (ids[200:], ids[200:]), features=True, progress=False)
    areas = [qipf.metrics.roc_auc(u, tokens.correct) for u in (probe(tokens.question()), tokens.score("entropy"))]
    assert areas[0] > 0.75
    wrong = probe.posterior(tokens.question())[:, 0]
    torch.testing.assert_close(probe(tokens.question()), torch.logit(wrong), rtol=1e-4, atol=1e-4)
    assert abs(areas[1] - 0.5) < 0.05  # the network is equally sure of everything
    with_masks = {"ids": ids[:50], "attention_mask": torch.ones_like(ids[:50])}
    batches = list(perturbed_batches([(with_masks, ids[:50])], "tokens", draws=1, perturb=True, batch_size=8, seed=0))
    assert torch.equal(batches[1][0]["attention_mask"], with_masks["attention_mask"])
    assert not torch.equal(batches[1][0]["ids"], ids[:50])


def test_a_probe_of_several_labels() -> None:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(600, 5)), dtype=torch.float32)
    y = (x[:, :3] + torch.tensor(rng.normal(0, 0.7, (600, 3)), dtype=torch.float32) > 0).float()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    probe = probe_labels(net, (x[:400], y[:400]), progress=False)
    outputs = collect_labels(net, (x[400:], y[400:]), progress=False).outputs
    areas = [qipf.metrics.roc_auc(s(outputs), outputs.correct) for s in (probe, qipf.Entropy())]
    assert areas[0] > areas[1] + 0.1  # the network is not trained, and the probe is


def test_mistakes_are_named() -> None:
    images, labels = bars(8, 0)
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: probe_pixels(Bars(), images, progress=False), ValueError, "has no labels"),
        (lambda: probe_pixels(Bars(), (images, labels), draws=-1, progress=False), ValueError, "draws"),
        (lambda: probe_pixels(Bars(), (images, labels), perturb="noise", progress=False), TypeError, "perturb"),  # pyright: ignore[reportArgumentType]
        (
            lambda: list(
                perturbed_batches((images[:, 0], labels), "pixels", draws=1, perturb=True, batch_size=8, seed=0)
            ),
            ValueError,
            "cannot be perturbed for pixels",
        ),
    ]
    for call, kind, words in cases:
        with pytest.raises(kind, match=words):
            call()


@pytest.mark.parametrize("targets", [1, 2])
def test_the_default_names_what_a_regression_needs(targets: int) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, targets))
    x, y = torch.randn(40, 4), torch.randn(40, targets)
    with pytest.raises(ValueError, match=r"float32 of shape .*regression.*ResidualScale"):
        qipf.default(net, (x, y if targets > 1 else y[:, 0]), progress=False)


@pytest.mark.parametrize("method", ["neighbours", "head"])
def test_a_scale_of_residuals_can_be_wrapped(method: Any) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    x, y = torch.randn(60, 4), torch.randn(60, 2)
    scorer = qipf.ResidualScale(method).fit(net, qipf.collect(net, (x, y), progress=False))
    output, uncertainty = qipf.wrap(net, scorer)(x)
    torch.testing.assert_close(output, net(x))
    torch.testing.assert_close(uncertainty, scorer(qipf.collect(net, x, progress=False)), rtol=1e-4, atol=1e-5)
