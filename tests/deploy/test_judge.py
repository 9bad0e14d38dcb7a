"""A wrapped model says what its scorer's probability of error and decision say, also as ONNX."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import qipf
from qipf.deploy.judge import Guarded


@pytest.fixture
def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).eval()


@pytest.fixture
def outputs(net) -> qipf.Outputs:
    x = torch.randn(600, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        labels = (net(x) + 0.1 * torch.randn(600, 3, generator=torch.Generator().manual_seed(2))).argmax(dim=1)
    return qipf.collect(net, (x, labels), progress=False)


def fitted(outputs: qipf.Outputs, method: str | None = "isotonic", promise: str | None = "accept>=0.7") -> qipf.Entropy:
    scorer = qipf.Entropy().fit()
    if method is not None:
        scorer.probability = qipf.ErrorProbability(method).fit_scorer(scorer, outputs)  # pyright: ignore
    if promise is not None:
        scorer.decision = qipf.Decision(promise).fit_scorer(scorer, outputs)
    return scorer


@pytest.mark.parametrize("method", ["isotonic", "logistic"])
def test_the_module_agrees_with_the_scorer(net, outputs, method) -> None:
    scorer, x = fitted(outputs, method), torch.randn(200, 6, dtype=torch.float64) * 3
    guarded = qipf.wrap(net.double(), scorer)(x)
    assert isinstance(guarded, Guarded)
    u = scorer(qipf.Outputs(guarded.output))
    np.testing.assert_allclose(guarded.uncertainty.detach(), u.detach())
    np.testing.assert_allclose(guarded.probability.detach(), scorer.probability(u), atol=1e-12)
    assert torch.equal(guarded.accept, scorer.decision.accept(u))
    assert 0 < guarded.accept.float().mean() < 1


def test_what_is_missing_is_none_and_a_bare_scorer_gives_two(net, outputs) -> None:
    x = torch.zeros(2, 6)
    assert len(qipf.wrap(net, fitted(outputs, None, None))(x)) == 2
    found = qipf.wrap(net, fitted(outputs, None))(x)
    assert found.probability is None
    assert found.accept.shape == (2,)
    assert qipf.wrap(net, fitted(outputs, promise=None))(x).accept is None


def test_a_row_that_is_not_finite_is_not_accepted(net, outputs) -> None:
    x = torch.zeros(2, 6)
    x[1, 0] = torch.nan
    found = qipf.wrap(net, fitted(outputs))(x)
    assert torch.isnan(found.probability).tolist() == [False, True]
    assert not found.accept[1]


def test_state_dicts_and_half_precision(net, outputs) -> None:
    wrapped = qipf.wrap(net, fitted(outputs))
    other = qipf.wrap(copy.deepcopy(net), fitted(outputs[:300], promise="accept>=0.2"))
    other.load_state_dict(wrapped.state_dict())
    x = torch.randn(50, 6)
    for mine, theirs in zip(wrapped(x), other(x), strict=True):
        assert torch.equal(mine, theirs)
    assert wrapped.half().judge.threshold.dtype == torch.float64


@pytest.mark.slow
def test_onnx_has_all_as_named_outputs_and_a_layer_that_is_overwritten_later(tmp_path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(inplace=True), torch.nn.Linear(16, 3)).eval()
    x = torch.randn(600, 6)
    known = qipf.collect(net, (x, (net(x) + 0.1 * torch.randn(600, 3)).argmax(1)), layers="0", progress=False)
    scorer = qipf.Probe(space="0", hidden=8, epochs=2).fit(data=known)
    scorer.probability = qipf.ErrorProbability("isotonic").fit_scorer(scorer, known)
    scorer.decision = qipf.Decision("accept>=0.7").fit_scorer(scorer, known)
    qipf.export_onnx(qipf.wrap(net, scorer), tmp_path / "net.onnx", x[:2])
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    assert [out.name for out in session.get_outputs()] == ["logits", "uncertainty", "probability", "accept"]
    live = torch.randn(77, 6)  # no row is the threshold itself
    logits, uncertainty, probability, accept = session.run(None, {"input": live.numpy()})
    seen = qipf.collect(net, live, layers="0", progress=False)
    expected = scorer(seen)
    np.testing.assert_allclose(logits, seen.logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(uncertainty, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(probability, scorer.probability(expected), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(accept, scorer.decision.accept(expected))


def test_it_compiles_and_exports(net, outputs) -> None:
    wrapped, x = qipf.wrap(net, fitted(outputs)), torch.randn(9, 6)
    program = torch.export.export(wrapped, (x,), strict=False)
    for mine, theirs in zip(wrapped(x), program.module()(x), strict=True):
        torch.testing.assert_close(mine, theirs)
