"""The probe's score and posterior against closed forms, and wherever torch takes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp, softmax
from torch import nn

import qipf
from qipf.scores.mixture import LEAST, MANY
from qipf.scores.probe import FOLDS, Probe, fit_share
from qipf.study import nets
from qipf.tasks.outputs import Outputs

CLASSES = 4


def blobs(seed: int, count: int = 400, width: int = 6, classes: int = CLASSES) -> Outputs:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    features = 2.0 * np.eye(classes, width)[labels] + rng.standard_normal((count, width))
    return Outputs(logits=3 * features[:, :classes] + rng.standard_normal((count, classes)), features=features,
                   labels=labels)  # fmt: skip


@pytest.fixture(scope="module")
def probe() -> Probe:
    return Probe(hidden=32).fit(None, blobs(0))


def expected_posterior(probe: Probe, outputs: Outputs, share: float) -> np.ndarray:
    """The formula of the class, in double precision, with SciPy's softmax."""
    inner, inner_bias, outer, outer_bias = (
        probe.fitted.tensors[name].astype(np.float64) for name in ("inner", "inner_bias", "outer", "outer_bias")
    )
    head = np.maximum(outputs.features @ inner + inner_bias, 0) @ outer + outer_bias
    own = softmax(outputs.logits / probe.temperature, axis=1)
    return (1 - share) * softmax(head, axis=1) + share * own


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7, 1.0])
def test_posterior_and_score_are_those_of_the_formula(share) -> None:
    outputs = blobs(1)
    probe = Probe(hidden=32, share=share).fit(None, blobs(0))
    full = Probe(hidden=32).fit(None, blobs(0))
    expected = expected_posterior(full, outputs, share)
    posterior = probe.posterior(outputs)
    np.testing.assert_allclose(posterior, expected, rtol=1e-9)
    np.testing.assert_allclose(posterior.sum(1), 1, rtol=1e-12)
    winner = outputs.logits.argmax(1)
    chosen = expected[np.arange(len(outputs)), winner]
    np.testing.assert_allclose(probe(outputs), np.log1p(-chosen) - np.log(chosen), rtol=1e-6)


def test_without_the_head_it_is_the_log_odds_of_the_softmax() -> None:
    outputs = Outputs(logits=np.random.default_rng(0).normal(scale=9, size=(50, 5)), labels=np.arange(50) % 5)
    probe = Probe(share=1.0, temperature=2.0).fit(None, outputs)
    assert probe.layers == ()
    assert not probe.reads_features
    log = log_softmax(outputs.logits / 2, axis=1)
    best = log.max(1)
    others = np.where(log == best[:, None], -np.inf, log)
    np.testing.assert_allclose(probe(outputs.logits), logsumexp(others, axis=1) - best, rtol=1e-9)


def test_sure_predictions_are_not_tied_and_the_surest_stay_finite(probe) -> None:
    outputs = blobs(1, 6)
    logits = np.array([[0, 0, 0, gap] for gap in (20.0, 40.0, 60.0, 80.0, 1e3, 1e30)])
    sure = Probe(share=1.0, temperature=1.0).fit(None, outputs)(logits.astype(np.float32))
    assert sure.dtype == np.float32
    np.testing.assert_allclose(sure[:3], np.log(3) - np.array([20, 40, 60]), rtol=1e-5)
    assert (np.diff(sure[:4]) < 0).all()
    np.testing.assert_allclose(sure[4:], np.log(3 * LEAST), rtol=1e-5)


def test_a_classifier_with_one_logit() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((500, 3))
    labels = (features[:, 0] + 0.3 * rng.standard_normal(500) > 0).astype(np.int64)
    outputs = Outputs(logits=4 * features[:, :1], features=features, labels=labels)
    probe = Probe(hidden=16, share=0.5).fit(None, outputs)
    posterior = probe.posterior(outputs)
    assert posterior.shape == (500, 2)
    own = 1 / (1 + np.exp(-outputs.logits[:, 0] / probe.temperature))
    head = Probe(hidden=16, share=0.0).fit(None, outputs).posterior(outputs)[:, 1]
    np.testing.assert_allclose(posterior[:, 1], (own + head) / 2, rtol=1e-6)
    chosen = np.where(outputs.logits[:, 0] > 0, posterior[:, 1], posterior[:, 0])
    np.testing.assert_allclose(probe(outputs), np.log((1 - chosen) / chosen), rtol=1e-6)
    assert (posterior.argmax(1) == labels).mean() > 0.85


def test_the_head_learns_what_the_network_does_not_know() -> None:
    """The network is blind to half of the classes; its features are not."""
    train, test = blobs(0, 3000), blobs(1, 3000)
    blind = [Outputs(np.where([True, True, False, False], part.logits, 0.0), part.features, part.labels)
             for part in (train, test)]  # fmt: skip
    probe = Probe(hidden=64).fit(None, blind[0])
    accuracy = (probe.posterior(blind[1]).argmax(1) == test.labels).mean()
    bayes = (softmax(2 * test.features[:, :CLASSES], axis=1).argmax(1) == test.labels).mean()
    own = (blind[1].logits.argmax(1) == test.labels).mean()
    assert own < 0.6
    assert accuracy > bayes - 0.02


@pytest.mark.parametrize(("width", "classes"), [(2048, 10), (512, 1000), (2048, 1000)])
def test_a_file_is_below_eight_megabytes_and_gives_the_same_bits(width, classes, tmp_path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(2 * classes) % classes
    outputs = Outputs(
        rng.standard_normal((2 * classes, classes)).astype(np.float32),
        rng.standard_normal((2 * classes, width)).astype(np.float32), labels,
    )  # fmt: skip
    probe = Probe(epochs=1).fit(None, outputs)
    path = tmp_path / "probe.qipf"
    probe.save(path)
    assert path.stat().st_size < 8e6
    loaded = qipf.load(path)
    np.testing.assert_array_equal(loaded(outputs), probe(outputs))
    np.testing.assert_array_equal(loaded.posterior(outputs), probe.posterior(outputs))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_can_be_fitted_where_gradients_are_off(probe, mode) -> None:
    outputs = blobs(0)
    with mode():
        given = Outputs(*(torch.tensor(part) for part in (outputs.logits, outputs.features, outputs.labels)))
        again = Probe(hidden=32).fit(None, given)
    np.testing.assert_allclose(again(blobs(1)), probe(blobs(1)), rtol=1e-6)


@pytest.mark.parametrize("count", [MANY - 100, MANY + 100])
def test_the_share_is_chosen_by_inputs_that_the_head_has_not_seen(count, monkeypatch) -> None:
    outputs, copies = blobs(0, count), 3
    numbers = torch.arange(count).repeat(copies)
    features = torch.as_tensor(outputs.features)[numbers]
    labels = torch.as_tensor(outputs.labels)[numbers]
    given = Outputs(
        torch.zeros(len(numbers), CLASSES), None, labels, {"layer": features.clone()}, groups=numbers.clone(),
        positions=torch.arange(copies).repeat_interleave(count), task="classes",
    )  # fmt: skip
    seen, fit = [], Probe.fit

    def watched(self, model, data, **settings):
        seen.append(set(data.groups.tolist()))
        return fit(self, model, data, **settings)

    monkeypatch.setattr(Probe, "fit", watched)
    probe = fit_share(Probe(space="layer", hidden=16, epochs=4), None, given, in_place=True)
    assert probe.share < 0.5  # the network knows nothing
    every = set(range(count))
    held = [every - one for one in seen]
    assert len(held) == (FOLDS + 1 if count < MANY else 1)
    assert set().union(*held) == every if count < MANY else 0.05 < len(held[0]) / count < 0.15
    assert sum(map(len, held[:FOLDS])) == (count if count < MANY else len(held[0]))  # each input once
    assert torch.equal(given.layers["layer"], features[given.groups])  # rows stay together
    assert np.isfinite(probe(given).numpy()).all()


def test_bad_features_are_named(probe) -> None:
    outputs = blobs(1)
    features = outputs.features.copy()
    features[7, 1] = np.nan
    with pytest.raises(ValueError, match="features"):
        probe(Outputs(outputs.logits, features))
    with pytest.raises(ValueError, match="features"):
        Probe().fit(None, Outputs(outputs.logits, features, outputs.labels))
    with pytest.raises(ValueError, match="columns"):
        probe(Outputs(outputs.logits, outputs.features[:, :5]))
    with pytest.raises(ValueError, match="layer4@2x2"):
        Probe(space="layer4@2x2").fit(None, outputs)
    with pytest.raises(ValueError, match="labels"):
        Probe().fit(None, Outputs(outputs.logits, outputs.features))


@pytest.mark.parametrize(
    "setting", [{"share": 1.5}, {"dropout": -0.1}, {"hidden": 0}, {"epochs": 2.5}, {"temperature": 0}]
)
def test_settings_out_of_range_are_named(setting) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        Probe(**setting)


def test_an_interrupt_leaves_the_probe_as_it_was(probe, monkeypatch) -> None:
    outputs = blobs(1)
    before, random = probe(outputs), torch.get_rng_state()

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.optim.AdamW, "step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        probe.fit(None, blobs(2))
    np.testing.assert_array_equal(probe(outputs), before)
    assert torch.equal(torch.get_rng_state(), random)


# --- as a module ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(160, 1, 28, 28, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def lenet(images) -> tuple[nn.Module, Probe]:
    net = nets.build("lenet", seed=0).eval()
    return net, qipf.default(net, (images, torch.arange(160) % 10), effort="quick", progress=False)


@torch.no_grad()
def test_a_wrapped_model_returns_the_posterior(lenet, images) -> None:
    net, probe = lenet
    outputs = qipf.collect(net, images, layers=probe.layers, progress=False)
    plain = qipf.wrap(net, probe)(images)
    assert len(plain) == 2
    result = qipf.wrap(net, probe, posterior=True)(images)
    assert result._fields == ("output", "uncertainty", "probability", "accept", "posterior")
    assert torch.equal(result.output, net(images))
    assert result.probability is None
    assert result.accept is None
    torch.testing.assert_close(result.uncertainty, plain[1])
    torch.testing.assert_close(result.posterior, probe.posterior(outputs), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(result.uncertainty, probe(outputs), rtol=1e-4, atol=1e-4)
    broken = qipf.wrap(net, probe, posterior=True)(torch.full_like(images[:2], torch.nan))
    assert broken.posterior.isnan().all()
    assert broken.uncertainty.isnan().all()


def test_only_a_probe_has_a_posterior(lenet) -> None:
    with pytest.raises(TypeError, match="entropy"):
        qipf.wrap(lenet[0], qipf.Entropy(), posterior=True)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_and_half_precision_give_finite_scores(lenet, images, dtype) -> None:
    net, probe = lenet
    wrapped = qipf.wrap(net, probe, posterior=True)
    full = wrapped(images)
    with torch.autocast("cpu", dtype=dtype):
        cast = wrapped(images)
    assert cast.uncertainty.isfinite().all()
    torch.testing.assert_close(cast.posterior, full.posterior, rtol=0.1, atol=0.02)
    half = nets.build("lenet", seed=0).eval()
    half.load_state_dict(net.state_dict())
    low = qipf.wrap(half.to(dtype), probe, posterior=True)(images.to(dtype))
    assert low.uncertainty.isfinite().all()
    torch.testing.assert_close(low.posterior.float(), full.posterior, rtol=0.1, atol=0.02)


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_a_compiled_model_gives_the_same(lenet, images) -> None:
    wrapped = qipf.wrap(*lenet, posterior=True)
    compiled = torch.compile(wrapped, backend="eager", fullgraph=True)
    for mine, theirs in zip(wrapped(images)[1::3], compiled(images)[1::3], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [pytest.param("lenet", marks=pytest.mark.thorough), "small-cnn"])
def test_onnx_gives_the_same(name, images, tmp_path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x = images if name == "lenet" else images[..., :8, :8].contiguous()
    net = nets.build(name, seed=0).eval()
    probe = qipf.default(net, (x, torch.arange(160) % 10), effort="quick", progress=False)
    probe = Probe(**{**probe.settings(), "space": f"{probe.space.partition('@')[0]}@2x2", "hidden": 64}).fit(
        net,
        qipf.collect(net, (x, torch.arange(160) % 10), layers=f"{probe.space.partition('@')[0]}@2x2", progress=False),
    )
    wrapped = qipf.wrap(net, probe, posterior=True)
    qipf.export_onnx(wrapped, tmp_path / "net.onnx", x[:2])
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    assert [out.name for out in session.get_outputs()] == ["logits", "uncertainty", "posterior"]
    with torch.no_grad():
        output, uncertainty, _, _, posterior = wrapped(x)
    found = session.run(None, {"input": x.numpy()})
    for got, wanted in zip(found, (output, uncertainty, posterior), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
