"""Dropout of attention weights: on in every pass of MC dropout where its rate is known, and named where it is not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qipf.predictive import MCDropout
from qipf.predictive.masks import Masks
from qipf.predictive.structure import attend


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
