"""The kernel that scores on a GPU, against the table in NumPy and the exact formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import qipf
from qipf.scores.weight_field import WeightQIPF

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def fitted(columns: int, orders: tuple[int, ...] = (2, 4, 6, 8), *, binary: bool = False) -> WeightQIPF:
    generator = torch.Generator().manual_seed(0)
    net = torch.nn.Linear(200, columns)
    torch.nn.init.normal_(net.weight, std=0.05, generator=generator)
    logits = 3 * torch.randn(500, columns, generator=generator)
    labels = torch.randint(2, (500,), generator=generator) if binary else None
    if columns == 1 and not binary:
        labels = logits[:, 0] + torch.randn(500, generator=generator)
    outputs = qipf.Outputs(logits, labels=labels)
    return WeightQIPF(orders=orders, factor=160).fit(net, outputs)


@pytest.mark.parametrize("columns", [1, 2, 10, 33, 1000])
@pytest.mark.parametrize("orders", [(2,), (2, 4, 6, 8), tuple(range(2, 22, 2))])
def test_the_kernel_gives_what_numpy_gives(columns: int, orders: tuple[int, ...]) -> None:
    scorer = fitted(columns, orders)
    logits = 4 * torch.randn(2001, columns, generator=torch.Generator().manual_seed(1))
    found = scorer.fused_score(logits.cuda())
    assert found is not None
    expected = scorer(logits.numpy())
    exact = scorer(logits.double().numpy())
    size = np.median(exact)
    np.testing.assert_allclose(found.cpu(), expected, rtol=1e-5, atol=1e-5 * size)
    np.testing.assert_allclose(found.cpu(), exact, rtol=2e-4, atol=1e-3 * size)
    assert torch.equal(scorer(logits.cuda()), found)


def test_the_only_logit_of_a_binary_classifier_counts_by_its_size() -> None:
    scorer = fitted(1, binary=True)
    logits = 4 * torch.randn(300, 1, generator=torch.Generator().manual_seed(1))
    found = scorer.fused_score(logits.cuda())
    assert found is not None
    np.testing.assert_allclose(found.cpu(), scorer(logits.numpy()), rtol=1e-5)
    torch.testing.assert_close(found, scorer.fused_score(-logits.cuda()))


def test_logits_that_lie_apart_in_memory_and_an_empty_batch() -> None:
    scorer = fitted(10)
    wide = torch.randn(64, 3, 10, generator=torch.Generator().manual_seed(2)).cuda()
    for logits in (wide[:, 1], wide[:10, 0].T.contiguous().T):
        torch.testing.assert_close(scorer.fused_score(logits), scorer.fused_score(logits.contiguous()))
    assert scorer.fused_score(wide[:0, 0]).shape == (0,)  # pyright: ignore[reportOptionalMemberAccess]


def test_a_wrapped_model_says_nan_and_a_scorer_names_the_rows() -> None:
    scorer = fitted(10)
    logits = torch.randn(7, 10).cuda()
    logits[2, 3], logits[4, 0], logits[5, 9] = torch.nan, torch.inf, -torch.inf
    _, found = qipf.wrap(torch.nn.Identity().cuda(), scorer)(logits)
    assert found.isnan().tolist() == [False, False, True, False, True, True, False]
    with pytest.raises(ValueError, match=r"3 of 7 rows: row 2, 4, 5"):
        scorer(logits)


def test_gradients_half_precision_and_graphs_take_plain_operations() -> None:
    scorer = fitted(10)
    logits = torch.randn(5, 10).cuda()
    assert scorer.fused_score(logits.clone().requires_grad_()) is None
    assert scorer.fused_score(logits.half()) is None
    assert scorer.fused_score(logits.cpu()) is None
    slope = torch.autograd.grad(scorer(given := logits.clone().requires_grad_()).sum(), given)[0]
    assert bool(slope.isfinite().all())
    assert bool((slope != 0).any())
    wrapped = qipf.wrap(torch.nn.Identity().cuda(), scorer)
    recorded = torch.cuda.CUDAGraph()
    wrapped(logits)
    torch.cuda.synchronize()
    with torch.cuda.graph(recorded):
        _, scores = wrapped(logits)
    logits.copy_(torch.randn(5, 10))
    recorded.replay()
    torch.testing.assert_close(scores, wrapped(logits)[1])
