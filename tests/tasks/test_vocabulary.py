"""What is kept of the logits of each token, against double precision and between devices."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from qipf.tasks import vocabulary
from qipf.tasks.outputs import TokenSummary

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def reduced(logits: Tensor, rows: Tensor, device: str) -> TokenSummary:
    labels = rows % logits.shape[1]
    found = vocabulary.summarise_logits(logits.to(device), rows.to(device), labels.to(device), 2)
    return TokenSummary(*(value.cpu() for value in found if value is not None))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, no_gpu])])
def test_sure_predictions_and_masked_tokens_keep_their_precision(device: str) -> None:
    """The oracle works in double precision; -inf is what processors write for tokens that are forbidden."""
    logits = torch.randn(40, 500, generator=torch.Generator().manual_seed(0))
    logits[:20, 7] += torch.linspace(5, 60, 20)
    logits[:, 100:200] = -torch.inf
    before = logits.clone()
    found = reduced(logits, torch.arange(40), device)
    assert torch.equal(logits, before)
    behind = (logits.double() - logits.double().max(1, keepdim=True).values).sort(1, descending=True).values[:, 1:]
    rest = behind.exp().sum(1)
    entropy = rest.log1p() - (behind.exp() * behind.clamp(min=-1e4)).sum(1) / (1 + rest)
    torch.testing.assert_close(found.log_rest.double(), rest.log(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.entropy.double(), entropy, rtol=2e-5, atol=1e-12)


@no_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("share", [1.0, 0.2, 0.0])
@pytest.mark.parametrize("width", [3, 333, 10_001])
def test_a_gpu_gives_what_a_cpu_gives(dtype, share, width) -> None:
    assert vocabulary._kernel() is not None
    generator = torch.Generator().manual_seed(1)
    logits = (4 * torch.randn(60, width, generator=generator)).to(dtype)
    logits[3, 2:] = -torch.inf
    logits[4, 1:] = -torch.inf  # one token is allowed
    rows = torch.nonzero(torch.rand(60, generator=generator) < share)[:, 0]
    one, other = (reduced(logits, rows, device) for device in ("cpu", "cuda"))
    ties = one.top[:, 0] == one.top[:, 1]  # either of two equal logits may be the prediction
    assert torch.equal(one.predicted[~ties], other.predicted[~ties])
    for name in ("top", "log_rest", "log_sum", "entropy", "log_label"):
        wanted, got = getattr(one, name), getattr(other, name)
        torch.testing.assert_close(got, wanted, rtol=3e-5, atol=3e-5, msg=lambda text, name=name: f"{name}: {text}")


@no_gpu
@pytest.mark.gpu
def test_rows_that_lie_apart_and_logits_that_are_not_numbers() -> None:
    """Rows that lie apart in memory, and logits that are not numbers."""
    logits = torch.randn(6, 2, 500, generator=torch.Generator().manual_seed(2)).to("cuda")[:, 1]
    logits[2, 17] = torch.nan
    logits[3] = torch.nan
    logits[4] = -torch.inf
    found = vocabulary.summarise_logits(logits, torch.arange(6, device="cuda"), None, 2)
    assert found.log_label is None
    assert found.entropy.isnan().tolist() == [False, False, True, True, False, False]
    assert int(found.predicted.max()) < 500
    assert found.entropy[4].item() == pytest.approx(math.log(500))  # nothing is allowed, so nothing is more likely
    wanted = torch.distributions.Categorical(logits=logits[:2].double()).entropy().float()
    torch.testing.assert_close(found.entropy[:2], wanted, rtol=1e-5, atol=1e-5)
