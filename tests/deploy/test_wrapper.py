"""A wrapped model: same output, same scores, wherever torch takes it."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn

import qipf
from qipf.deploy.buffers import _moved
from qipf.deploy.wrapper import ScorerModule, wrap
from qipf.scores import KNN, Entropy, Mahalanobis, Scorer, WeightQIPF
from qipf.tasks.collect import collect


class Net(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv = nn.Conv2d(1, 4, 3)
            self.dense = nn.Linear(4 * 36, 16)
            self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.dense(torch.relu(self.conv(x)).flatten(1))))


KINDS: dict[str, Scorer] = {
    "entropy": Entropy(),
    "weight-qipf": WeightQIPF(factor=160),
    "weight-qipf exact": WeightQIPF(factor=160, tolerance=None),
    "weight-qipf published": WeightQIPF(factor=80, operator="published"),
    "knn": KNN(k=5),
    "mahalanobis": Mahalanobis(),
}


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=KINDS)
def fitted(request: pytest.FixtureRequest, images: torch.Tensor) -> tuple[Net, Scorer]:
    net = Net().eval()
    labels = torch.arange(64) % 5
    return net, copy.deepcopy(KINDS[request.param]).fit(net, collect(net, (images, labels), progress=False))


def expected(net: Net, scorer: Scorer, x: torch.Tensor) -> torch.Tensor:
    return scorer(collect(net, x, progress=False))


@torch.no_grad()
def test_output_is_the_models_and_uncertainty_the_scorers(fitted, images) -> None:
    net, scorer = fitted
    both = wrap(net, scorer)
    output, uncertainty = both(images)
    assert torch.equal(output, net(images))
    np.testing.assert_allclose(uncertainty, expected(net, scorer, images), rtol=1e-5)
    assert uncertainty.dtype == output.dtype
    assert both.training is False


@torch.no_grad()
def test_state_dict_carries_the_whole_scorer(fitted, images, tmp_path) -> None:
    from safetensors.torch import load_file, save_file

    net, scorer = fitted
    both = wrap(net, scorer)
    save_file(both.state_dict(), tmp_path / "both.safetensors")
    other_net = Net(seed=7).eval()
    labels = torch.arange(64) % 5
    other = wrap(other_net, copy.deepcopy(scorer).fit(other_net, collect(other_net, (images, labels), progress=False)))
    if scorer.name != "entropy":
        assert not torch.equal(other.scorer(other.observe(images)[1]), both(images)[1])
    other.load_state_dict(load_file(tmp_path / "both.safetensors"))
    for mine, theirs in zip(both(images), other(images), strict=True):
        assert torch.equal(mine, theirs)


def test_state_dict_of_another_scorer_is_refused(images) -> None:
    net = Net()
    outputs = collect(net, images, progress=False)
    one, two = wrap(net, WeightQIPF(factor=160).fit(net, outputs)), wrap(net, Entropy())
    with pytest.raises((RuntimeError, ValueError), match=r"weight-qipf|samples"):
        two.load_state_dict(one.state_dict())


@torch.no_grad()
def test_half_precision_model_keeps_the_field_in_double(fitted, images) -> None:
    net, scorer = fitted
    net = copy.deepcopy(net)
    both = wrap(net, scorer).to(torch.bfloat16)
    assert next(net.parameters()).dtype == torch.bfloat16
    assert all(buffer.dtype != torch.bfloat16 for buffer in both.scorer.buffers())
    _, uncertainty = both(images.to(torch.bfloat16))
    np.testing.assert_allclose(uncertainty, expected(net, scorer, images.to(torch.bfloat16)), rtol=1e-4)


@torch.no_grad()
def test_copies_do_not_share_anything(fitted, images) -> None:
    net, scorer = fitted
    both = wrap(net, scorer)
    twin = copy.deepcopy(both)
    for parameter in twin.model.parameters():
        parameter.zero_()
    np.testing.assert_allclose(both(images)[1], expected(net, scorer, images), rtol=1e-5)
    assert torch.equal(twin(images)[0], torch.zeros(64, 5))


def test_a_later_fit_does_not_change_the_wrapped_module(fitted, images) -> None:
    net, scorer = fitted
    scorer = copy.deepcopy(scorer)
    both = wrap(net, scorer)
    before = both(images)[1]
    scorer.fit(Net(seed=3), collect(net, (images * 2, torch.arange(64) % 3), progress=False))
    assert torch.equal(both(images)[1], before)


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_survives_torch_compile(fitted, images) -> None:
    net, scorer = fitted
    both = wrap(net, scorer)
    compiled = torch.compile(both, backend="eager", fullgraph=not scorer.export_problem)
    for mine, theirs in zip(compiled(images), both(images), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_survives_torch_export_with_a_batch_of_any_size(fitted, images, tmp_path) -> None:
    net, scorer = fitted
    strict = scorer.name in ("weight-qipf", "knn")  # both ways of tracing, each with logits and with features
    both = wrap(net, scorer).eval()
    shapes = {"args": ({0: torch.export.Dim("batch", max=1024)},)}
    if scorer.export_problem:
        with pytest.raises(Exception, match="exported"):  # dynamo wraps the ValueError
            torch.export.export(both, (images[:7],), dynamic_shapes=shapes, strict=strict)
        return
    program = torch.export.export(both, (images[:7],), dynamic_shapes=shapes, strict=strict)
    torch.export.save(program, tmp_path / "both.pt2")
    loaded = torch.export.load(tmp_path / "both.pt2").module()
    for size in (2, 7, 64):
        for mine, theirs in zip(loaded(images[:size]), both(images[:size]), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@torch.no_grad()
def test_nan_is_passed_on_not_scored(fitted, images) -> None:
    net, scorer = fitted
    broken = images.clone()
    broken[3] = torch.nan
    _, uncertainty = wrap(net, scorer)(broken)
    assert torch.isnan(uncertainty[3])
    np.testing.assert_allclose(uncertainty[4:], wrap(net, scorer)(images)[1][4:], rtol=1e-6)


def test_modes_of_a_module(images) -> None:
    net = Net()
    outputs = collect(net, images, progress=False)
    scorer = WeightQIPF(factor=160).fit(net, outputs)
    np.testing.assert_allclose(ScorerModule(scorer).modes(outputs), scorer.modes(outputs), rtol=1e-6)
    with pytest.raises(TypeError, match="modes"):
        ScorerModule(Entropy()).modes(outputs)


def test_errors(images) -> None:
    net = Net()
    with pytest.raises(RuntimeError, match="fitted"):
        wrap(net, KNN())
    outputs = collect(net, images, features="conv", progress=False)
    knn = KNN(k=3).fit(data=outputs)
    with pytest.raises(ValueError, match="linear"):
        wrap(net, knn)
    with pytest.raises(ValueError, match="module"):
        wrap(net, knn, features="cnov")
    with torch.no_grad():
        np.testing.assert_allclose(wrap(net, knn, features="conv")(images)[1], knn(outputs), atol=1e-6)


@torch.no_grad()
def test_a_pickled_module_scores_the_same(fitted, images) -> None:
    net, scorer = fitted
    both = wrap(net, scorer)
    file = io.BytesIO()
    torch.save(both, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(images)[1], both(images)[1])


@pytest.mark.gpu
@torch.no_grad()
def test_the_scorer_follows_the_model_to_a_gpu_and_back(fitted, images) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    net, scorer = fitted
    net = copy.deepcopy(net)
    truth = wrap(net, scorer)(images)[1]
    before = wrap(net, scorer)
    net.cuda()  # the model alone, after it was wrapped
    for both in (before, wrap(net, scorer)):
        _, uncertainty = both(images.cuda())
        assert uncertainty.device.type == "cuda"
        assert all(buffer.device.type == "cuda" for buffer in both.scorer.buffers())
        np.testing.assert_allclose(uncertainty.cpu(), truth, rtol=1e-3, atol=1e-4)
    net.cpu()
    np.testing.assert_allclose(before(images)[1], truth, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_the_table_follows_a_model_that_moves_alone(images, monkeypatch) -> None:
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)  # "meta" has no autocast
    net = Net().eval()
    both = wrap(net, WeightQIPF(factor=40).fit(net, collect(net, images, progress=False)))
    net.to("meta")  # stands for a device that this machine lacks
    assert both(images.to("meta"))[1].shape == (len(images),)
    assert {buffer.device.type for buffer in both.scorer.buffers()} == {"meta"}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_autocast_on_a_gpu_gives_finite_scores(fitted, images, dtype) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    net, scorer = fitted
    both = wrap(copy.deepcopy(net).cuda(), scorer)
    with torch.autocast("cuda", dtype=dtype):
        _, uncertainty = both(images.cuda())
    assert torch.isfinite(uncertainty).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_autocast_around_a_wrapped_model_gives_finite_scores(fitted, images, dtype) -> None:
    net, scorer = fitted
    both = wrap(net, scorer)
    with torch.autocast("cpu", dtype=dtype):
        output, uncertainty = both(images)
        _, seen = both.observe(images)
    assert output.dtype == dtype
    assert torch.equal(uncertainty, both.scorer(seen))  # the scorer itself works as it does without autocast


def test_a_call_adds_few_python_calls(images) -> None:
    import cProfile
    import pstats

    net = Net().eval()
    outputs = collect(net, (images, torch.arange(64) % 5), progress=False)
    both, x = wrap(net, Mahalanobis().fit(net, outputs)), images[:1]

    def calls(function) -> int:
        function(x)
        profile = cProfile.Profile()
        profile.runcall(function, x)
        return pstats.Stats(profile).total_calls  # pyright: ignore[reportAttributeAccessIssue]

    with torch.no_grad():
        assert calls(both) - calls(net) < 200


def test_a_device_without_double_precision_gets_single_precision(images) -> None:
    net = Net()
    module = ScorerModule(WeightQIPF(factor=160).fit(net, collect(net, images, progress=False)))

    def refuse_double(tensor: torch.Tensor) -> torch.Tensor:  # as Apple's MPS does
        if tensor.dtype == torch.float64:
            raise TypeError("no float64")
        return tensor.to("meta")

    double = [key for key, buffer in module.named_buffers() if buffer.dtype == torch.float64]
    assert double
    moved = {key: _moved(refuse_double, buffer) for key, buffer in module.named_buffers()}
    assert all(moved[key].dtype == torch.float32 for key in double)
    with pytest.raises(TypeError, match="other"):
        _moved(lambda tensor: (_ for _ in ()).throw(TypeError("other")), torch.zeros(1))


def test_a_softmax_without_a_module_is_refused() -> None:
    class Functional(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.softmax(1)

    with pytest.raises(ValueError, match="probabilities"):
        qipf.wrap(Functional(), qipf.Entropy())(torch.randn(8, 3))
