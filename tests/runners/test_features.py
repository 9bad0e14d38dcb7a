"""Readings against torch's own pooling and against slices written out by hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from qipf.runners.features import FeatureSpec


@pytest.mark.parametrize("shape", [(5, 5), (7, 6), (8, 8), (5, 10)])
@pytest.mark.parametrize("grid", [(1, 1), (2, 2), (3, 2), (5, 5)])
def test_a_grid_is_adaptive_average_pooling(shape, grid) -> None:
    maps = torch.randn(3, 4, *shape, generator=torch.Generator().manual_seed(0))
    expected = functional.adaptive_avg_pool2d(maps, grid).flatten(1)
    rows = FeatureSpec.parse(f"body.conv@{grid[0]}x{grid[1]}").rows(maps)
    torch.testing.assert_close(rows, expected)
    last = FeatureSpec.parse(f"body.conv@{grid[0]}x{grid[1]}-last").rows(maps.permute(0, 2, 3, 1))
    torch.testing.assert_close(last, expected)


def test_tokens() -> None:
    tokens = torch.arange(2 * 4 * 3.0).reshape(2, 4, 3)
    one = torch.cat([tokens[:, 0], (tokens[:, 1] + tokens[:, 2] + tokens[:, 3]) / 3], dim=1)
    two = torch.cat([tokens[:, 0], tokens[:, 1], (tokens[:, 2] + tokens[:, 3]) / 2], dim=1)
    assert torch.equal(FeatureSpec("norm", "tokens1").rows(tokens), one)
    assert torch.equal(FeatureSpec("norm", "tokens2").rows(tokens), two)
    assert torch.equal(FeatureSpec("norm", "first").rows(tokens), tokens[:, 0])


def test_rows_and_inputs_are_as_they_are() -> None:
    rows = torch.randn(3, 5)
    assert FeatureSpec("head", "rows").rows(rows) is rows
    assert FeatureSpec("head", "input").rows(rows) is rows
    assert FeatureSpec("head", "input").before
    assert not FeatureSpec("head", "rows").before


@pytest.mark.parametrize("text", ["layer4@2x2", "layer4@7x7-last", "norm@tokens2", "a.b.c", "fc@input"])
def test_text_goes_there_and_back(text) -> None:
    assert str(FeatureSpec.parse(text)) == text


@pytest.mark.parametrize("text", ["layer4@2", "layer4@tokens3", "layer4@2x2x2", "layer4@mean"])
def test_an_unknown_reading_is_named(text) -> None:
    with pytest.raises(ValueError, match="unknown"):
        FeatureSpec.parse(text)


@pytest.mark.parametrize(
    ("form", "shape"),
    [("2x2", (3, 4)), ("rows", (3, 4, 5)), ("first", (3, 4)), ("tokens1", (3, 1, 8)), ("input", (3,))],
)
def test_a_shape_that_does_not_fit_is_named(form, shape) -> None:
    with pytest.raises(ValueError, match="dimensions"):
        FeatureSpec("layer", form).rows(torch.zeros(shape))
