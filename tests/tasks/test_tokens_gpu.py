"""Tokens of a model on a GPU, wherever the ids, labels and masks are, against the same model on a CPU."""

from __future__ import annotations

import pytest
import torch
from tiny_gpt import made, sequences

import qipf
from qipf.tasks import Tokens

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

    expected = qipf.collect(model, data("cpu", "cpu"), task="tokens", batch_size=2, progress=False)
    found = qipf.collect(model.cuda(), data(*places), task="tokens", batch_size=2, store=store, progress=False)
    names = ("logits", "features", "labels", "groups", "positions")
    pairs = [(getattr(expected, name), getattr(found, name)) for name in names]
    for one, other in (*pairs, *zip(expected.summary, found.summary, strict=True)):
        assert other.device.type == ("cpu" if store else "cuda")
        torch.testing.assert_close(other.cpu(), one, rtol=1e-3, atol=1e-3)


def test_labels_that_are_not_tokens_are_named() -> None:
    ids = sequences()
    labels = ids.clone()
    labels[1, 3] = 10**6
    for place in ("cpu", "cuda"):
        with pytest.raises(ValueError, match="position"):
            qipf.collect(made().cuda(), (ids, labels.to(place)), task=Tokens(shift=True), progress=False)
