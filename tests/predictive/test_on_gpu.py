"""The same draws on the GPU as on the CPU."""

import pytest
import torch

from qipf import predictive
from qipf.study import datasets, nets

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
QUICK = {"epochs": 4, "batch_size": 64, "learning_rate": 0.01}
MORE = {"svi": {"epochs": 12}}  # so few images outweigh the prior of so many weights only after some passes


@pytest.mark.parametrize("name", sorted(predictive.METHODS))
def test_a_fit_on_the_gpu_samples_the_same_on_the_cpu(name, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    data = datasets.load("digits")
    factory = lambda: nets.build("vgg3", channels=1, size=8)  # noqa: E731 (batch-norm and dropout in it)
    settings = QUICK | MORE.get(name, {})
    method = predictive.METHODS[name](**settings)
    before = torch.cuda.get_rng_state()
    method.fit(factory, data.train, device="cuda", progress=False)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    x = data.test.inputs[:200]
    on_gpu = method.sample(x, 3, seed=2)
    assert on_gpu.device == x.device
    twin = predictive.METHODS[name](**settings).load_state(factory, method.state(), data.train)
    torch.testing.assert_close(twin.sample(x, 3, seed=2), on_gpu, rtol=0, atol=2e-3)
    summary = method.summarise(data.test.inputs.cuda(), 3, progress=False)
    assert summary.mean.device.type == "cuda"
    right = (summary.predicted == data.test.targets.cuda()).float().mean()
    assert right > 0.85
