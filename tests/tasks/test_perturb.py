"""Perturbed inputs: what may change changes, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qipf.tasks.perturb import Perturber, draw_pixels, draw_tokens
from qipf.tasks.views import has_images


def draws(seed: int = 0, **settings) -> Perturber:
    return Perturber(torch.Generator().manual_seed(seed), **settings)


def known(inputs, **settings) -> bool:
    return bool(draws(**settings).ways(inputs, 1))


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-2.5, 3.0)])
def test_images_stay_in_range_and_most_of_them_change(low, high) -> None:
    images = low + (high - low) * torch.rand(200, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    drawn = draws()(images)
    assert drawn.shape == images.shape
    assert drawn.min() >= min(0, low) - 1e-5
    assert drawn.max() <= max(1, high) + 1e-5
    same = torch.isclose(drawn, images, atol=1e-5).flatten(1).all(1).float().mean()
    assert 0.15 < same < 0.35  # a quarter is neither bent nor perturbed in another way


def test_rows_of_a_table_are_swapped_missing_or_noisy() -> None:
    table = torch.arange(900.0)[:, None] + 10_000 * torch.arange(8.0)
    drawn = draws()(table)
    whole, mean = drawn == drawn.round(), torch.isclose(drawn, table.mean(0), atol=1e-2)
    noisy = (~whole & ~mean).any(1)
    assert 0.25 < noisy.float().mean() < 0.42
    spread = (drawn - table)[noisy] / table.std(0)
    assert 0.4 < spread.std() < 0.75  # the amount is uniform from 0 to 1: 0.58
    swapped = ~noisy & ((drawn != table) & ~mean).any(1)
    assert torch.equal(drawn[swapped] // 10_000, table[swapped] // 10_000)  # values of the same column
    missing = ~noisy & mean.any(1)
    assert torch.equal(drawn[missing][~mean[missing]], table[missing][~mean[missing]])
    for kind in (swapped, missing):
        share = (drawn != table)[kind].float().mean(1)
        assert 0.2 < share.mean() < 0.35  # uniform from 0 to 1/2, less those that did not change


def test_tokens_change_without_padding_and_without_the_first() -> None:
    length = torch.randint(2, 9, (300, 1), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(8) < length).long()
    ids = torch.randint(5, 90, (300, 8), generator=torch.Generator().manual_seed(2)) * mask
    for inputs in ({"input_ids": ids, "attention_mask": mask}, (ids, mask)):
        drawn = draws()(inputs)
        new, still = drawn.values() if isinstance(drawn, dict) else drawn
        assert torch.equal(still, mask)
        assert torch.equal(new[:, 0], ids[:, 0])
        assert torch.equal(new == 0, mask == 0)  # neither is padding replaced, nor does it replace a token
        assert 0.1 < (new != ids)[:, 1:][mask[:, 1:] > 0].float().mean() < 0.3


def test_categories_stay_those_of_their_column() -> None:
    codes = torch.stack([torch.arange(100) % 3, 10 + torch.arange(100) % 4, 20 + torch.arange(100) % 2], dim=1)
    drawn = draws()(codes)
    assert torch.equal(drawn // 10, codes // 10)
    assert not torch.equal(drawn, codes)


@pytest.mark.parametrize("inputs", [torch.rand(20, 3, 8, 8), torch.rand(20, 6), torch.randint(9, (20, 6))])
def test_a_seed_decides_and_inputs_stay(inputs) -> None:
    before = inputs.clone()
    assert torch.equal(draws(3)(inputs), draws(3)(inputs))
    assert not torch.equal(draws(3)(inputs), draws(4)(inputs))
    assert torch.equal(inputs, before)


def test_a_function_of_ones_own_gets_the_inputs_and_the_generator() -> None:
    def double(inputs, generator):
        assert torch.is_tensor(torch.rand(1, generator=generator))
        return 2 * inputs

    signal, other = torch.ones(2, 3, 4, 5, 6), lambda inputs, generator: inputs
    assert torch.equal(draws()(signal, double), 2 * signal)
    assert draws(own=[double]).ways(signal, 4) == [double] * 4
    assert draws(own=[double, other], builtin=False).ways(torch.ones(2, 3), 1) == [double, other]
    assert draws(own=[double]).ways(torch.ones(2, 3), 4) == [None] * 4 + [double] * 2
    assert draws(own=[double, other]).ways(torch.ones(2, 3), 1) == [None, double, other]


def test_what_is_known() -> None:
    ids = torch.arange(8).reshape(2, 4)
    images = torch.rand(2, 3, 8, 8)
    named = {"token_type_ids": ids, "input_ids": ids, "attention_mask": ids}
    assert torch.equal(draws(1)(named)["token_type_ids"], ids)
    assert known({"pixel_values": images, "mask": torch.ones(2, 4)})
    assert known(torch.rand(2, 3, 8))
    assert not known(torch.rand(2, 1))
    assert not known(torch.rand(2, 3, 4, 5, 6))
    assert not known(torch.rand(2, 5), in_place="pixels")
    assert not known((images, images), in_place="pixels")  # the labels belong to one of the two
    with pytest.raises(ValueError, match="perturb_only="):
        draws()(torch.rand(2, 3, 4, 5, 6))


def test_every_one_of_several_inputs_is_perturbed_and_masks_are_not() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 90, (20, 6), generator=generator)
    inputs = {
        "left": torch.rand(20, 3, 8, 8, generator=generator), "right": 5 + torch.rand(20, 3, 8, 8, generator=generator),
        "table": torch.rand(20, 4, generator=generator), "signal": torch.rand(20, 2, 9, generator=generator),
        "ids": ids, "present": torch.ones(20, 6), "attention_mask": torch.ones(20, 6, dtype=torch.int64), "scale": 3.0,
    }  # fmt: skip
    drawn = draws()(inputs)
    assert set(drawn) == set(inputs)
    for name in ("left", "right", "table", "signal", "ids"):
        assert drawn[name].shape == inputs[name].shape
        assert not torch.equal(drawn[name], inputs[name]), name
    for name in ("present", "attention_mask", "scale"):
        assert drawn[name] is inputs[name] or torch.equal(drawn[name], inputs[name]), name
    two = draws()((inputs["table"], inputs["table"]))
    assert not torch.equal(two[0], two[1])


def test_signals_get_noise_another_scale_a_bent_time_axis_or_a_drop_out() -> None:
    time = torch.linspace(0, 6.28, 100)
    signals = torch.stack([time.sin(), 2 + time.cos()]).expand(400, 2, 100)
    drawn = draws()(signals)
    change = drawn - signals
    rough = (change.diff(dim=2).diff(dim=2).abs().median(2).values.amax(1) > 0.02).float().mean()
    flat = (drawn.diff(dim=2) == 0).sum(2)
    scale = (drawn / signals)[:, 1]
    scaled = (scale - scale[:, :1]).abs().amax(1) < 1e-4
    scaled &= (scale[:, 0] - 1).abs() > 1e-3
    assert 0.15 < rough < 0.35
    assert 0.15 < scaled.float().mean() < 0.35
    assert 0.1 < (flat.amin(1) > 2).float().mean() < 0.5  # drop-outs, and ends of bent time axes
    assert drawn.abs().max() < 8


@pytest.mark.parametrize("in_place", ["", "pixels"])
def test_layout_library_and_type_stay(in_place: str) -> None:
    """Colours may be last, and numbers bytes; NumPy arrays stay NumPy arrays."""
    bytes_ = np.random.default_rng(0).integers(0, 256, (40, 6, 5, 3)).astype(np.uint8)
    drawn = draws(in_place=in_place)(bytes_)
    assert (drawn.shape, drawn.dtype) == (bytes_.shape, bytes_.dtype)
    assert 0.05 < np.mean(drawn != bytes_) < 0.98
    first = np.ascontiguousarray(np.moveaxis(bytes_, 3, 1))
    np.testing.assert_array_equal(np.moveaxis(draws(in_place=in_place)(first), 1, 3), drawn)
    tensor = draws(in_place=in_place)({"x": torch.from_numpy(bytes_)})["x"]
    np.testing.assert_array_equal(tensor.numpy(), drawn)


def test_a_grid_of_indices_is_not_an_image() -> None:
    """Its cells may be rows of an embedding, and values between them, or above them, mean nothing."""
    grid = torch.randint(0, 9, (40, 1, 6, 5))
    assert draws().ways(grid, 2) == []
    assert draws().ways(grid.to(torch.uint8), 2) == [None, None]
    assert not has_images({"cells": grid})


def test_perturbed_images_keep_their_structure() -> None:
    image = torch.zeros(200, 1, 32, 32)
    image[:, :, :, 16:] = 1.0
    drawn = draw_pixels(image, torch.Generator().manual_seed(0))
    inside = ((drawn >= 0) & (drawn <= 1)).flatten(1).all(1)
    assert 0.1 < 1 - float(inside.float().mean()) < 0.3  # another tone may leave the range
    left, right = drawn[:, :, :, :8].mean((1, 2, 3)), drawn[:, :, :, 24:].mean((1, 2, 3))
    assert bool((right > left).all())  # nothing was bent or cut out


def test_tokens_are_replaced_by_tokens_of_the_batch() -> None:
    ids = torch.randint(5, 900, (400, 50), generator=torch.Generator().manual_seed(0))
    drawn = draw_tokens(ids, torch.Generator().manual_seed(1))
    assert torch.equal(drawn[:, 0], ids[:, 0])
    share = (drawn != ids).float().mean(1)
    assert 0.12 < float(share.mean()) < 0.17
    assert float(share.max()) < 0.55
    assert set(drawn.flatten().tolist()) <= set(ids.flatten().tolist())
    masked = {"ids": ids, "attention_mask": torch.ones_like(ids)}
    again = draws(in_place="tokens")(masked)
    assert torch.equal(again["attention_mask"], masked["attention_mask"])
    assert not torch.equal(again["ids"], ids)


def test_a_function_returns_inputs_of_the_same_shape_and_precision() -> None:
    images = torch.rand(4, 1, 8, 8)
    perturber = Perturber(torch.Generator().manual_seed(0))
    for wrong in (lambda x, _: x[:1], lambda x, _: None, lambda x, _: (x, x)):
        with pytest.raises(ValueError, match="perturb"):
            perturber(images, wrong)
    assert perturber(images, lambda x, _: x.double()).dtype == torch.float32
    assert perturber((255 * images).byte(), lambda x, _: 0.5 * x).dtype == torch.float32  # as the function returned
