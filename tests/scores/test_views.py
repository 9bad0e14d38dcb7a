"""Scores are averaged over views that keep the class, and only over those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from qipf._common.errors import Problem
from qipf.cli import main
from qipf.study import datasets, nets
from qipf.tasks.views import viewed
from qipf.training import train


def stripes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images with one, two or three bright rows: mirroring keeps the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=generator)
    images = 0.5 * torch.rand(count, 1, 12, 12, generator=generator)
    for image, label in zip(images, labels, strict=True):
        image[0, torch.randperm(10, generator=generator)[: int(label) + 1] + 1] += 0.3
    return images, labels


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(3)]
    made = nn.Sequential(*layers, nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    x, y = stripes(600, 0)
    both = torch.cat([x, x.flip(3)]), torch.cat([y, y])
    return train(made, both, epochs=8, batch_size=50, learning_rate=1e-2, progress=False)


@pytest.fixture(scope="module")
def probe(net: nn.Module) -> qipf.Probe:
    return qipf.default(net, stripes(600, 0), effort="quick", progress=False)


@pytest.fixture(scope="module")
def twin(net: nn.Module) -> qipf.Twin:
    return qipf.Twin(epochs=2).fit(net, stripes(600, 0), progress=False)


def test_digits_are_not_mirrored() -> None:
    digits = datasets.load("digits")
    net = train(nets.build("small-cnn", seed=0), digits.train, epochs=8, progress=False)
    uq = qipf.default(net, digits.train, effort="quick", progress=False)
    assert "mirror" not in uq.fitted.facts.get("views", ())
    with pytest.raises(Problem, match=r"views: expected at most .*accurate"):
        uq.score(net, digits.test.inputs, views=2, progress=False)


def test_views_of_other_integers_are_those_of_bytes(net: nn.Module) -> None:
    class OfBytes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x / 255)

    model = OfBytes().eval()
    images, labels = stripes(600, 0)
    images = (255 * images.clamp(0, 1)).to(torch.uint8)
    uq = qipf.default(model, (images, labels), effort="quick", progress=False)
    guarded = qipf.wrap(model, uq, views=2)
    torch.testing.assert_close(guarded(images[:50].long())[1], guarded(images[:50])[1])
    assert not torch.allclose(guarded(images[:50])[1], qipf.wrap(model, uq)(images[:50])[1])


@pytest.mark.parametrize("kind", ["probe", "twin"])
def test_two_views_average_the_posterior(
    kind: str, net: nn.Module, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    uq, x = request.getfixturevalue(kind), stripes(100, 1)[0]
    assert uq.fitted.facts["views"][0] == "mirror"
    posteriors = [uq.posterior(qipf.collect(net, part, layers=uq.layers)).double() for part in (x, x.flip(3))]
    mean = (posteriors[0] + posteriors[1]) / 2
    own = mean.gather(1, net(x).argmax(1, keepdim=True))[:, 0]
    expected = (torch.log1p(-own) - own.log()).float()
    two = uq.with_views(2)
    for found in (
        uq.score(net, x, views=2, progress=False),
        two(qipf.collect(net, x, layers=two.layers)),
        qipf.wrap(net, uq, views=2)(x)[1].detach(),
        torch.cat([part.uncertainty for part in two.stream(net, x, batch_size=30, progress=False)]),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(uq.score(net, x, progress=False), expected, atol=1e-2)
    two.save(tmp_path / "two.qipf")
    assert torch.equal(qipf.load(tmp_path / "two.qipf").score(net, x), two.score(net, x))
    runtime = pytest.importorskip("onnxruntime")
    qipf.export_onnx(qipf.wrap(net, uq, views=2), tmp_path / "two.onnx", x[:4])
    session = runtime.InferenceSession(tmp_path / "two.onnx")
    found = session.run(["uncertainty"], {"input": x[:7].numpy()})[0]
    np.testing.assert_allclose(found, expected[:7].numpy(), rtol=1e-2, atol=1e-3)


def test_a_view_moves_every_image_by_one_pixel() -> None:
    images = np.arange(2 * 3 * 6 * 5, dtype=np.float32).reshape(2, 3, 6, 5)
    both = {"a": images, "ids": np.arange(2)}
    down = viewed(both, "down")
    assert down["ids"] is both["ids"]
    np.testing.assert_array_equal(down["a"][:, :, 1:], images[:, :, :-1])
    np.testing.assert_array_equal(down["a"][:, :, 0], images[:, :, 0])
    left = viewed((torch.from_numpy(images.transpose(0, 2, 3, 1).copy()),), "left")[0].numpy()
    np.testing.assert_array_equal(left[:, :, :-1], images.transpose(0, 2, 3, 1)[:, :, 1:])
    np.testing.assert_array_equal(viewed(images, "mirror"), images[..., ::-1])


def test_what_has_no_views_is_refused(net: nn.Module, probe: qipf.Probe) -> None:
    x, y = stripes(80, 2)
    known = 1 + len(probe.fitted.facts["views"])  # pyright: ignore
    for views in (known + 1, 0):
        with pytest.raises(Problem, match="views"):
            probe.score(net, x, views=views, progress=False)
    table = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    rows = torch.rand(60, 4), torch.arange(60) % 2
    with pytest.raises(Problem, match="view"):
        qipf.default(table, rows, effort="quick", progress=False).score(table, rows[0], views=2, progress=False)
    decided = qipf.Decision("error<=0.5").fit_scorer(probe, qipf.collect(net, (x, y), layers=probe.layers))
    probe.attach(decided)
    with pytest.raises(Problem, match="views"):
        qipf.wrap(net, probe, views=2)
    with pytest.raises(ValueError, match="another"):
        probe.with_views(2).attach(decided)
    probe.decision = None


def test_a_state_dict_of_other_views_or_another_layer_is_refused(net: nn.Module, probe: qipf.Probe) -> None:
    one, two = qipf.wrap(net, probe), qipf.wrap(net, probe.with_views(2))
    for own, other in ((one, two), (two, one)):
        with pytest.raises(Problem, match="views"):
            own.load_state_dict(other.state_dict())
    again = qipf.wrap(net, probe.with_views(2))
    again.load_state_dict(two.state_dict())


def test_the_command_line_averages_over_views(net: nn.Module, probe: qipf.Probe, tmp_path: Path) -> None:
    x = stripes(20, 3)[0]
    batch = {0: torch.export.Dim("batch")}
    torch.export.save(torch.export.export(net.eval(), (x,), dynamic_shapes=(batch,)), tmp_path / "net.pt2")
    probe.save(tmp_path / "net.qipf")
    np.save(tmp_path / "x.npy", x.numpy())
    words = ["score", *(str(tmp_path / name) for name in ("net.qipf", "x.npy")), "--model", str(tmp_path / "net.pt2")]
    assert main([*words, "--views", "2", "--quiet", "-o", str(tmp_path / "scores.csv")]) == 0
    found = np.genfromtxt(tmp_path / "scores.csv", delimiter=",", names=True)["uncertainty"]
    expected = probe.score(net, x, views=2, progress=False).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
