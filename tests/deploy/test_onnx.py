"""The exported graph in onnxruntime against torch."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch

from qipf.deploy.onnx_export import export_onnx
from qipf.deploy.wrapper import wrap
from qipf.scores import KNN, Entropy, WeightQIPF
from qipf.study.nets import build
from qipf.tasks.collect import collect

SHAPES = {"lenet": (1, 28, 28), "resnet18": (3, 32, 32)}
POOL = {"lenet": None, "resnet18": "auto"}  # without pooling, 11 million weights take half a minute


def network(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    channels, size, _ = SHAPES[name]
    net = build(name, channels=channels, size=size).eval()
    return net, torch.rand(24, *SHAPES[name]) * torch.linspace(0.2, 4, 24)[:, None, None, None]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet", pytest.param("resnet18", marks=pytest.mark.thorough)])
def test_onnxruntime_agrees_for_any_batch(name: str, tmp_path) -> None:
    net, images = network(name)
    scorer = WeightQIPF(factor=160, pool=POOL[name]).fit(net, collect(net, images, progress=False))
    both = wrap(net, scorer)
    net.train()
    path = tmp_path / "net.onnx"
    export_onnx(both, path, images[:3])
    assert net.training
    net.eval()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["logits", "uncertainty", "modes"]
    for count in (1, 5, 24):
        logits, uncertainty, modes = session.run(None, {"input": images[:count].numpy()})
        with torch.no_grad():
            expected_logits, expected = both(images[:count])
        np.testing.assert_allclose(logits, expected_logits, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(uncertainty, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(modes, scorer.modes(expected_logits), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(uncertainty, modes.mean(axis=1), rtol=1e-6)
    # The field itself, without the difference between two libraries' convolutions.
    exact = WeightQIPF(factor=160, pool=POOL[name], tolerance=None).fit(net, collect(net, images, progress=False))
    np.testing.assert_allclose(modes, exact.modes(torch.from_numpy(logits)), rtol=1e-4, atol=1e-5)


def test_what_cannot_be_exported_says_so(tmp_path) -> None:
    net, images = network("lenet")
    outputs = collect(net, images, progress=False)
    path = tmp_path / "net.onnx"
    published = wrap(net, WeightQIPF(factor=80, operator="published").fit(net, outputs))
    with pytest.raises(ValueError, match="exported"):
        export_onnx(published, path, images[:2])
    with pytest.raises(TypeError, match="qipf"):
        export_onnx(net, path, images[:2])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="more"):
        export_onnx(wrap(net, KNN(k=3).fit(net, outputs)), path, images[:1])
    with pytest.raises(ValueError, match="len"):
        export_onnx(wrap(fixed := FixedBatch(), Entropy()).eval(), path, torch.rand(4, 3))
    assert fixed(torch.rand(5, 3)).shape == (5, 2)
    assert not path.exists()


class FixedBatch(torch.nn.Module):
    """A network whose exported graph has a fixed batch size, because `len` returns a Python integer."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.start = torch.nn.Linear(6, 2), torch.nn.Parameter(torch.zeros(1, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.cat([self.start.expand(len(x), -1), x], 1))
