"""The recommended scorer in one call, for what people have."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from torch import nn

import qipf
from qipf.scores.default import EFFORTS
from qipf.study import datasets, nets
from qipf.training import train


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


@pytest.fixture(scope="module")
def net(digits) -> nn.Module:
    return train(nets.build("small-cnn", seed=0), digits.train, epochs=4, progress=False)


def test_it_finds_errors_under_a_shift_better_than_entropy_and_names_more_classes(net, digits) -> None:
    probe = qipf.default(net, digits.train, progress=False)
    noise = torch.randn(digits.test.inputs.shape, generator=torch.Generator().manual_seed(0))
    shifted = ((digits.test.inputs + 0.35 * noise).clamp(0, 1), digits.test.targets)
    outputs = qipf.collect(net, shifted, layers=probe.layers, progress=False)
    wrong = ~outputs.correct
    assert roc_auc_score(wrong, probe(outputs)) > roc_auc_score(wrong, qipf.Entropy()(outputs))
    named = (probe.posterior(outputs).argmax(1) == outputs.labels).float().mean()
    assert named > outputs.correct.float().mean() + 0.05
    assert torch.equal(probe.score(net, shifted[0], progress=False), probe(outputs))


@pytest.mark.parametrize("effort", ["quick", "standard"])
def test_effort_sets_draws_and_epochs(effort, monkeypatch) -> None:
    calls = []
    table = torch.rand(90, 4), torch.arange(90) % 3
    small = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    small.register_forward_hook(lambda module, inputs, output: calls.append(len(output)))
    probe = qipf.default(small, table, effort=effort, progress=False)
    assert sum(count for count in calls if count > 2) == 90 * (1 + EFFORTS[effort].draws)
    assert probe.epochs == EFFORTS[effort].epochs


def test_features_can_be_named(net, digits) -> None:
    place = [name for name, module in net.named_modules() if isinstance(module, nn.Conv2d)][-1]
    probe = qipf.default(net, digits.train, features=f"{place}@1x1", size=200, effort="quick", progress=False)
    assert probe.layers == (f"{place}@1x1",)
    assert probe.fitted.tensors["inner"].shape[0] == 32
    with pytest.raises(ValueError, match="convolution"):
        qipf.default(net, digits.train, features="convolution", progress=False)


def test_a_loader_and_arrays_give_the_same(net, digits) -> None:
    first = digits.train.inputs[:300], digits.train.targets[:300]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*first), batch_size=100)
    one = qipf.default(net, first, effort="quick", batch_size=100, progress=False)
    two = qipf.default(net, loader, effort="quick", progress=False)
    assert all(np.array_equal(one.fitted.tensors[name], two.fitted.tensors[name]) for name in one.fitted.tensors)


def test_a_seed_decides(net, digits) -> None:
    def inner(seed):
        return qipf.default(net, digits.train, size=200, effort="quick", seed=seed, progress=False).fitted.tensors[
            "inner"
        ]

    assert np.array_equal(inner(1), inner(1))
    assert not np.array_equal(inner(1), inner(2))


def test_inputs_that_nobody_knows_leave_the_softmax_or_take_a_function() -> None:
    net = nn.Sequential(nn.Conv3d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 27, 5), nn.ReLU(), nn.Linear(5, 3))
    data = torch.rand(60, 1, 4, 4, 4), torch.arange(60) % 3
    with pytest.warns(UserWarning, match="perturb="):
        softmax = qipf.default(net, data, progress=False)
    assert (softmax.share, softmax.layers) == (1, ())
    logits = net(data[0]).detach()
    torch.testing.assert_close(softmax.score(net, data[0], progress=False), softmax(logits))
    assert torch.equal(softmax(logits).argsort(), qipf.SoftmaxResponse()(logits).argsort())
    calls = []

    def mirror(x, generator):
        calls.append(len(x))
        return x.flip(2)

    qipf.default(net, data, perturb=[mirror], effort="quick", progress=False)
    assert calls == [60]
    qipf.default(net, data, perturb_only=mirror, effort="standard", progress=False)
    assert calls == [60] * 5


def test_a_function_is_added_to_the_built_in_perturbations_or_replaces_them() -> None:
    calls = []
    table = torch.rand(90, 4), torch.arange(90) % 3
    small = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))

    def shuffle(x, generator):
        calls.append(len(x))
        return x[:, torch.randperm(4, generator=generator)]

    def fitted(**settings):
        calls.clear()
        return qipf.default(small, table, progress=False, **settings), len(calls)

    built_in, added, only = fitted(), fitted(perturb=shuffle), fitted(perturb_only=[shuffle])
    assert (built_in[1], added[1], only[1]) == (0, 2, 4)
    for settings in ({"perturb": 3}, {"perturb_only": "x"}, {"perturb": shuffle, "perturb_only": shuffle}):
        with pytest.raises((TypeError, ValueError), match="perturb"):
            fitted(**settings)


def test_a_model_that_is_not_of_torch() -> None:
    x, y = load_digits(return_X_y=True)
    x = x / 16
    model = MLPClassifier((32,), max_iter=200, random_state=0, tol=1e-2, n_iter_no_change=3).fit(x[:900], y[:900])
    hidden = np.maximum(x @ model.coefs_[0] + model.intercepts_[0], 0)
    logits = hidden @ model.coefs_[1] + model.intercepts_[1]
    assert (logits.argmax(1) == model.predict(x)).all()
    outputs = qipf.Outputs(logits, hidden, y)
    probe = qipf.default(None, outputs[:900], progress=False)
    assert not probe.progress
    test = outputs[900:]
    assert roc_auc_score(~test.correct, probe(test)) > roc_auc_score(~test.correct, qipf.Entropy()(test)) - 0.01
    named = qipf.default(None, qipf.Outputs(logits[:900], None, y[:900], {"hidden": hidden[:900]}), progress=False)
    assert named.layers == ("hidden",)
    with pytest.raises(TypeError, match="Outputs"):
        qipf.default(object(), (x, y), progress=False)
    with pytest.raises(ValueError, match="hidden"):
        qipf.default(None, qipf.Outputs(logits, None, y, {"hidden": hidden}), features="other", progress=False)
    with pytest.raises(ValueError, match="features"):
        qipf.default(None, qipf.Outputs(logits, None, y), progress=False)
    with pytest.raises(ValueError, match="labels"):
        qipf.default(None, qipf.Outputs(logits, hidden), progress=False)


def test_errors_are_one_line(net, digits) -> None:
    table = torch.rand(9, 4), torch.arange(9) % 3
    images = (255 * digits.train.inputs).to(torch.uint8), digits.train.targets
    cases = [
        (lambda: qipf.default(net, digits.train, effort="huge"), "quick, standard, thorough"),  # pyright: ignore
        (lambda: qipf.default(None, table), "Outputs"),
        (lambda: qipf.default(nn.Linear(4, 3), table, progress=False), "features"),
        (lambda: qipf.default(net, images, progress=False), "uint8"),
        (lambda: qipf.default(net, digits.train.inputs, progress=False), "labels"),
        (lambda: qipf.default(net, digits.train, memory="x", progress=False), "memory: expected an integer"),  # pyright: ignore
        (lambda: qipf.default(net, digits.train, size=1.5, progress=False), "size: expected an integer"),  # pyright: ignore
        (lambda: qipf.default(net, digits.train, seed=1.5, progress=False), "seed: expected an integer"),  # pyright: ignore
        (lambda: qipf.default(net, digits.train, batch_size="x", progress=False), "batch_size: expected"),  # pyright: ignore
        (lambda: qipf.default(net, digits.test.inputs.repeat(1, 3, 1, 1), progress=False), "3 channels"),
        (lambda: qipf.default(nn.Sequential(net, First()), digits.train, progress=False), r"\(1, 10\).* 2;"),
    ]
    for call, word in cases:
        with pytest.raises((ValueError, TypeError), match=word) as caught:
            call()
        assert "\n" not in str(caught.value)


class First(nn.Module):
    """Loses the batch, as `squeeze` and `[0]` do."""

    def forward(self, x):
        return x[:1]


def test_the_logarithm_of_a_probability_of_zero_is_answered_with_the_way_out(rng) -> None:
    x, y = rng.standard_normal((60, 4)), np.arange(60) % 3
    with np.errstate(divide="ignore"):
        log = np.log(RandomForestClassifier(5, random_state=0).fit(x, y).predict_proba(x))
    assert np.isneginf(log).any()
    with pytest.raises(ValueError, match="infinity"):
        qipf.default(None, qipf.Outputs(log, x, y), progress=False)
    probe = qipf.default(None, qipf.Outputs(np.clip(log, -20, None), x, y), effort="quick", progress=False)
    assert np.isfinite(probe(qipf.Outputs(np.clip(log, -20, None), x))).all()
    log[3, 1] = np.nan
    with pytest.raises(ValueError, match="infinite"):
        qipf.Entropy()(log)


def test_few_labels_leave_the_softmax_the_greater_weight_without_a_cliff(net, digits) -> None:
    few = qipf.default(net, digits.train, size=40, effort="quick", progress=False)
    many = qipf.default(net, digits.train, effort="quick", progress=False)
    assert many.share < few.share - 0.1
    assert few.share > 0.8
    assert few.fitted.facts["temperature"] == pytest.approx(1 + 2 * 0.5 * (1 - few.share))  # near that of the network
    assert few.temperature == many.temperature == 1.5
    outputs = qipf.collect(net, digits.test, layers=(many.space,), progress=False)
    assert (
        roc_auc_score(~outputs.correct, few(outputs)) > roc_auc_score(~outputs.correct, qipf.Entropy()(outputs)) - 0.01
    )


def test_a_sigmoid_whose_task_was_not_given_is_not_scored_as_logits() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid()).eval()
    x = torch.randn(200, 4)
    uq = qipf.default(net, (x, (x[:, 0] > 0).long()), effort="quick", progress=False)
    known = qipf.collect(net, x, layers=uq.layers, task="classes", progress=False)
    torch.testing.assert_close(uq(known), uq.score(net, x, progress=False))
    with pytest.raises(ValueError, match="task="):
        uq(qipf.collect(net, x, layers=uq.layers, progress=False))


def test_an_empty_batch_has_no_scores(net, digits) -> None:
    uq = qipf.default(net, digits.train, effort="quick", progress=False)
    assert qipf.wrap(net.eval(), uq)(digits.test.inputs[:0])[1].shape == (0,)
