"""Tokens: the numbers of every token equal those of the full logits, and masks and labels pick the right ones."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from tiny_gpt import N, T, TinyGPT, V
from torch import Tensor, nn

import qipf
import qipf.tasks.collect as collect
from qipf.scores import SCORERS
from qipf.tasks import Tokens, perplexity, summarise, vocabulary


@pytest.fixture(scope="module")
def logits(model: TinyGPT, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return model(ids).logits


def read(model: Any, data: Any, *, batch_size: int | None = None, features: Any = False, **options: Any) -> Any:
    task = Tokens(**options)
    return qipf.collect(model, data, task=task, features=features, batch_size=batch_size, progress=False)


@pytest.mark.parametrize("block", [V - 1, 3 * V, 2**22])
def test_scores_equal_those_of_the_full_logits(model, ids, logits, block, monkeypatch) -> None:
    monkeypatch.setattr(vocabulary, "BLOCK", block)
    found = read(model, (ids, ids), batch_size=2)
    flat = logits[:, :-1].reshape(-1, V)
    names = [name for name, kind in SCORERS.items() if kind.reads_summary]
    assert len(names) == 6
    for name in names:
        scorer = SCORERS[name]()
        torch.testing.assert_close(scorer(found), scorer(flat.double()).float(), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(found.predicted, flat.argmax(1))
    torch.testing.assert_close(found.labels, ids[:, 1:].flatten())
    expected = -nn.functional.cross_entropy(flat, ids[:, 1:].flatten(), reduction="none")
    torch.testing.assert_close(found.summary.log_label, expected)
    torch.testing.assert_close(found.correct, flat.argmax(1) == ids[:, 1:].flatten())


def test_masks_and_ignored_labels_are_left_out(model, ids) -> None:
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0  # padded on the right
    mask[1, :3] = 0  # padded on the left
    labels = ids.clone()
    labels[2, 4] = -100
    data = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    found = read(model, data)
    expected = {(n, t) for n in range(N) for t in range(1, T)}
    expected -= {(0, t) for t in range(6, T)} | {(1, t) for t in range(4)} | {(2, 4)}
    assert set(zip(found.groups.tolist(), (found.positions + 1).tolist(), strict=True)) == expected
    for n, t, label in zip(found.groups, found.positions, found.labels, strict=True):
        assert ids[n, t + 1] == label
    (scored,) = qipf.Entropy().stream(model, data, progress=False)
    assert torch.equal(scored.uncertainty.isnan(), mask == 0)
    assert {(n, t + 1) for n, t in scored.counted.nonzero().tolist()} == expected
    assert torch.equal(scored.correct[scored.counted], found.correct)
    np.testing.assert_allclose(scored.per_input(), summarise(qipf.Entropy()(found), found.groups), rtol=1e-6)


def test_without_shift_a_label_belongs_to_its_own_position(model, ids, logits) -> None:
    found = read(model, (ids, ids), shift=False)
    assert len(found) == N * T
    expected = logits.log_softmax(-1).gather(2, ids[..., None])[..., 0].flatten()
    torch.testing.assert_close(found.summary.log_label, expected)


def test_without_labels_every_position_is_scored(model, ids) -> None:
    found = read(model, ids)
    assert len(found) == N * T
    assert found.positions.max() == T - 1
    with pytest.raises(ValueError, match="labels"):
        perplexity(found)


@pytest.mark.parametrize("features", [None, "block"])
def test_features_are_the_hidden_state_of_the_same_token(model, ids, features) -> None:
    found = read(model, (ids, ids), features=features, batch_size=2)
    logits = 4 * model.lm_head(found.features)
    torch.testing.assert_close(logits.max(1).values, found.summary.top[:, 0])
    question = Tokens().question(found)
    assert question.features.shape == (len(found), 16 + 5)
    chance = nn.functional.softmax(logits, 1).max(1).values
    torch.testing.assert_close(question.logits[:, 0].sigmoid(), chance)
    torch.testing.assert_close(question.labels == 1, found.correct)
    assert not model.lm_head._forward_hooks


def test_a_sample_of_tokens(model, ids) -> None:
    whole, some = (
        qipf.collect(model, (ids, ids), task="tokens", most=most, seed=3, progress=False) for most in (None, 9)
    )
    assert len(some) == 9
    assert some.inputs == N
    keys = [list(zip(one.groups.tolist(), one.positions.tolist(), strict=True)) for one in (whole, some)]
    rows = [keys[0].index(key) for key in keys[1]]
    assert rows == sorted(rows)
    torch.testing.assert_close(some.summary.top, whole.summary.top[rows])


def test_what_does_not_fit_is_named(model, ids) -> None:
    with pytest.raises(ValueError, match=r"\(N, T, V\)"):
        read(nn.Linear(T, 3), ids.float())
    with pytest.raises(ValueError, match=r"\(N, 9\)"):
        read(model, (ids, ids[:, 0]))
    with pytest.raises(ValueError, match=r"\(N, 9\)"):
        read(Last(), (ids_of(6, 5), ids_of(6, 5)), shift=True)
    with pytest.raises(ValueError, match="integers"):
        read(model, (ids, ids.float()))
    for options in ({"ignore": [-100, 0]}, {"shift": "no"}, {"top": 1}, {"top": 2.5}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}: expected"):
            Tokens(**options)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="least"):
        read(model, [])
    with pytest.raises(ValueError, match="batches"):
        read(model, [(ids[:2], ids[:2]), (ids[2:],)])
    with pytest.raises(ValueError, match="-100"):
        read(model, (ids, torch.full_like(ids, -100)))
    with pytest.raises(ValueError, match="V >= 2"):
        read(nn.Sequential(nn.Embedding(V, 1)), ids)


class Alone(nn.Module):
    """Counts how many of its results exist while it makes the next one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.made, self.most = inner, [], 0

    def forward(self, input_ids: Tensor) -> Tensor:
        self.most = max(self.most, sum(one() is not None for one in self.made))
        result = self.inner(input_ids).logits
        self.made.append(weakref.ref(result))
        return result


@pytest.mark.parametrize("features", [None, False])
def test_the_logits_of_two_batches_never_exist_at_once(model, ids, features) -> None:
    counting = Alone(model)
    read(counting, (ids, ids), features=features, batch_size=1)
    assert counting.most == 0
    for _ in qipf.Entropy().stream(counting, ids, task="tokens", batch_size=1, progress=False):
        pass
    assert counting.most == 0


@pytest.mark.parametrize("waiting", [0, 500, 10**6])
def test_columns_are_the_same_however_many_batches_wait(model, ids, waiting, monkeypatch) -> None:
    whole = read(model, (ids, ids), features=None, batch_size=N)
    monkeypatch.setattr(collect, "WAITING", waiting)
    monkeypatch.setattr(collect.Columns, "_is_home", lambda *_: False)  # as if the model was on a GPU
    parts = read(model, (ids, ids), features=None, batch_size=1)
    for name in ("logits", "features", "labels", "groups", "positions"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name))
    for one, other in zip(parts.summary, whole.summary, strict=True):
        torch.testing.assert_close(one, other)


def test_texts_without_any_position_add_nothing(ids) -> None:
    found = read(nn.Embedding(V, V), [(ids, ids), (ids[:, :0], ids[:, :0])])
    assert (len(found), found.inputs) == (N * (T - 1), 2 * N)


def test_batches_with_another_number_of_features_are_named(ids) -> None:
    class Narrower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.kept = nn.Embedding(V, V), nn.Identity()

        def forward(self, input_ids: Tensor) -> Tensor:
            logits = self.table(input_ids)
            self.kept(logits[..., : input_ids.shape[1]])
            return logits

    with pytest.raises(ValueError, match=r"\(4,\)"):
        read(Narrower(), [ids, ids[:, :4]], features="kept")


class Words(nn.Module):
    """Logits of every token from its embedding alone; one of them may be spoiled."""

    def __init__(self, value: float | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head, self.value = nn.Embedding(9, 6), nn.Linear(6, 9), value

    def forward(self, input_ids: Tensor) -> Tensor:
        logits = self.head(self.table(input_ids))
        if self.value is not None:
            logits[1, 2, 3] = self.value
        return logits


class Last(Words):
    def forward(self, input_ids: Tensor) -> Tensor:
        return super().forward(input_ids).transpose(1, 2)


def ids_of(rows: int, length: int) -> Tensor:
    return torch.randint(9, (rows, length), generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("rows", [1, 4])
def test_texts_of_one_token(rows) -> None:
    model, ids = Words(), ids_of(rows, 1)
    logits = model(ids).detach()[:, 0]
    found = read(model, (ids, ids), shift=False, features=None)
    assert len(found) == found.inputs == rows
    torch.testing.assert_close(found.labels, ids[:, 0])
    torch.testing.assert_close(found.correct, logits.argmax(1) == ids[:, 0])
    torch.testing.assert_close(found.summary.entropy, torch.distributions.Categorical(logits=logits).entropy())
    torch.testing.assert_close(found.features, model.table(ids[:, 0]).detach())
    assert len(read(model, ids)) == rows  # what comes next is not known, but scored
    with pytest.raises(ValueError, match="shift"):
        read(model, (ids, ids))


@pytest.mark.parametrize("form", ["dict", "tuple"])
def test_a_mask_counts_whether_or_not_the_model_takes_it(form) -> None:
    class Masked(Words):
        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            return super().forward(input_ids)

    ids = ids_of(3, 5)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    data = {"input_ids": ids, "attention_mask": mask, "labels": ids} if form == "dict" else [((ids, mask), ids)]
    found = read(Words() if form == "dict" else Masked(), data)
    assert found.groups.tolist() == [0, 0, 0, 0, 1, 1]
    assert found.positions.tolist() == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("masked", [True, False])
def test_the_mask_of_a_decoder_counts_and_not_that_of_what_it_reads(masked) -> None:
    class Translator(Words):
        def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
            return super().forward(decoder_input_ids)

    source, ids = ids_of(4, 5), ids_of(3, 5)[[0, 1, 2, 0]]
    keep = torch.arange(5) < torch.tensor([[5], [3], [2], [4]])
    own = {"decoder_attention_mask": keep.tolist()} if masked else {}
    batch = {"input_ids": source, "attention_mask": ~keep, "decoder_input_ids": ids, **own, "labels": ids}
    found = read(Translator(), [batch], shift=False)
    torch.testing.assert_close(found.labels, ids[keep] if masked else ids.flatten())


def test_labels_that_are_not_the_ids_need_a_shift() -> None:
    model, ids = Words(), ids_of(6, 8)
    tags = (ids + 1) % 9
    for wrong in ((ids, tags), (ids[:, :-1], ids[:, 1:])):
        with pytest.raises(ValueError, match="shift"):
            read(model, wrong)
    own = read(model, (ids, tags), shift=False)
    torch.testing.assert_close(own.correct, (model(ids).argmax(2) == tags).flatten())
    read(model, (ids, tags), shift=True)
    typos = torch.where(torch.arange(8) % 4 == 1, (ids + 1) % 9, ids)
    read(model, (typos, ids))
    read(model, (ids, torch.where(torch.arange(8) < 4, -100, ids)))
    found, expected = read(model, (ids[:, :-1], ids[:, 1:]), shift=False), read(model, (ids, ids))
    assert torch.equal(found.correct, expected.correct)


def test_labels_that_are_shifted_already_are_not_shifted_again() -> None:
    runs = ids_of(6, 8).repeat_interleave(3, dim=1)  # most tokens equal the next one
    for labels in (runs[:, 1:], torch.where(torch.arange(23) % 5 == 0, -100, runs[:, 1:])):
        with pytest.raises(ValueError, match="shift=False"):
            read(Words(), (runs[:, :-1], labels))
    own, expected = read(Words(), (runs[:, :-1], runs[:, 1:]), shift=False), read(Words(), (runs, runs))
    assert torch.equal(own.labels, expected.labels)
    same = torch.full((2, 5), 4)
    assert torch.equal(read(Words(), (same, same)).labels, torch.full((8,), 4))


def test_labels_of_true_and_false() -> None:
    model, ids = nn.Sequential(nn.Embedding(9, 2)), ids_of(2, 4)
    found = read(model, (ids, ids > 4), shift=False)
    torch.testing.assert_close(found.correct, (model(ids).argmax(2) == (ids > 4).long()).flatten())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_named(value) -> None:
    ids = ids_of(4, 6)
    for run in (
        lambda: read(Words(value), (ids, ids)),
        lambda: qipf.Entropy().score(Words(value), ids, task="tokens", progress=False),
    ):
        with pytest.raises(ValueError, match="position"):
            run()


def test_one_masked_word_is_fine_and_all_of_them_are_not() -> None:
    ids = ids_of(4, 6)
    found = read(Words(-math.inf), (ids, ids))
    expected = torch.distributions.Categorical(logits=Words(-1e9)(ids)[:, :-1].detach()).entropy()
    torch.testing.assert_close(qipf.Entropy()(found), expected.flatten())

    class Nothing(Words):
        def forward(self, input_ids: Tensor) -> Tensor:
            return torch.full((*input_ids.shape, 9), -math.inf)

    with pytest.raises(ValueError, match="position"):
        read(Nothing(), (ids, ids))


class Next(nn.Module):
    """Predicts that each token follows itself plus one, and is unsure about the tokens above 5."""

    def __init__(self, size: float = 6.0) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(10, 10), nn.Linear(10, 10)
        with torch.no_grad():
            self.words.weight.copy_(torch.eye(10))
            self.head.weight.copy_(size * torch.eye(10).roll(1, 0))
            self.head.bias.zero_()

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.words(ids))


@pytest.mark.parametrize("size", [6.0, 1.2])  # the predicted token has a probability of .98 or of .27
def test_a_probe_of_tokens_learns_which_predictions_are_wrong(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randint(10, (300, 1), generator=generator)
    ids = (start + torch.arange(20)) % 10
    wrong = (torch.rand(ids.shape, generator=generator) < 0.7) & (ids > 6)
    ids = torch.where(wrong, torch.randint(7, 10, ids.shape, generator=generator), ids)
    model = Next(size)
    probe = qipf.default(model, (ids[:200], ids[:200]), perturb=False, batch_size=50, progress=False)
    found = read(model, (ids[200:], ids[200:]), features=None)
    areas = [qipf.metrics.roc_auc(scorer(found), found.correct) for scorer in (probe, qipf.Entropy())]
    assert areas[0] > 0.75
    assert abs(areas[1] - 0.5) < 0.05  # the network is equally sure of everything
    torch.testing.assert_close(probe(found), torch.logit(probe.posterior(found)[:, 0]), rtol=1e-4, atol=1e-4)
    whole = probe.score(model, ids[200:], progress=False)
    torch.testing.assert_close(whole[found.groups, found.positions], probe(found), rtol=1e-4, atol=1e-5)
