"""Reading a network on clean and perturbed inputs: bounded, once, and without a trace."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from example_models import collect_augmented, state, unchanged
from example_models import net as messy


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.hidden(x)))


ROW = 2 * (6 + 3) + 8
"""Bytes of one row of `Tiny`: features and logits in half precision, and a label."""


@pytest.fixture
def table() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(600.0)[:, None] + torch.rand(600, 4, generator=torch.Generator().manual_seed(0)), (
        torch.arange(600) % 3
    )


def test_rows_are_those_of_a_bare_pass_and_labels_repeat(table) -> None:
    net = Tiny()
    outputs = collect_augmented(net, table, draws=2, batch_size=600, progress=False)
    assert len(outputs) == 3 * 600
    assert torch.equal(outputs.labels, table[1].repeat(3))
    assert torch.equal(outputs.groups, torch.arange(600).repeat(3))
    assert torch.equal(outputs.positions, torch.arange(3).repeat_interleave(600))
    assert outputs.logits.dtype == torch.bfloat16
    with torch.no_grad():
        torch.testing.assert_close(outputs.layers["hidden@rows"][:600], net.hidden(table[0]).bfloat16())
        torch.testing.assert_close(outputs.logits[:600], net(table[0]).bfloat16())
    assert not torch.equal(outputs.logits[:600], outputs.logits[600:1200])


@pytest.mark.parametrize("memory", [ROW * 3 * 100, ROW * 3 * 333 + 5])
def test_no_more_rows_are_kept_than_memory_allows(table, memory) -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*table), batch_size=64)
    for data in (table, loader, iter(list(loader))):
        outputs = collect_augmented(Tiny(), data, draws=2, memory=memory, progress=False)
        assert len(outputs) == 3 * (memory // (3 * ROW))


def test_arrays_are_sampled_and_loaders_give_the_first(table) -> None:
    net = Tiny()

    def rows(data, seed=0):
        outputs = collect_augmented(net, data, draws=1, perturb=False, size=50, seed=seed, progress=False)
        return outputs.layers["hidden@rows"]

    with torch.no_grad():
        whole = net.hidden(table[0]).bfloat16()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*table), batch_size=60)
    assert torch.equal(rows(loader), whole[:50])
    drawn = rows(table)
    places = [int((whole == row).all(1).nonzero()[0, 0]) for row in drawn]
    assert max(places) > 400
    assert len(set(places)) > 40  # half precision may merge a few neighbours
    assert torch.equal(rows(table), drawn)
    assert not torch.equal(rows(table, seed=1), drawn)


def test_an_iterator_is_read_once_and_no_further_than_needed(table) -> None:
    read = []

    def stream():
        for start in range(0, 600, 60):
            read.append(start)
            yield table[0][start : start + 60], table[1][start : start + 60]

    outputs = collect_augmented(Tiny(), stream(), draws=1, size=100, progress=False)
    assert read == [0, 60]
    assert len(outputs) == 200


def test_a_function_of_ones_own_perturbs_keyword_inputs() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, *, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return self.head(self.hidden(left + right))

    data = {"left": torch.ones(9, 4), "right": torch.zeros(9, 4), "labels": torch.arange(9) % 3}

    def add_ten(inputs, generator):
        return {**inputs, "right": inputs["right"] + 10}

    net = Sum()
    outputs = collect_augmented(net, data, draws=1, perturb=False, own=[add_ten], progress=False)
    with torch.no_grad():
        expected = net.hidden(torch.tensor([[1.0] * 4, [11.0] * 4])).bfloat16()
    torch.testing.assert_close(outputs.layers["hidden@rows"], expected.repeat_interleave(9, 0))


def test_the_model_and_all_random_states_are_left_as_they_were() -> None:
    net = messy()
    before = state(net)
    images = torch.rand(24, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    collect_augmented(net, (images, torch.arange(24) % 3), draws=2, progress=False)
    unchanged(before, state(net))


def test_an_interrupt_leaves_nothing_behind() -> None:
    net = messy()
    images = torch.rand(24, 1, 6, 6, generator=torch.Generator().manual_seed(0))

    def interrupted():
        yield images, torch.arange(24) % 3
        raise KeyboardInterrupt

    before = state(net)
    with pytest.raises(KeyboardInterrupt):
        collect_augmented(net, interrupted(), draws=2, progress=False)
    unchanged(before, state(net))


def test_what_is_missing_is_named(table) -> None:
    with pytest.raises(ValueError, match="labels"):
        collect_augmented(Tiny(), table[0], draws=1, progress=False)
    with pytest.raises(ValueError, match="least"):
        collect_augmented(Tiny(), iter(()), draws=1, progress=False)
    with pytest.raises(ValueError, match="size"):
        collect_augmented(Tiny(), table, draws=1, size=0, progress=False)
    with pytest.raises(ValueError, match="perturb"):
        collect_augmented(nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 3)), (table[0][:, :1], table[1]), draws=1)
    overflowing = Tiny()
    overflowing.hidden.weight.data[0] = torch.inf
    with pytest.raises(ValueError, match="hidden"):
        collect_augmented(overflowing, table, draws=1, progress=False)
    with pytest.warns(UserWarning, match="2 of 3"):
        collect_augmented(Tiny(), (table[0][::3], table[1][::3]), draws=1, progress=False)
