"""Tokens: the numbers of every token equal those of the full logits, and masks and labels pick the right ones."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from tiny_gpt import N, T, TinyGPT, V, made, sequences
from torch import Tensor, nn

import qipf
from qipf.models.kinds import token_columns, vocabulary
from qipf.models.kinds.tokens import SCORES, collect_tokens


@pytest.fixture(scope="module")
def model() -> TinyGPT:
    return made()


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return sequences()


@pytest.fixture(scope="module")
def logits(model: TinyGPT, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return model(ids).logits


def scorers() -> dict[str, Any]:
    return {
        "softmax-response": qipf.SoftmaxResponse(),
        "entropy": qipf.Entropy(),
        "margin": qipf.OneMinusMargin(),
        "max-logit": qipf.MaxLogit(),
        "energy": qipf.Energy(),
        "logit-margin": qipf.scores.LogitMargin(),
    }


@pytest.mark.parametrize("block", [V - 1, 3 * V, 2**22])
def test_scores_equal_those_of_the_full_logits(model, ids, logits, block, monkeypatch) -> None:
    monkeypatch.setattr(vocabulary, "BLOCK", block)
    tokens = collect_tokens(model, (ids, ids), batch_size=2, progress=False)
    flat = logits[:, :-1].reshape(-1, V)
    assert set(scorers()) == set(SCORES)
    for name, scorer in scorers().items():
        torch.testing.assert_close(tokens.score(name), scorer(flat.double()).float(), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(tokens.predicted, flat.argmax(1))
    torch.testing.assert_close(tokens.labels, ids[:, 1:].flatten())
    expected = -nn.functional.cross_entropy(flat, ids[:, 1:].flatten(), reduction="none")
    torch.testing.assert_close(tokens.log_label, expected)
    torch.testing.assert_close(tokens.correct, flat.argmax(1) == ids[:, 1:].flatten())


def test_masks_and_ignored_labels_are_left_out(model, ids) -> None:
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0  # padded on the right
    mask[1, :3] = 0  # padded on the left
    labels = ids.clone()
    labels[2, 4] = -100
    tokens = collect_tokens(model, {"input_ids": ids, "attention_mask": mask, "labels": labels}, progress=False)
    found = set(zip(tokens.sequence.tolist(), tokens.position.tolist(), strict=True))
    expected = {(n, t) for n in range(N) for t in range(1, T)}
    expected -= {(0, t) for t in range(6, T)} | {(1, t) for t in range(4)} | {(2, 4)}
    assert found == expected
    for n, t, label in zip(tokens.sequence, tokens.position, tokens.labels, strict=True):
        assert ids[n, t] == label


def test_without_shift_a_label_belongs_to_its_own_place(model, ids, logits) -> None:
    tokens = collect_tokens(model, (ids, ids), shift=False, progress=False)
    assert len(tokens) == N * T
    expected = logits.log_softmax(-1).gather(2, ids[..., None])[..., 0].flatten()
    torch.testing.assert_close(tokens.log_label, expected)


def test_without_labels_every_place_predicts_the_next(model, ids) -> None:
    tokens = collect_tokens(model, ids, progress=False)
    assert len(tokens) == N * T
    assert tokens.position.max() == T
    with pytest.raises(ValueError, match="no labels"):
        tokens.perplexity()


def test_sequences_are_summarised(model, ids, logits) -> None:
    tokens = collect_tokens(model, (ids, ids), batch_size=2, progress=False)
    log_p = logits.log_softmax(-1)[:, :-1].gather(2, ids[:, 1:, None])[..., 0]
    np.testing.assert_allclose(tokens.log_probability(), log_p.mean(1), rtol=1e-5)
    np.testing.assert_allclose(tokens.log_probability(normalised=False), log_p.sum(1), rtol=1e-5)
    np.testing.assert_allclose(tokens.perplexity(), torch.exp(-log_p.mean(1)), rtol=1e-5)
    entropy = torch.distributions.Categorical(logits=logits[:, :-1]).entropy()
    np.testing.assert_allclose(tokens.per_sequence("entropy", "max"), entropy.max(1).values, rtol=1e-5)


@pytest.mark.parametrize("features", [True, "block"])
def test_features_are_the_hidden_state_of_the_same_token(model, ids, features) -> None:
    tokens = collect_tokens(model, (ids, ids), features=features, batch_size=2, progress=False)
    logits = 4 * model.lm_head(tokens.features)
    torch.testing.assert_close(logits.max(1).values, tokens.top[:, 0])
    question = tokens.question()
    assert question.features.shape == (len(tokens), 16 + 5)
    chance = nn.functional.softmax(logits, 1).max(1).values
    torch.testing.assert_close(question.logits[:, 0].sigmoid(), chance)
    torch.testing.assert_close(question.labels == 1, tokens.correct)
    assert not model.lm_head._forward_hooks


def test_half_precision_logits_are_reduced_in_single(model, ids) -> None:
    half = TinyGPT().bfloat16()
    assert collect_tokens(half, (ids, ids), progress=False).entropy.dtype == torch.float32


def test_what_does_not_fit_is_named(model, ids) -> None:
    with pytest.raises(ValueError, match=r"expected logits \(N, T, V\)"):
        collect_tokens(nn.Linear(T, 3), ids.float(), progress=False)
    with pytest.raises(ValueError, match=r"expected whole numbers of shape \(5, 9\).*got int64 of shape \(5,\)"):
        collect_tokens(model, (ids, ids[:, 0]), progress=False)
    labels = ids.clone()
    labels[4, 6] = 137
    with pytest.raises(ValueError, match=r"from 0 to 36,.* got 137 at place 6 of sequence 4 .* first of 1 "):
        collect_tokens(model, (ids, labels), batch_size=2, progress=False)
    with warnings.catch_warnings():  # what is wrong comes first, and not a guess about the shift
        warnings.simplefilter("error")
        for wrong, words in ((ids[:, :5], "got int64 of shape"), (ids + V, "expected tokens from 0 to")):
            with pytest.raises(ValueError, match=words):
                collect_tokens(model, (ids, wrong), progress=False)
    with pytest.raises(TypeError, match="ignore: expected an integer"):
        collect_tokens(model, (ids, ids), ignore=[-100, 0], progress=False)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="shift: expected True or False"):
        collect_tokens(model, (ids, ids), shift="no", progress=False)  # pyright: ignore[reportArgumentType]
    for top, kind in ((1, ValueError), (2.5, TypeError)):
        with pytest.raises(kind, match="top: expected an integer"):
            collect_tokens(model, ids, top=top, progress=False)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="at least one sequence"):
        collect_tokens(model, [], progress=False)


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


@pytest.mark.parametrize("features", [True, False])
def test_the_logits_of_two_batches_never_exist_at_once(model, ids, features) -> None:
    counting = Alone(model)
    collect_tokens(counting, (ids, ids), features=features, batch_size=1, progress=False)
    assert len(counting.made) == N
    assert counting.most == 0


@pytest.mark.parametrize("waiting", [0, 500, 10**6])
def test_columns_are_the_same_however_many_batches_wait(model, ids, waiting, monkeypatch) -> None:
    whole = collect_tokens(model, (ids, ids), features=True, batch_size=N, progress=False)
    monkeypatch.setattr(token_columns, "WAITING", waiting)
    parts = collect_tokens(model, (ids, ids), features=True, batch_size=1, progress=False)
    for name, values in vars(whole).items():
        torch.testing.assert_close(getattr(parts, name), values)


def test_labels_in_some_batches_only_are_refused(model, ids) -> None:
    with pytest.raises(ValueError, match="some batches have labels"):
        collect_tokens(model, [(ids[:2], ids[:2]), (ids[2:],)], progress=False)


class Counted(dict[str, Tensor]):
    """Columns that count how often all of them are read."""

    reads = 0

    def values(self):
        self.reads += 1
        return super().values()


def test_waiting_batches_are_few_and_not_counted_again_with_every_batch() -> None:
    columns = token_columns.Columns(torch.device("cpu"))
    batches = [Counted(sequence=torch.tensor([number])) for number in range(2 * token_columns.MOST + 1)]
    waiting = []
    for number, batch in enumerate(batches):
        columns.append(batch)
        waiting.append(weakref.ref(batch["sequence"]))
        batches[number] = Counted()
        assert batch.reads <= 1
    assert sum(one() is not None for one in waiting) <= token_columns.MOST
    np.testing.assert_array_equal(columns.finish()["sequence"], range(len(batches)))


def test_texts_without_any_place_add_nothing(ids) -> None:
    table = nn.Embedding(V, V)
    found = collect_tokens(table, [(ids, ids), (ids[:, :0], ids[:, :0])], progress=False)
    assert (len(found), found.sequences) == (N * (T - 1), 2 * N)


def test_batches_with_another_number_of_features_are_named(ids) -> None:
    class Narrower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.kept = nn.Embedding(V, V), nn.Identity()

        def forward(self, input_ids: Tensor) -> Tensor:
            logits = self.table(input_ids)
            self.kept(logits[..., : input_ids.shape[1]])
            return logits

    with pytest.raises(ValueError, match=r"features: .*\(9,\).*got \(4,\)"):
        collect_tokens(Narrower(), [ids, ids[:, :4]], features="kept", progress=False)
