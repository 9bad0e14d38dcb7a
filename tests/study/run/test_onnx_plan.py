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


def write(folder: Path, external: bool = False) -> torch.nn.Module:
    """Write a network as model.onnx, and data for it."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).eval()
    names = ["w0", "b0", "w1", "b1"]
    tensors = [
        onnx.numpy_helper.from_array(p.detach().numpy(), n) for n, p in zip(names, net.parameters(), strict=True)
    ]
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], transB=1),
        onnx.helper.make_node("Relu", ["h"], ["r"]),
        onnx.helper.make_node("Gemm", ["r", "w1", "b1"], ["logits"], transB=1),
    ]
    ends = [onnx.helper.make_tensor_value_info(n, 1, ["N", size]) for n, size in (("x", 6), ("logits", 3))]
    graph = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    settings = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0} if external else {}
    onnx.save(model, str(folder / "model.onnx"), **settings)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 6)).astype(np.float32)
    with torch.no_grad():
        y = (net(torch.from_numpy(x)).numpy() + rng.gumbel(size=(200, 3)) * 0.2).argmax(1)
    np.savez(folder / "data.npz", x_train=x[:100], y_train=y[:100], x_test=x[100:], y_test=y[100:])
    return net


def values(**methods: dict) -> dict:
    pair = {"dataset": "data.npz", "net": "mine", "model": "model.onnx", "shifts": {"swapped-values": [3]}}
    return {"name": "own", "calibration_size": 30, "bootstrap": 0, "pairs": [pair], "methods": methods}


def test_an_onnx_model_is_measured_as_the_torch_model_is(tmp_path: Path) -> None:
    net = write(tmp_path)
    plan = parse(values(entropy={}, knn={"k": 5}, default={"effort": "quick"}), folder=tmp_path)
    bench = measure(plan, tmp_path / "s", times=True)
    clean = next(one for one in bench.conditions() if one.shift == "clean")
    found = bench.predictions(clean)
    with np.load(tmp_path / "data.npz") as file:
        order = np.sort(np.random.default_rng(0).permutation(100)[30:])
        with torch.no_grad():
            logits = net(torch.from_numpy(file["x_test"][order]))
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
