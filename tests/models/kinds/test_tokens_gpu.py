"""Tokens of a model on a GPU, wherever the ids, labels and masks are, against the same model on a CPU."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from tiny_gpt import made, sequences

from qipf.models.kinds.tokens import collect_tokens

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("places", [("cpu", "cpu"), ("cuda", "cuda"), ("cpu", "cuda"), ("cuda", "cpu")])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("store", ["cpu", None])
def test_tokens_of_a_gpu_are_those_of_a_cpu(places: tuple[str, str], masked: bool, store: str | None) -> None:
    model, ids = made(), sequences()
    labels, mask = ids.clone(), torch.ones_like(ids)
    labels[2, 4], mask[0, 6:] = -100, 0

    def data(of_ids: str, of_labels: str) -> dict[str, torch.Tensor]:
        found = {"input_ids": ids.to(of_ids), "labels": labels.to(of_labels)}
        return {**found, "attention_mask": mask.to(of_ids)} if masked else found

    expected = collect_tokens(model, data("cpu", "cpu"), features=True, batch_size=2, progress=False)
    found = collect_tokens(model.cuda(), data(*places), features=True, batch_size=2, store=store, progress=False)
    for field in fields(expected):
        one, other = getattr(expected, field.name), getattr(found, field.name)
        if isinstance(one, torch.Tensor):
            assert other.device.type == ("cpu" if store else "cuda")
            torch.testing.assert_close(other.cpu(), one, rtol=1e-3, atol=1e-3)


def test_labels_that_are_not_tokens_are_named() -> None:
    ids = sequences()
    labels = ids.clone()
    labels[1, 3] = 10**6
    for place in ("cpu", "cuda"):
        with pytest.raises(ValueError, match=r"1000000 at place 3 of sequence 1"):
            collect_tokens(made().cuda(), (ids, labels.to(place)), shift=True, progress=False)
