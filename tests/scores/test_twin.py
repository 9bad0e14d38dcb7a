"""A twin: fitted through `qipf.default`, scored, saved, wrapped and exported; the network stays as it was."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from qipf._common.errors import Problem
from qipf.scores.mixture import best_shares
from qipf.tasks.collect import begin
from qipf.training import train

EPOCHS = 3
RATE = 20 * qipf.Twin.learning_rate
"""Steps have 50 inputs here, which reduces the learning rate to a twentieth."""


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.conv(x)))


class Residual(nn.Module):
    """Skip connections and batch norm, as a ResNet has them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1, stride=2)
        self.blocks = nn.Sequential(Block(8), Block(8), Block(8))
        self.dense = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.blocks(self.stem(x)).mean((2, 3)))


def bars(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images with a bar that rises, falls or lies flat: a mirror image of the first is one of the second."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=generator)
    images = 0.4 * torch.rand(count, 1, 12, 12, generator=generator)
    offsets = torch.randint(2, 6, (count,), generator=generator)
    columns = torch.arange(2, 10)
    for image, label, offset in zip(images, labels, offsets, strict=True):
        rows = offset + [(columns - 2) // 2, (9 - columns) // 2, torch.full((8,), 1)][int(label)]
        image[0, rows, columns] += 0.6
    return images, labels


@pytest.fixture(autouse=True, scope="module")
def no_doubt() -> Iterator[None]:
    """So few inputs would hardly prove that a copy of so few epochs is right."""
    with mock.patch("qipf.scores.twin.DOUBT", 0):
        yield


@pytest.fixture(scope="module")
def data() -> tuple[Tensor, Tensor]:
    return bars(900, 0)


@pytest.fixture(scope="module")
def net(data: tuple[Tensor, Tensor]) -> Residual:
    torch.manual_seed(0)
    return train(Residual(), data, epochs=12, batch_size=50, learning_rate=1e-2, progress=False)  # pyright: ignore


@pytest.fixture(scope="module")
def twin(net: Residual, data: tuple[Tensor, Tensor]) -> qipf.Twin:
    before = {name: values.clone() for name, values in net.state_dict().items()}
    made = qipf.Twin(epochs=EPOCHS, learning_rate=RATE).fit(net, data, progress=False)
    assert all(torch.equal(before[name], values) for name, values in net.state_dict().items())
    assert not net.training
    return made


@pytest.fixture(scope="module")
def live() -> Tensor:
    return bars(200, 1)[0]


def test_the_score_is_the_contrast_of_the_mixture(net: Residual, twin: qipf.Twin, live: Tensor) -> None:
    outputs = qipf.collect(net, live, layers=twin.layers)
    logits, copied = outputs.logits.double(), outputs.layers[str(twin.layers[0])].double()
    assert copied.shape == logits.shape
    posterior = (1 - twin.share) * copied.softmax(1) + twin.share * (logits / twin.temperature).softmax(1)
    own = posterior.gather(1, logits.argmax(1, keepdim=True))[:, 0]
    expected = torch.log1p(-own) - own.log()
    torch.testing.assert_close(twin.score(net, live).double(), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(twin(outputs), twin.score(net, live))
    torch.testing.assert_close(twin.posterior(outputs).double(), posterior, rtol=1e-4, atol=1e-6)
    assert 0 <= twin.share < 0.5


def test_the_copy_has_learned(net: Residual, data: tuple[Tensor, Tensor]) -> None:
    noisy, labels = bars(600, 2)
    noisy = (noisy + 0.4 * torch.randn(noisy.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    twin = qipf.Twin(epochs=8, seed=1, learning_rate=RATE).fit(net, data, progress=False)
    outputs = qipf.collect(net, noisy, layers=twin.layers)
    right = (outputs.logits.argmax(1) == labels).float().mean()
    better = (twin.posterior(outputs).argmax(1) == labels).float().mean()
    assert better > right + 0.02


def test_few_inputs_change_the_copy_little(net: Residual, data: tuple[Tensor, Tensor]) -> None:
    twin = qipf.Twin(split="blocks.0", epochs=1).fit(net, data, progress=False)
    copied = torch.from_numpy(twin._require_fitted().tensors["copy.blocks.1.conv.weight"])
    change = (copied - net.state_dict()["blocks.1.conv.weight"]).abs().max()
    assert 0 < change < 32 * twin.learning_rate / 20  # one epoch of 32 steps of Adam, each at most as long as the rate


def test_a_file_gives_the_same_scores_and_refuses_other_networks(
    net: Residual, twin: qipf.Twin, live: Tensor, tmp_path: Path
) -> None:
    expected = twin.score(net, live)
    twin.save(tmp_path / "twin.qipf")
    loaded = qipf.load(tmp_path / "twin.qipf")
    assert torch.equal(loaded.score(net, live), expected)
    assert isinstance(loaded, qipf.Twin)
    torch.manual_seed(5)
    for use in (lambda other: loaded.score(other, live), lambda other: qipf.wrap(other, loaded)):
        with pytest.raises(Problem, match="network"):
            use(Residual().eval())
    for other in (nn.Sequential(nn.Flatten(), nn.Linear(144, 3)), Residual().eval()):
        with pytest.raises(Problem, match="network"):
            qipf.collect(other, live, layers=loaded.layers)


def test_wrapped_copied_and_exported(net: Residual, twin: qipf.Twin, live: Tensor, tmp_path: Path) -> None:
    expected = twin.score(net, live)
    guarded = qipf.wrap(net, twin).eval()
    output, uncertainty = guarded(live)
    assert torch.equal(output, net(live))
    torch.testing.assert_close(uncertainty, expected, rtol=1e-4, atol=1e-4)
    guarded.train()
    assert not guarded.twin.training  # the copy has learned all that it learns
    guarded.eval()
    for other in (copy.deepcopy(guarded), guarded):
        other.load_state_dict(guarded.state_dict())
        torch.testing.assert_close(other(live)[1], uncertainty)
    posterior = qipf.wrap(net, twin, posterior=True)(live).posterior
    assert torch.allclose(posterior.sum(1), torch.ones(len(live)), atol=1e-5)
    held_out = qipf.collect(net, bars(200, 4), layers=twin.layers)
    decided = copy.copy(twin).attach(qipf.Decision("error<=0.5").fit_scorer(twin, held_out))
    assert qipf.wrap(net, decided)(live).accept.any()
    pytest.importorskip("onnxruntime")
    qipf.export_onnx(guarded, tmp_path / "twin.onnx", live[:4])
    session = __import__("onnxruntime").InferenceSession(tmp_path / "twin.onnx")
    found = session.run(["uncertainty"], {"input": live[:7].numpy()})[0]
    np.testing.assert_allclose(found, expected[:7].numpy(), rtol=1e-3, atol=1e-3)


def test_threads_share_a_wrapped_twin(net: Residual, twin: qipf.Twin, live: Tensor) -> None:
    guarded = qipf.wrap(net, twin).eval()
    parts = live.split(50)
    expected = [guarded(part)[1] for part in parts]
    wrong: list[int] = []

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(10):
                if not torch.equal(guarded(parts[number])[1], expected[number]):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_interrupted_fit_continues(
    net: Residual, data: tuple[Tensor, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qipf.tasks.collect import begin
    from qipf.training import copies

    def fit(file: Path | None) -> qipf.Twin:
        return qipf.Twin(epochs=2).fit_from(begin(net, data), checkpoint=file, progress=False)

    expected, file, calls = fit(None), tmp_path / "fit.state", []
    forward = copies.CopyLearner.forward

    def interrupted(self: Any, numbers: Tensor) -> Tensor:
        calls.append(len(numbers))
        if len(calls) == 50:  # in the second epoch
            raise KeyboardInterrupt
        return forward(self, numbers)

    monkeypatch.setattr(copies.CopyLearner, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(file)
    monkeypatch.undo()
    for _ in range(2):  # the second call finds a finished checkpoint
        resumed = fit(file)
        assert resumed.fitted.equals(expected.fitted)  # pyright: ignore
        assert (resumed.share, resumed.head_share) == (expected.share, expected.head_share)


def test_a_thorough_default_is_a_twin_that_tells_its_cost(
    net: Residual, data: tuple[Tensor, Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch_size=100)
    made = qipf.default(net, loader, effort="thorough", split="blocks.1", size=120)
    assert isinstance(made, qipf.Twin)
    assert made.task_name == "classes"
    told = capsys.readouterr().err
    assert "'blocks.1'" in told
    assert all(unit in told for unit in (" s,", "% of", " MB"))


def test_a_probe_is_a_part_of_the_posterior(net: Residual, data: tuple[Tensor, Tensor], live: Tensor) -> None:
    probe = qipf.Probe(space="blocks", hidden=16, epochs=2).fit(net, qipf.collect(net, data, layers=("blocks",)))
    made = qipf.Twin(epochs=1).fit_from(begin(net, data), beside=lambda _: probe, progress=False)
    made.share, made.head_share = 0.25, 0.5
    outputs = qipf.collect(net, live, layers=made.layers)
    head = replace(probe, share=0.0)
    head._use(probe._require_fitted())
    copied = outputs.layers[str(made.layers[0])].softmax(1)
    temperature = made._require_fitted().facts.get("temperature", made.temperature)
    expected = 0.5 * head.posterior(outputs) + 0.25 * copied + 0.25 * (outputs.logits / temperature).softmax(1)
    torch.testing.assert_close(made.posterior(outputs), expected, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(qipf.wrap(net, made, posterior=True)(live).posterior, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "features", "size", "why"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 3)), "0@rows", 300, "split"),
        (Residual, "blocks", 60, "60 inputs"),
    ],
)
def test_without_a_twin_a_warning_says_why_and_a_probe_is_fitted(
    model: Any, features: str, size: int, why: str, data: tuple[Tensor, Tensor]
) -> None:
    given = tuple(part[:size] for part in data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = qipf.default(model().eval(), given, effort="thorough", features=features, progress=False)
    assert any(why in str(one.message) for one in caught)
    assert isinstance(made, qipf.Probe)


def test_it_is_fitted_in_inference_mode(net: Residual, data: tuple[Tensor, Tensor], live: Tensor) -> None:
    with torch.inference_mode():
        made = qipf.default(net, data, effort="thorough", progress=False)
    assert isinstance(made, qipf.Twin)
    assert made.score(net, live, progress=False).isfinite().all()


class Counting(Residual):
    """Learns a buffer that is not part of the state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.blocks(self.stem(x)).mean((2, 3))
        if self.training:
            self.seen = 0.9 * self.seen + 0.1 * hidden.detach().mean(0)
        return self.dense(hidden - self.seen)


def test_what_a_copy_learned_outside_its_state_dict_is_kept(data: tuple[Tensor, Tensor]) -> None:
    net = Counting().eval()
    twin = qipf.Twin(split="blocks.0", epochs=1).fit(net, data, progress=False)
    assert np.abs(twin._require_fitted().tensors["copy.seen"]).max() > 0
    assert not net.seen.any()
    (layer,) = twin.layers
    assert layer.spec(begin(net, data).runner).copy.network.seen.any()


def test_autocast_changes_neither_a_fit_nor_the_network_that_is_recognised(
    net: Residual, data: tuple[Tensor, Tensor], live: Tensor
) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        probe = qipf.default(net, data, effort="quick", progress=False)
        twin = qipf.Twin(epochs=1).fit(net, data, progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for scorer in (probe, twin):
                assert scorer.score(net, live, progress=False).isfinite().all()


def test_images_in_a_dict_have_views(data: tuple[Tensor, Tensor]) -> None:
    images, labels = data
    net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, pixel_values: Tensor) -> dict[str, Tensor]:
            return {"logits": self.net(pixel_values)}

    for model, given in ((net, images), (Named().eval(), {"pixel_values": images})):
        for fitted in (
            qipf.default(model, (given, labels), effort="quick", progress=False),
            qipf.Twin(epochs=1).fit(model, (given, labels), progress=False),
        ):
            assert fitted._require_fitted().facts["views"]
            assert fitted.score(model, given, views=2, progress=False).shape == labels.shape


def test_what_does_not_fit_is_refused(net: Residual, data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    images, labels = data
    for argument, model, given, options in (
        ("perturb", net, data, {"split": "blocks.0", "perturb": False}),
        ("data", net, (images[:60], labels[:60]), {"split": "blocks.0"}),
        ("data", net, (torch.where(images > 0.9, torch.nan, images), labels), {"split": "blocks.0"}),
        ("data", net, (torch.cat([images[:500], images[500:] * torch.nan]), labels), {"split": "blocks.0"}),
        ("perturb", net, data, {"split": "blocks.0", "perturb_only": lambda x, _: x[:1]}),
        ("checkpoint", net, data, {"split": "blocks.0", "checkpoint": tmp_path / "missing" / "a.state"}),
        ("checkpoint", net, data, {"split": "blocks.0", "checkpoint": 3}),
        ("memory", net, data, {"memory": "1GB"}),
    ):
        with pytest.raises(Problem) as caught:
            qipf.default(model, given, effort="thorough", progress=False, **options)
        assert caught.value.argument == argument
    with pytest.raises(Problem, match="views"):
        qipf.Twin(views=99, epochs=10**6).fit(net, data, progress=False)  # before it is trained
    with pytest.raises(Problem, match="blocks"):
        qipf.default(net, data, effort="thorough", split="blocks.9", progress=False)
    with pytest.raises(Problem, match="inputs"):
        qipf.Twin().fit(net, qipf.collect(net, data))
    with pytest.raises(Problem, match="depth"):
        qipf.Twin(depth=1.0)
    with pytest.raises(IsADirectoryError, match="folder"):
        qipf.default(net, data, effort="thorough", checkpoint=tmp_path, progress=False)


def test_the_weights_make_labels_most_likely() -> None:
    clean = np.zeros(2, bool)
    assert best_shares([[0.5, 0.5], [0.9, 0.8]], clean) == [0.0, 1.0]
    assert best_shares([[0.5, 0.5], [0.1, 0.2]], clean) == [1.0, 0.0]
    assert best_shares([[0.1, 0.9], [0.9, 0.1]], clean) == [0.5, 0.5]
    assert best_shares([[0.1, 0.9], [0.9, 0.1]], clean, doubt=1.0)[0] == 0.83
    random = np.random.default_rng(0).random((3, 400))
    found = np.array(best_shares(random, np.arange(400) < 100))
    grid = [np.array([i, j, 50 - i - j]) / 50 for i in range(51) for j in range(51 - i)]

    def likelihood(weights: np.ndarray) -> float:
        logs = np.log(weights @ random)
        return logs[:100].mean() + logs[100:].mean()

    assert likelihood(found) > max(map(likelihood, grid)) - 1e-4


def test_two_twins_of_one_network_read_their_own_copies(
    net: Residual, twin: qipf.Twin, data: tuple[Tensor, Tensor], live: Tensor
) -> None:
    other = qipf.Twin(epochs=1, seed=3).fit(net, data, progress=False)
    outputs = qipf.collect(net, live, layers=(*twin.layers, *other.layers))
    for one in (twin, other):
        torch.testing.assert_close(one(outputs), one.score(net, live))
    with pytest.raises(ValueError, match="layer"):
        other(qipf.collect(net, live, layers=twin.layers))


def test_a_checkpoint_of_another_network_is_refused(data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    for seed in (1, 2):
        torch.manual_seed(seed)
        start = begin(Residual().eval(), data)
        twin = qipf.Twin(epochs=1)
        if seed == 1:
            twin.fit_from(start, checkpoint=tmp_path / "twin.state", progress=False)
        else:
            with pytest.raises(ValueError, match="identity"):
                twin.fit_from(start, checkpoint=tmp_path / "twin.state", progress=False)


def test_a_checkpoint_of_other_perturbations_is_refused(
    net: Residual, data: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"perturb": False, "checkpoint": tmp_path / "twin.state", "progress": False}
    for own in (lambda x, _: 0.9 * x, lambda x, _: 0.9 * x):
        qipf.Twin(epochs=1).fit_from(begin(net, data), own=(own,), **options)
    with pytest.raises(ValueError, match="identity"):
        qipf.Twin(epochs=1).fit_from(begin(net, data), own=(lambda x, _: 0.8 * x,), **options)


@pytest.mark.parametrize("shape", [(-1,), (-1, 3, 1, 1)])
def test_logits_of_other_shapes(shape: tuple[int, ...], data: tuple[Tensor, Tensor]) -> None:
    images, labels = data
    layers = nn.Flatten(), nn.Linear(144, 16), nn.ReLU(), nn.Linear(16, 1 if len(shape) == 1 else 3)
    nn.init.constant_(layers[3].bias, -1.0)  # all between 0 and 1 would be probabilities
    net = nn.Sequential(*layers, _Reshape(shape)).eval()
    given = images, labels % 2 if len(shape) == 1 else labels
    twin = qipf.Twin(split="1", epochs=1).fit(net, given, progress=False)
    assert twin.score(net, images[:5], progress=False).shape == (5,)


class _Reshape(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(self.shape)


def test_a_function_of_the_user_may_work_in_place(net: Residual, data: tuple[Tensor, Tensor]) -> None:
    images = data[0].clone()
    fit = {"effort": "quick", "size": 200, "progress": False}
    qipf.default(net, (images, data[1]), perturb=lambda x, _: x.mul_(0.5), **fit)
    assert torch.equal(images, data[0])
    with pytest.raises(Problem, match="function"):
        qipf.default(net, data, perturb=lambda x, _: x * torch.nan, **fit)
