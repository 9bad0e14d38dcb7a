"""Tokens with inputs that are easily misread: texts of one token, masks, tags, probabilities, NaN."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from onnx_graphs import EMBEDDED, OUTER, tokens
from qipf.models import collect_tokens
from qipf.models.kinds.predictions import read_predictions
from qipf.scores import probe_tokens

V, D = 9, 6


class Words(nn.Module):
    """Logits of every token from its embedding alone; one of them may be spoiled."""

    def __init__(self, value: float | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head, self.value = nn.Embedding(V, D), nn.Linear(D, V), value

    def forward(self, input_ids: Tensor) -> Tensor:
        logits = self.head(self.table(input_ids))
        if self.value is not None:
            logits[1, 2, 3] = self.value
        return logits


def ids_of(rows: int, length: int) -> Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("rows", [1, 4])
def test_texts_of_one_token(rows) -> None:
    model, ids = Words(), ids_of(rows, 1)
    logits = model(ids).detach()[:, 0]
    found = collect_tokens(model, (ids, ids), shift=False, features=True, progress=False)
    assert len(found) == found.sequences == rows
    torch.testing.assert_close(found.labels, ids[:, 0])
    torch.testing.assert_close(found.correct, logits.argmax(1) == ids[:, 0])
    torch.testing.assert_close(found.entropy, torch.distributions.Categorical(logits=logits).entropy())
    torch.testing.assert_close(found.features, model.table(ids[:, 0]).detach())
    assert len(collect_tokens(model, ids, progress=False)) == rows  # what comes next is not known, but scored
    assert len(collect_tokens(model, (ids, ids), progress=False)) == 0  # no token has a next one
    with pytest.raises(ValueError, match="shift=False"):
        probe_tokens(model, (ids, ids), progress=False)
    with pytest.raises(ValueError, match=r"expected whole numbers of shape \(\d, 1\)"):
        collect_tokens(model, (ids, ids[:, 0]), progress=False)


@pytest.mark.parametrize("rows", [1, 3])
def test_texts_of_one_token_of_an_onnx_model(tmp_path, rows) -> None:
    ids = ids_of(rows, 1).numpy()
    found = collect_tokens(tokens(tmp_path / "lm.onnx"), (ids, ids % 3), shift=False, features=True, progress=False)
    expected = EMBEDDED[ids[:, 0]] @ OUTER
    np.testing.assert_array_equal(found.correct, expected.argmax(1) == ids[:, 0] % 3)
    np.testing.assert_allclose(found.features, EMBEDDED[ids[:, 0]], rtol=1e-5)


def test_a_column_of_labels_of_classes_is_read_as_before() -> None:
    net, x, y = nn.Linear(3, 4), torch.randn(6, 3), torch.arange(6) % 4
    torch.testing.assert_close(qipf.collect(net, (x, y[:, None]), progress=False).labels, y)
    with pytest.raises(ValueError, match=r"shape \(4, 1, 9\).*collect_tokens"):
        qipf.collect(Words(), (ids_of(4, 1), ids_of(4, 1)), progress=False)


@pytest.mark.parametrize("form", ["dict", "tuple"])
def test_a_mask_counts_whether_or_not_the_model_takes_it(form) -> None:
    class Masked(Words):
        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            return super().forward(input_ids)

    ids = ids_of(3, 5)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    data = {"input_ids": ids, "attention_mask": mask, "labels": ids} if form == "dict" else [((ids, mask), ids)]
    found = collect_tokens(Words() if form == "dict" else Masked(), data, progress=False)
    assert found.sequence.tolist() == [0, 0, 0, 0, 1, 1]
    assert found.position.tolist() == [1, 2, 3, 4, 1, 2]


def test_a_mask_counts_for_an_onnx_model_that_does_not_take_it(tmp_path) -> None:
    ids = ids_of(2, 3).numpy()
    data = {"ids": ids, "attention_mask": np.array([[1, 1, 0], [1, 1, 1]]), "labels": ids % 3}
    found = collect_tokens(tokens(tmp_path / "lm.onnx"), data, shift=False, progress=False)
    assert found.sequence.tolist() == [0, 0, 1, 1, 1]


def test_labels_that_are_not_the_ids_draw_a_warning_unless_shift_is_given() -> None:
    model, ids = Words(), ids_of(6, 8)
    tags = (ids + 1) % V
    with pytest.warns(UserWarning, match="shift=False"):
        collect_tokens(model, (ids, tags), progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = collect_tokens(model, (ids, tags), shift=False, progress=False)
        collect_tokens(model, (ids, tags), shift=True, progress=False)
        typos = torch.where(torch.arange(8) % 4 == 1, (ids + 1) % V, ids)
        collect_tokens(model, (typos, ids), progress=False)
        half = torch.where(torch.arange(8) < 4, -100, ids)
        collect_tokens(model, (ids, half), progress=False)
    torch.testing.assert_close(own.correct, (model(ids).argmax(2) == tags).flatten())


def test_labels_of_true_and_false() -> None:
    model, ids = nn.Sequential(nn.Embedding(V, 2)), ids_of(2, 4)
    found = collect_tokens(model, (ids, ids > 4), shift=False, progress=False)
    torch.testing.assert_close(found.correct, (model(ids).argmax(2) == (ids > 4).long()).flatten())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_named(value) -> None:
    ids = ids_of(4, 6)
    found = collect_tokens(Words(value), (ids, ids), features=True, progress=False)
    for read in (found.score, lambda: found.score("max-logit"), found.question, found.perplexity):
        with pytest.raises(ValueError, match="in 1 of 20 tokens, the first at place 3 of sequence 1"):
            read()


def test_one_masked_word_is_fine_and_all_of_them_are_not() -> None:
    ids = ids_of(4, 6)
    found = collect_tokens(Words(-math.inf), (ids, ids), progress=False)
    expected = torch.distributions.Categorical(logits=Words(-1e9)(ids)[:, :-1].detach()).entropy()
    torch.testing.assert_close(found.score("entropy"), expected.flatten())

    class Nothing(Words):
        def forward(self, input_ids: Tensor) -> Tensor:
            return torch.full((*input_ids.shape, V), -math.inf)

    with pytest.raises(ValueError, match="in 20 of 20 tokens"):
        collect_tokens(Nothing(), (ids, ids), progress=False).score()


def test_probabilities_in_the_place_of_logits_draw_a_warning() -> None:
    with pytest.warns(UserWarning, match="look like probabilities"):
        collect_tokens(nn.Sequential(Words(), nn.Softmax(-1)), ids_of(3, 4), progress=False)


def test_errors_of_a_probe_count_texts_once() -> None:
    ids = ids_of(7, 5)
    labels = ids.clone()
    labels[5, 2] = V
    with pytest.raises(ValueError, match=f"got {V} at place 2 of sequence 5 "):
        probe_tokens(Words(), (ids, labels), draws=2, batch_size=2, progress=False)


def test_nothing_to_judge() -> None:
    ids = ids_of(4, 5)
    with pytest.raises(ValueError, match=r"data: .*-100"):
        read_predictions("tokens", Words(), (ids, torch.full_like(ids, -100)), 4)
    with pytest.raises(ValueError, match="V of at least 2"):
        collect_tokens(nn.Sequential(nn.Embedding(V, 1)), ids, progress=False)


def test_attributes_of_a_data_set_of_the_user_are_not_read() -> None:
    class Own(torch.utils.data.TensorDataset):
        copies, numbers = 0, "many"

    ids = ids_of(6, 5)
    assert len(collect_tokens(Words(), Own(ids, ids), progress=False)) == 6 * 4


@pytest.mark.parametrize("masked", [True, False])
def test_the_mask_of_a_decoder_counts_and_not_that_of_what_it_reads(masked) -> None:
    class Translator(Words):
        def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
            return super().forward(decoder_input_ids)

    source, ids = ids_of(4, 5), ids_of(3, 5)[[0, 1, 2, 0]]
    keep = torch.arange(5) < torch.tensor([[5], [3], [2], [4]])
    own = {"decoder_attention_mask": keep.tolist()} if masked else {}
    batch = {"input_ids": source, "attention_mask": ~keep, "decoder_input_ids": ids, **own, "labels": ids}
    found = collect_tokens(Translator(), [batch], shift=False, progress=False)
    torch.testing.assert_close(found.labels, ids[keep] if masked else ids.flatten())


def test_logits_with_the_tokens_last_are_named() -> None:
    class Last(Words):
        def forward(self, input_ids: Tensor) -> Tensor:
            return super().forward(input_ids).transpose(1, 2)

    ids = ids_of(6, 5)
    with pytest.raises(ValueError, match=r"logits\.transpose\(1, 2\)"):
        collect_tokens(Last(), (ids, ids), progress=False)
    with pytest.raises(ValueError, match="convert them to whole numbers"):
        collect_tokens(Words(), (ids, ids.float()), progress=False)


def test_labels_that_are_shifted_already_draw_a_warning() -> None:
    ids = ids_of(12, 9)
    with pytest.warns(UserWarning, match="shifted already; give shift=False"):
        collect_tokens(Words(), (ids[:, :-1], ids[:, 1:]), progress=False)
    found = collect_tokens(Words(), (ids[:, :-1], ids[:, 1:]), shift=False, progress=False)
    expected = collect_tokens(Words(), (ids, ids), progress=False)
    assert torch.equal(found.correct, expected.correct)
    torch.testing.assert_close(found.entropy, expected.entropy)
