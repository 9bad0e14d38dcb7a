"""A network is told from another one, and recognised in another precision, form or order of its parameters."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import qipf
from qipf.runners.loading import model_facts
from qipf.runners.runner import differ
from qipf.runners.torch import fingerprint

INPUTS, CLASSES = torch.rand(60, 4, generator=torch.Generator().manual_seed(1)), torch.arange(60) % 3


def build(seed: int, width: int = 40) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3)).eval()


def mark(model: nn.Module) -> list[float]:
    found = fingerprint(model)
    assert found is not None
    return found


def test_other_weights_differ_and_the_same_ones_do_not() -> None:
    net = build(0)
    assert not differ(mark(net), mark(copy.deepcopy(net)))
    assert not differ(mark(net), mark(torch.compile(net, backend="eager")))  # pyright: ignore
    assert differ(mark(net), mark(build(1)))
    assert differ(mark(net), mark(build(0, width=41)))
    tuned = copy.deepcopy(net)
    with torch.no_grad():
        tuned[0].weight += 0.02 * torch.randn_like(tuned[0].weight)  # pyright: ignore
    assert differ(mark(net), mark(tuned))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("width", [40, 3000])
def test_another_precision_is_the_same_network(dtype: torch.dtype, width: int) -> None:
    net = build(0, width)
    other = copy.deepcopy(net).to(dtype)
    assert not differ(mark(net), mark(other))
    assert differ(mark(build(1, width)), mark(other))


def test_the_numbers_are_those_of_the_docstring() -> None:
    net = build(0, width=700)
    net[1].running_mean.normal_()  # pyright: ignore
    buffers = [net[1].running_mean.numpy(), net[1].running_var.numpy()]  # pyright: ignore
    expected = []
    for part in ([one.detach().numpy() for one in net.parameters()], [np.sign(b) * np.log1p(abs(b)) for b in buffers]):
        folded, square, count = np.zeros(1024), 0.0, 0
        for values in part:
            flat = values.astype(float).ravel()
            np.add.at(folded, np.arange(len(flat)) % 1024, flat)
            square, count = square + float(flat @ flat), count + len(flat)
        angles = [np.sqrt(2) * np.cos(k * np.arange(1024)) @ folded / np.sqrt(square) for k in (1, 2, 3, 4)]
        expected += [count, np.sqrt(square), *angles, 0]
    np.testing.assert_allclose(mark(net), expected[:-1], rtol=1e-4, atol=1e-5)


def test_what_has_no_weights_has_no_fingerprint() -> None:
    for model in (nn.ReLU(), nn.LazyLinear(3), nn.Linear(3, 3, device="meta"), [np.ones(3)], None, "net.safetensors"):
        assert model_facts(model) == {}


def test_a_scorer_warns_once_of_another_network(tmp_path) -> None:
    net, other = build(0), build(1)
    probe = qipf.default(net, (INPUTS, CLASSES), effort="quick", progress=False)
    entropy = qipf.Entropy().fit(net, qipf.collect(net, INPUTS, progress=False))
    for scorer in (probe, entropy):
        scorer.save(tmp_path / "a.qipf")
        for used in (scorer, qipf.load(tmp_path / "a.qipf")):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                used.score(net, INPUTS, progress=False)
                used.score(copy.deepcopy(net).to(torch.bfloat16), INPUTS, progress=False)
                qipf.wrap(net, used)
            with pytest.warns(UserWarning, match="weights") as caught:
                used.score(other, INPUTS, progress=False)
            assert len(caught) == 1
            assert caught[0].filename == __file__
            with pytest.warns(UserWarning, match="weights"):
                qipf.wrap(other, used)


def test_a_scorer_that_no_network_was_given_to_does_not_warn() -> None:
    net = build(0)
    scorer = qipf.KNN(k=3).fit(None, qipf.collect(net, INPUTS, progress=False))
    scorer.score(build(1), INPUTS, progress=False)  # warnings are errors here


def _linear_onnx(path, scale: float, *, external: bool = False):
    onnx = pytest.importorskip("onnx")
    helper, numbers = onnx.helper, np.arange(12, dtype=np.float32).reshape(4, 3) * scale
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 4])]
    outputs = [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", 3])]
    weights = [onnx.numpy_helper.from_array(numbers, "w")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["logits"])], "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path, save_as_external_data=external, size_threshold=0)
    return path


@pytest.mark.parametrize("form", ["path", "session", "model"])
def test_another_onnx_model_is_told_in_every_form(form, tmp_path):
    from qipf import OnnxModel

    runtime = pytest.importorskip("onnxruntime")
    make = {"path": str, "session": lambda path: runtime.InferenceSession(str(path)), "model": OnnxModel}[form]
    one, other = (make(_linear_onnx(tmp_path / f"{scale}.onnx", scale)) for scale in (1, 2))
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    fitted_to = OnnxModel(one) if form == "path" else one
    scorer = qipf.Entropy().fit(fitted_to, qipf.collect(one, x, features=False, progress=False))
    scorer.score(one, x, progress=False)  # warnings are errors here
    with pytest.warns(UserWarning, match="weights"):
        scorer.score(other, x, progress=False)


def test_weights_in_other_files_are_compared(tmp_path):
    from qipf import OnnxModel

    runtime = pytest.importorskip("onnxruntime")
    inside, outside = _linear_onnx(tmp_path / "a.onnx", 1), _linear_onnx(tmp_path / "b.onnx", 1, external=True)
    other = _linear_onnx(tmp_path / "c.onnx", 2, external=True)
    one, same, differs = (OnnxModel(path).fingerprint() for path in (inside, outside, other))
    assert OnnxModel(runtime.InferenceSession(str(other))).fingerprint() == differs
    assert not differ(one, same)
    assert differ(one, differs)
    assert differ(same, differs)


@pytest.mark.filterwarnings("ignore")  # of the exporters
def test_another_export_of_an_onnx_model_is_the_same_one(tmp_path):
    from qipf import OnnxModel

    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net, found = nn.Sequential(nn.Linear(6, 8), block, nn.Flatten(), nn.Linear(40, 3)).eval(), []
    for name, dynamo in (("a", True), ("b", False), ("c", False)):
        if name == "c":
            with torch.no_grad():
                net[0].weight[0, 0] += 1e-3  # pyright: ignore
        x = torch.rand(4, 5, 6)
        options = {"dynamo": dynamo, "opset_version": 18, "verbose": False, "external_data": False}
        torch.onnx.export(net, (x,), tmp_path / name, **options)  # pyright: ignore
        found.append(OnnxModel(tmp_path / name).fingerprint())
    one, again, other = found
    assert one.split(":")[0] != again.split(":")[0]  # other names, constants and kernels that are transposed
    assert not differ(one, again)
    assert differ(again, other)
    assert not differ(one.split(":")[0], one)  # as in files of earlier versions
    assert differ(one.split(":")[0], again)


def reset(net: nn.Sequential) -> None:
    net[1].running_var.mul_(2)  # pyright: ignore


def through_data(net: nn.Sequential) -> None:
    net[0].weight.data.mul_(torch.linspace(0.9, 1.1, 4))  # pyright: ignore - torch does not count this change


@pytest.mark.parametrize("change", [reset, through_data])
def test_other_statistics_and_changes_through_data_are_other_weights(change) -> None:
    net = build(0)
    scorer = qipf.Entropy().fit(net, qipf.collect(net, INPUTS, progress=False))
    scorer.score(net, INPUTS, progress=False)  # warnings are errors here
    change(net)
    with pytest.warns(UserWarning, match="weights"):
        scorer.score(net, INPUTS, progress=False)


def test_masks_and_buffers_that_are_not_stored_do_not_disturb_it() -> None:
    net, half = build(0), build(0).half()
    for one in (net, half):
        one.register_buffer("mask", torch.full((9, 9), -torch.inf).triu(1))
        one.register_buffer("cache", torch.rand(5), persistent=False)
        one.register_buffer("places", torch.arange(9))
    assert not differ(mark(net), mark(half))
    assert differ(mark(net), mark(build(0)))  # another number of stored values


def test_a_fingerprint_of_an_earlier_version_is_compared_without_buffers() -> None:
    net, other = build(0), build(0)
    reset(other)
    assert not differ(mark(net)[:7], mark(other))
    assert differ(mark(net), mark(other))
    assert differ(mark(net)[:7], mark(build(1)))
