"""Plans take ONNX models: digests of the graph and its external weights, every task, no methods of several passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from own_plans import measure

from qipf.study.plan.plan import PlanError, parse
from qipf.study.run.own_model import digests

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_graphs import table, table_logits  # noqa: E402


def write(folder: Path, external: bool = False) -> np.ndarray:
    """Write a network as model.onnx, and data for it; return its logits of the test inputs."""
    path = table(folder / "model.onnx")
    if external:
        settings = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
        onnx.save(onnx.load(path), str(path), **settings)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 6)).astype(np.float32)
    logits = table_logits(x)[0]
    y = (logits + rng.gumbel(size=(200, 3)) * 0.2).argmax(1)
    np.savez(folder / "data.npz", x_train=x[:100], y_train=y[:100], x_test=x[100:], y_test=y[100:])
    return logits[100:]


def values(**methods: dict) -> dict:
    pair = {"dataset": "data.npz", "net": "mine", "model": "model.onnx", "shifts": {"swapped-values": [3]}}
    return {"name": "own", "calibration_size": 30, "bootstrap": 0, "pairs": [pair], "methods": methods}


def test_an_onnx_model_is_measured_as_numpy_computes_it(tmp_path: Path) -> None:
    every = write(tmp_path)
    plan = parse(values(entropy={}, knn={"k": 5}, default={"effort": "quick"}), folder=tmp_path)
    bench = measure(plan, tmp_path / "s", times=True)
    clean = next(one for one in bench.conditions() if one.shift == "clean")
    found = bench.predictions(clean)
    logits = torch.from_numpy(every[np.sort(np.random.default_rng(0).permutation(100)[30:])])
    np.testing.assert_array_equal(found.predicted, logits.argmax(1))
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    np.testing.assert_allclose(found.scores["entropy", "score"], entropy, atol=1e-5)
    assert {time["method"] for time in bench.times()} == {"entropy", "knn", "default"}


def test_methods_of_several_passes_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(PlanError, match="dropout"):
        parse(values(entropy={}, **{"mc-dropout": {}}), folder=tmp_path)


@pytest.mark.parametrize("external", [False, True])
def test_other_weights_are_another_model(tmp_path: Path, external: bool) -> None:
    write(tmp_path, external)
    first = digests(str(tmp_path / "model.onnx"), None)
    assert first == digests(str(tmp_path / "model.onnx"), None)
    file = tmp_path / ("weights.bin" if external else "model.onnx")
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    assert digests(str(tmp_path / "model.onnx"), None) != first
