"""`qipf.default` and tokens over ONNX models, and what a probe reads of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from example_models import collect_augmented
from onnx_graphs import BIAS, EMBEDDED, FLOAT, OUTER, image_map, images, save, table, table_logits, two_inputs
from qipf import OnnxModel
from qipf.data.batches import Source


@pytest.fixture
def rows(rng) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal((300, 6)).astype(np.float32)
    logits = table_logits(x)[0]
    return x, np.argmax(logits + 2 * rng.gumbel(size=logits.shape), axis=1)


def test_copies_are_the_networks_view_of_perturbed_inputs(tmp_path, rows) -> None:
    x, y = rows
    given: list[np.ndarray] = []

    def double(inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        given.append(inputs.numpy())
        return 2 * inputs

    model = OnnxModel(table(tmp_path / "net.onnx"))
    outputs = collect_augmented(model, (x, y), draws=2, perturb=False, own=[double], batch_size=300, progress=False)
    assert len(outputs) == 900
    (space,) = outputs.layers
    for start, values in ((0, x), (300, 2 * x), (600, 2 * x)):
        logits, _, hidden = table_logits(values)
        close(outputs.logits[start : start + 300], logits)
        close(outputs.layers[space][start : start + 300], hidden - BIAS)
        np.testing.assert_array_equal(outputs.labels[start : start + 300], y)
    np.testing.assert_array_equal(given[0], x)


def close(found: object, expected: object) -> None:
    """Up to bfloat16."""
    np.testing.assert_allclose(
        np.asarray(torch.as_tensor(found).float()), np.asarray(torch.as_tensor(expected).float()), rtol=2e-2, atol=2e-2
    )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [FLOAT, TensorProto.UINT8])
def test_images_are_perturbed_in_their_own_type_and_layout(tmp_path, rng, last, dtype) -> None:
    whole = rng.integers(0, 256, (40, 3, 4, 6))
    given = whole.transpose(0, 2, 3, 1) if last else whole
    given = given.astype(np.uint8) if dtype == TensorProto.UINT8 else (given / 255).astype(np.float32)
    model = OnnxModel(images(tmp_path / "net.onnx", dtype, last))
    y = np.arange(40) % 3
    outputs = collect_augmented(model, (given, y), draws=1, batch_size=40, progress=False)
    assert list(outputs.layers) == ["map@4x6"]
    scale = 1 if dtype == TensorProto.UINT8 else 255
    close(outputs.layers["map@4x6"][:40], image_map(whole / scale).reshape(40, -1))
    changed = (outputs.layers["map@4x6"][:40] != outputs.layers["map@4x6"][40:]).any(1).float().mean()
    assert 0.3 < float(changed) <= 1


def best(model: OnnxModel, inputs: dict[str, np.ndarray]) -> str:
    return str(model.best_reading(next(model.batches(Source(inputs, 2)))))


def test_what_a_probe_reads(tmp_path, rng) -> None:
    a, b = rng.standard_normal((2, 5)).astype(np.float32), np.ones((2, 2), np.int32)
    model = OnnxModel(two_inputs(tmp_path / "two.onnx"))
    with pytest.raises(ValueError, match="features"):
        best(model, {"a": a, "b": b})
    nodes = [  # a residual block on tokens, whose attention map is not on every way
        helper.make_node("Gather", ["table", "ids"], ["state"]),
        helper.make_node("Transpose", ["state"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["state", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["attention"], axis=-1),
        helper.make_node("MatMul", ["attention", "state"], ["mixed"]),
        helper.make_node("Add", ["state", "mixed"], ["block"]),
        helper.make_node("ReduceMean", ["block"], ["pooled"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["pooled", "outer"], ["z"]),
    ]
    ids = ("ids", TensorProto.INT64, ["N", 7])
    path = save(tmp_path / "text.onnx", nodes, [ids], [("z", FLOAT, ["N", 3])], table=EMBEDDED, outer=OUTER)
    model = OnnxModel(path)
    assert model.graph.cuts("z") == ["state", "block", "pooled"]
    assert best(model, {"ids": rng.integers(0, 11, (2, 7))}) == "pooled@rows"
    nodes[0] = helper.make_node("Identity", ["ids"], ["state"])
    vectors = ("ids", FLOAT, ["N", 7, 5])
    path = save(tmp_path / "vit.onnx", nodes, [vectors], [("z", FLOAT, ["N", 3])], outer=OUTER)
    assert best(OnnxModel(path), {"ids": rng.random((2, 7, 5)).astype("f4")}) == "block@tokens1"
