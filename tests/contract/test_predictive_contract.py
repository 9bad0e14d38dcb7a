"""Every many-pass method through one battery, on the digits that come with scikit-learn."""

import copy
import functools

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils.data import TensorDataset

from qipf import predictive
from qipf.study import datasets, nets
from qipf.training import accuracy, train

QUICK = {"epochs": 8, "batch_size": 64, "learning_rate": 0.01}
SETTINGS = {
    "mc-dropout": {"rate": 0.1},
    "mc-dropout-ll": {},
    "svi": QUICK,
    "svi-ll": QUICK,
    "ensemble": {"members": 4, **QUICK},
    "swag": {"iterates": 4, "rank": 4, **QUICK},
    "sgd-iterates": {"iterates": 4, **QUICK},
}
METHODS = sorted(predictive.METHODS)


def factory():
    return nets.build("small-cnn")


@functools.cache
def digits():
    return datasets.load("digits")


@functools.cache
def base():
    return train(nets.build("small-cnn", seed=0), digits().train, progress=False, **QUICK)


def make(name):
    return predictive.METHODS[name](**SETTINGS[name])


def source(name):
    return base() if name.startswith("mc-") else factory


@functools.cache
def fitted(name):
    return make(name).fit(source(name), digits().train, seed=1, progress=False)


def inputs(count=60):
    return digits().test.inputs[:count]


def test_every_method_goes_through_this_battery():
    assert sorted(SETTINGS) == METHODS
    assert len(METHODS) == 7


@pytest.mark.parametrize("name", METHODS)
class TestContract:
    def test_it_predicts_the_digits(self, name):
        summary = fitted(name).summarise(digits().test.inputs, 4, progress=False)
        right = (summary.predicted == digits().test.targets).float().mean()
        assert right > 0.85  # eight epochs; chance is 0.1

    def test_it_knows_its_errors_better_than_chance(self, name):
        summary = fitted(name).summarise(digits().test.inputs, 4, progress=False)
        wrong = summary.predicted != digits().test.targets
        for score in (summary.std_of_mean_class, summary.entropy_of_mean, summary.mutual_information):
            assert score[wrong].mean() > 1.5 * score[~wrong].mean()

    def test_it_takes_a_pair_or_a_tensor_dataset(self, name):
        settings = {key: value for key, value in SETTINGS[name].items() if key not in QUICK}
        few = datasets.Split(digits().train.inputs[:50], digits().train.targets[:50])
        column = few.inputs.double().numpy(), few.targets[:, None].numpy()
        passes = [
            predictive.METHODS[name](**settings, **({} if name.startswith("mc-") else {"epochs": 1}))
            .fit(source(name), data, seed=1, progress=False)
            .sample(inputs(5), 2)
            for data in (few, tuple(few), list(few), column, TensorDataset(*few))
        ]
        assert all(torch.equal(values, passes[0]) for values in passes)
        with pytest.raises(TypeError, match="Split"):
            make(name).fit(source(name), few.inputs)

    def test_samples_are_probabilities_that_differ_between_passes(self, name):
        passes = fitted(name).sample(inputs(), 3)
        assert passes.shape == (3, 60, 10)
        torch.testing.assert_close(passes.sum(-1), torch.ones(3, 60))
        assert (passes.std(0).amax(1) > 0).float().mean() > 0.9

    def test_everything_follows_from_the_seed(self, name):
        few = datasets.Split(digits().train.inputs[:200], digits().train.targets[:200])
        method, again = (make(name).fit(source(name), few, seed=1, progress=False) for _ in range(2))
        assert torch.equal(method.sample(inputs(), 3, seed=5), again.sample(inputs(), 3, seed=5))
        if name not in ("ensemble", "sgd-iterates"):  # whose passes are fixed by the fit
            assert not torch.allclose(method.sample(inputs(), 3, seed=5), method.sample(inputs(), 3, seed=6))

    def test_more_passes_begin_with_the_same_ones(self, name):
        method = fitted(name)
        assert torch.equal(method.sample(inputs(), 4)[:2], method.sample(inputs(), 2))

    def test_the_batch_size_changes_nothing(self, name):
        method = fitted(name)
        whole = method.sample(inputs(), 2, batch_size=60)
        for batch_size in (1, 7, 500):
            torch.testing.assert_close(method.sample(inputs(), 2, batch_size=batch_size), whole, rtol=0, atol=2e-6)

    def test_the_summary_is_that_of_the_samples_whatever_the_memory(self, name):
        method = fitted(name)
        passes = method.sample(inputs(), 4, seed=2).double()
        mean, std, base = passes.mean(0), passes.std(0, correction=0), (torch.arange(60) % 10)[:, None]
        entropy = torch.special.entr(mean).sum(1)
        expected = {
            "mean": mean,
            "std": std,
            "std_of_mean_class": std.gather(1, mean.argmax(1, keepdim=True))[:, 0],
            "std_of_base_class": std.gather(1, base)[:, 0],
            "entropy_of_mean": entropy,
            "contrast_of_base_class": -torch.special.logit(mean.gather(1, base)[:, 0]),
            "mutual_information": entropy - torch.special.entr(passes).sum(2).mean(0),
        }
        logits = []
        for memory in (256 * 2**20, 20_000):  # the second one holds about 25 inputs at a time
            summary = method.summarise(
                inputs(), 4, seed=2, batch_size=16, base_classes=base[:, 0], memory=memory, progress=False
            )
            for field, value in expected.items():
                rtol = 1e-3 if field.startswith("contrast") else 1e-4  # samples are float32, and 1 - p loses digits
                torch.testing.assert_close(getattr(summary, field), value.float(), rtol=rtol, atol=2e-6)
            assert torch.equal(summary.predicted, mean.argmax(1))
            logits.append(summary.minus_max_logit_of_one_pass)
        if name.startswith("svi"):
            assert torch.equal(*logits)
            assert logits[0].shape == (60,)
        else:
            assert logits == [None, None]

    def test_no_global_state_is_touched(self, name):
        model = copy.deepcopy(base()).train()
        before = copy.deepcopy(model.state_dict())
        random = torch.get_rng_state()
        given = model if name.startswith("mc-") else factory
        method = make(name)
        method.fit(given, datasets.Split(digits().train.inputs[:200], digits().train.targets[:200]), progress=False)
        method.sample(inputs(5), 2)
        make(name).load_state(factory, method.state())
        assert torch.equal(torch.get_rng_state(), random)
        assert model.training
        assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
        assert all(parameter.requires_grad for parameter in model.parameters())

    def test_the_state_survives_safetensors(self, name):
        method = fitted(name)
        restored = make(name).load_state(factory, safetensors.torch.load(safetensors.torch.save(method.state())))
        assert torch.equal(restored.sample(inputs(), 3, seed=4), method.sample(inputs(), 3, seed=4))
        stds = [fit.summarise(inputs(), 2, progress=False).std for fit in (restored, method)]
        assert torch.equal(*stds)

    def test_regression(self, name):
        """Outputs instead of probabilities, and a spread that grows away from the data."""
        data = datasets.load("regression").train
        quick = {"epochs": 150, "batch_size": 60, "learning_rate": 0.01}
        settings = {key: value for key, value in SETTINGS[name].items() if key not in QUICK} | quick
        if name.startswith("svi"):
            settings["noise"] = 0.3
        method = predictive.METHODS[name](**settings)
        method.fit(lambda: nets.build("mlp-regression"), data, progress=False)
        far = torch.tensor([[-6.0], [6.0]])
        near, away = (method.summarise(x, 4, progress=False) for x in (data.inputs, far))
        assert near.mean.shape == (len(data.inputs), 1)
        assert all(statistic is None for statistic in near[2:])
        error = (near.mean[:, 0] - data.targets).square().mean() / data.targets.var()
        assert error < 0.5
        assert away.std.mean() > near.std.mean()

    def test_mistakes_are_explained(self, name):
        method = make(name)
        with pytest.raises(RuntimeError, match="fitted"):
            method.sample(inputs())
        with pytest.raises(TypeError, match="module"):
            method.fit(3, digits().train)
        with pytest.raises(ValueError, match="example"):
            method.fit(source(name), datasets.Split(torch.empty(0, 1, 8, 8), torch.empty(0, dtype=torch.int64)))
        with pytest.raises(ValueError, match="least"):
            fitted(name).sample(inputs(), 0)
        with pytest.raises(ValueError, match="bytes"):
            fitted(name).summarise(inputs(), 2, memory=10)
        with pytest.raises(ValueError, match="60"):
            fitted(name).summarise(inputs(), 2, base_classes=torch.zeros(3))
        with pytest.raises(ValueError, match="missing"):
            method.load_state(factory, {})
        with pytest.raises(ValueError, match="fit"):
            method.load_state(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), fitted(name).state())


def test_the_base_network_is_sound():
    assert accuracy(base(), digits().test) > 0.85


@pytest.mark.parametrize("name", METHODS)
def test_an_unknown_option_is_refused_although_a_trained_network_needs_none(name):
    method = predictive.METHODS[name](epohcs=3)
    with pytest.raises(ValueError, match="epohcs"):
        method.fit(base(), digits().train, progress=False)
