"""MC dropout against moments and sums over masks, and dropout of attention weights."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn import functional as F

from qipf.predictive import MCDropout, MCDropoutLastLayer
from qipf.predictive.masks import Masks, Place
from qipf.predictive.structure import attend
from qipf.study import nets
from qipf.training import seeded
from qipf.training.loop import Split

CPU = torch.device("cpu")
REGRESSION = Split(torch.ones(4, 6), torch.zeros(4))


class Drops(nn.Module):
    """Sums what is left of its input after one dropout of a given kind; its only dense layer comes first."""

    def __init__(self, drop):
        super().__init__()
        self.embed = nn.Linear(6, 6)
        self.embed.weight.data, self.embed.bias.data = torch.eye(6), torch.zeros(6)
        self.drop = drop

    def forward(self, x):
        return self.drop(self.embed(x), self).sum(1, keepdim=True)


def many(method, x, count=4000):
    """Many passes, shape (count, N, C)."""
    return method.sample(x, count)


X = torch.tensor([[1.0, -2.0, 0.5, 3.0, 0.0, 1.5], [0.3, 0.1, 2.0, -1.0, 1.0, 1.0]])


@pytest.mark.parametrize(
    "drop",
    [
        lambda x, net: functional.dropout(x, 0.4, training=net.training),
        lambda x, net: functional.dropout(x.clone(), 0.4, net.training, True),
        lambda x, net: torch.dropout(x, 0.4, net.training),
        lambda x, net: nn.Dropout(0.4).eval()(x),
    ],
    ids=["function", "in place", "torch.dropout", "module"],
)
def test_every_kind_of_dropout_is_on_and_has_the_moments_of_its_mask(drop):
    """sum_j x_j m_j / (1 - p): mean sum x, variance p / (1 - p) sum x^2."""
    passes = many(MCDropout(0.25, own_rates=True).fit(Drops(drop), REGRESSION), X)[..., 0]
    variance = 0.4 / 0.6 * (X**2).sum(1)
    assert ((passes.mean(0) - X.sum(1)).abs() < 4 * (variance / 4000).sqrt()).all()
    assert torch.allclose(passes.var(0), variance, rtol=0.1)


def test_the_rate_of_the_method_replaces_the_networks_own():
    net = Drops(lambda x, net: functional.dropout(x, 0.4, training=net.training))
    passes = many(MCDropout(0.1).fit(net, REGRESSION), X)[..., 0]
    assert torch.allclose(passes.var(0), 0.1 / 0.9 * (X**2).sum(1), rtol=0.12)


def test_channels_are_dropped_whole():
    net = Drops(lambda x, net: functional.dropout1d(x.view(-1, 3, 2), 0.5, net.training).flatten(1))
    passes = many(MCDropout(own_rates=True).fit(net, REGRESSION), X)[..., 0]
    assert torch.allclose(passes.var(0), X.view(-1, 3, 2).sum(2).square().sum(1), rtol=0.1)


def test_alpha_dropout_has_the_moments_of_torchs_own():
    with seeded(0, CPU):
        values = functional.selu(torch.randn(400, 500))
        own = functional.alpha_dropout(values, 0.2, training=True)
    with Masks(3, [], rate=None):
        ours = functional.alpha_dropout(values, 0.2, training=False)
    assert not torch.equal(ours, values)
    torch.testing.assert_close(ours.mean(), own.mean(), rtol=0, atol=0.01)
    torch.testing.assert_close(ours.std(), own.std(), rtol=0.01, atol=0)
    torch.testing.assert_close(ours.min(), own.min())


def test_last_layer_probabilities_are_the_sum_over_all_masks():
    """Three features have eight masks: the exact mean probabilities are a finite sum."""
    with seeded(1, CPU):
        net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 4))
        x = torch.randn(5, 2)
    rate = 0.3
    exact, second = torch.zeros(5, 4), torch.zeros(5, 4)
    for mask in itertools.product((0.0, 1.0), repeat=3):
        weight = rate ** mask.count(0.0) * (1 - rate) ** mask.count(1.0)
        p = net[2](net[1](net[0](x)) * torch.tensor(mask) / (1 - rate)).softmax(1)
        exact, second = exact + weight * p, second + weight * p**2
    data = Split(x, torch.zeros(5, dtype=torch.int64))
    for method in (MCDropoutLastLayer(rate), MCDropout(rate)):  # here both have the same single place
        passes = many(method.fit(net, data), x, 6400)
        std = (second - exact**2).sqrt()
        assert ((passes.mean(0) - exact).abs() < 4 * std / 80).all()
        torch.testing.assert_close(passes.std(0), std, rtol=0.05, atol=0)


def test_the_part_before_the_last_layer_runs_once():
    calls = []
    net = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 2))
    method = MCDropoutLastLayer().fit(net, Split(X, torch.tensor([0, 1])))
    method._ready()[0].register_forward_hook(lambda *_: calls.append(1))
    passes = method.sample(X, 50, batch_size=2)
    assert len(calls) == 1
    assert len(passes) == 50


def test_a_network_that_goes_on_after_its_last_dense_layer():
    """The same masks, whether the passes start at the last layer or have to run the whole network."""
    with seeded(2, CPU):
        net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    longer = nn.Sequential(*net, nn.LogSoftmax(1))
    data = Split(X, torch.tensor([0, 1]))
    short, whole = (MCDropoutLastLayer().fit(n, data) for n in (net, longer))
    assert short._trunk is not None
    assert whole._trunk is None
    torch.testing.assert_close(short.sample(X, 20), whole.sample(X, 20))


def test_batch_norm_predicts_as_usual_and_keeps_its_statistics():
    net = nets.build("vgg3", channels=1, size=8, seed=3)
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    method = MCDropout(0.2).fit(net, Split(x, torch.zeros(6, dtype=torch.int64)))
    passes = method.sample(x, 3)
    torch.testing.assert_close(method.sample(x, 3, batch_size=1), passes, rtol=0, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(method._ready().buffers(), net.buffers(), strict=True))
    assert passes.std(0).max() > 0


class Sequences(nn.Module):
    """Drops tensors that hold the examples in different places; 8 steps, so that batches of 8, 4 and 2 may mislead."""

    def __init__(self, form):
        super().__init__()
        self.form, self.embed, self.head = form, nn.Linear(6, 8 * 4), nn.Linear(4, 3)

    def forward(self, x):
        values = torch.tanh(self.embed(x)).view(-1, 8, 4)
        if self.form == "time first":
            values = functional.dropout(values.transpose(0, 1).contiguous(), 0.5, self.training).transpose(0, 1)
        elif self.form == "folded":
            values = functional.dropout(values.flatten(0, 1), 0.5, self.training).view(-1, 8, 4)
        elif self.form == "channels":
            values = functional.dropout1d(values.transpose(0, 1).contiguous(), 0.5, self.training).transpose(0, 1)
        else:
            weight = functional.dropout(self.head.weight.repeat(8, 1), 0.5, self.training)
            return values.mean(1) @ weight[:3].T
        return self.head(values.mean(1))


@pytest.mark.parametrize("form", ["time first", "folded", "channels", "weight"])
def test_masks_do_not_depend_on_the_batch_size_wherever_the_examples_are(form):
    with seeded(3, CPU):
        net, x = Sequences(form), torch.randn(16, 6)
    method = MCDropout(0.5).fit(net, Split(x, torch.zeros(16, dtype=torch.int64)))
    passes = method.sample(x, 3, batch_size=16)
    for size in (1, 2, 3, 4, 8):
        torch.testing.assert_close(method.sample(x, 3, batch_size=size), passes, rtol=0, atol=1e-6)
    same = method.sample(x[:1].repeat(16, 1), 1)[0]
    assert (same == same[0]).all()  # a pass is one network for all inputs
    assert len(method.sample(x[:1], 20).unique(dim=0)) > 10


def test_a_network_without_a_place_is_refused():
    data = Split(X, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="dropout"):
        MCDropout().fit(nn.Sequential(nn.Linear(6, 2)), data)
    with pytest.raises(ValueError, match="dense"):
        MCDropoutLastLayer().fit(nn.Sequential(nn.ReLU()), data)
    with pytest.raises(ValueError, match="between"):
        MCDropout(1.5)


def test_inputs_of_another_size_than_those_of_the_fit():
    """The masks follow the shape of one input, so the batch size still changes nothing."""
    with seeded(4, CPU):
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1))
        net.extend([nn.Flatten(), nn.Linear(4, 3)])
        small, large = torch.rand(4, 1, 12, 12), torch.rand(6, 1, 17, 17)
    method = MCDropout(0.3).fit(net, Split(small, torch.zeros(4, dtype=torch.int64)))
    passes = method.sample(large, 3)
    torch.testing.assert_close(method.sample(large, 3, batch_size=4), passes, rtol=0, atol=1e-6)
    assert not torch.allclose(passes[0], passes[1])


def test_where_the_last_layer_method_drops():
    """The authors' program drops the output of LeNet's first dense layer; the paper's text says the second one's."""
    for before, lenet, vgg in (("second-to-last", "dense2", "4"), ("last", "dense3", "7")):
        for name, shape, expected in (("lenet", (1, 28, 28), lenet), ("vgg3", (3, 32, 32), vgg)):
            method = MCDropoutLastLayer(before=before)
            method.fit(nets.build(name), Split(torch.zeros(2, *shape), torch.zeros(2, dtype=torch.int64)))
            assert method._places == [Place(expected, "input")]
            assert (method._trunk is None) == (before == "second-to-last")
    one = MCDropoutLastLayer().fit(nets.build("resnet18"), Split(torch.zeros(2, 3, 8, 8), torch.zeros(2).long()))
    assert one._places == [Place("dense", "input")]
    with pytest.raises(ValueError, match="before"):
        MCDropoutLastLayer(before="first")


class Encoder(nn.Module):
    def __init__(self, **settings) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **settings)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


@pytest.mark.parametrize("settings", [{}, {"bias": False}, {"kdim": 5, "vdim": 7}])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_without_drops_it_is_the_attention_of_torch(settings, batched, need_weights) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, dropout=0.3, **settings).eval()
    widths = (8, settings.get("kdim", 8), settings.get("vdim", 8))
    query, key, value = (torch.randn(*size) for size in zip((4, 6, 6), (3, 3, 3), widths, strict=True))
    if not batched:
        query, key, value = query[:, 0], key[:, 0], value[:, 0]
    mask = torch.zeros(4, 6, dtype=torch.bool)
    mask[:, 4] = True
    expected = module(query, key, value, attn_mask=mask, need_weights=need_weights)
    with torch.no_grad(), Masks(0, [], rate=0.0):
        found = module(query, key, value, attn_mask=mask, need_weights=need_weights)
    torch.testing.assert_close(found[0], expected[0])
    assert (found[1] is None) == (expected[1] is None)
    if need_weights:
        torch.testing.assert_close(found[1], expected[1])


def test_what_is_dropped_are_the_weights() -> None:
    torch.manual_seed(0)
    module, x = nn.MultiheadAttention(8, 2, dropout=0.3).eval(), torch.randn(5, 3, 8)
    given = {
        "query": x, "key": x, "value": x, "embed_dim_to_check": 8, "num_heads": 2,
        "in_proj_weight": module.in_proj_weight, "in_proj_bias": module.in_proj_bias, "bias_k": None, "bias_v": None,
        "add_zero_attn": False, "dropout_p": 0.3, "out_proj_weight": module.out_proj.weight,
        "out_proj_bias": module.out_proj.bias,
    }  # fmt: skip
    keep = (torch.rand(3, 2, 5, 5) > 0.3).float()
    output, _ = attend((), given, lambda weights: weights * keep / 0.7)
    q, k, v = (part.view(5, 3, 2, 4).permute(1, 2, 0, 3) for part in F.linear(x, module.in_proj_weight).chunk(3, -1))
    weights = (q @ k.transpose(2, 3) / 2).softmax(-1) * keep / 0.7  # biases are zero at the start
    expected = F.linear((weights @ v).permute(2, 0, 1, 3).reshape(5, 3, 8), module.out_proj.weight)
    torch.testing.assert_close(output, expected)


def test_passes_differ_only_where_attention_has_dropout() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 6, 8)
    data = x, torch.arange(40) % 3

    def spread(rate: float) -> float:
        net = nn.Sequential(Encoder(dropout=rate), nn.Linear(3, 3))  # a place for dropout, of a rate of almost nothing
        method = MCDropout(1e-9, passes=10, own_rates=True).fit(net, data, progress=False)
        return float(method.sample(x).std(0).mean())

    assert spread(0.3) > 1e-3
    assert spread(0.0) < 1e-6


def test_a_pass_does_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 6, 8)
    method = MCDropout(0.2, passes=3).fit(Encoder(dropout=0.3), (x, torch.arange(12) % 3), progress=False)
    torch.testing.assert_close(method.sample(x), method.sample(x, batch_size=5))
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    net = nn.Sequential(layer, nn.Flatten(), nn.Linear(48, 3))
    whole = MCDropout(0.2, passes=3).fit(net, (x, torch.arange(12) % 3), progress=False)
    torch.testing.assert_close(whole.sample(x), whole.sample(x, batch_size=5))


class Fused(nn.Module):
    """As in many vision transformers: the rate is given in training only."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.attn_drop, self.head = nn.Dropout(rate), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(x, x, x, dropout_p=self.attn_drop.p if self.training else 0.0)
        return self.head(mixed.mean(1))


def test_attention_that_hides_its_rate_is_named() -> None:
    x = torch.randn(12, 6, 8)
    data = x, torch.arange(12) % 3
    net = nn.Sequential(Fused(0.2), nn.Linear(3, 3))
    with pytest.warns(UserWarning, match="attention") as caught:
        MCDropout(0.2, passes=2).fit(net, data, progress=False)
    assert "\n" not in str(caught[0].message)
    with pytest.warns(UserWarning, match=r"'0.attention'"):
        MCDropout(0.2, passes=2).fit(
            nn.Sequential(Encoder(dropout=0.2, add_bias_kv=True), nn.Linear(3, 3)), data, progress=False
        )
    MCDropout(0.2, passes=2).fit(nn.Sequential(Fused(0.0), nn.Linear(3, 3)), data, progress=False)
