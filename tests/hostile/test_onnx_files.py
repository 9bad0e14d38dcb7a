"""ONNX files made to do harm: each is refused in one line, before ONNX Runtime sees it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import qipf
from onnx_graphs import FLOAT, save, table
from qipf import OnnxModel
from qipf.cli import main

X = np.zeros((2, 6), np.float32)


def external(tensor: Any, place: str) -> None:
    """Make a tensor one whose values are in another file."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", place


def in_graph(path: Path, place: str) -> None:
    model = onnx.load(table(path))
    external(model.graph.initializer[0], place)
    path.write_bytes(model.SerializeToString())


def in_constant(path: Path, place: str) -> None:
    model = onnx.load(table(path))
    (stored,) = [tensor for tensor in model.graph.initializer if tensor.name == "inner"]
    node = helper.make_node("Constant", [], ["inner"], value=stored)
    external(node.attribute[0].t, place)
    model.graph.initializer.remove(stored)
    model.graph.node.insert(0, node)
    path.write_bytes(model.SerializeToString())


def in_branch(path: Path, place: str) -> None:
    model = onnx.load(table(path))
    (stored,) = [tensor for tensor in model.graph.initializer if tensor.name == "inner"]
    out = helper.make_tensor_value_info("weights", FLOAT, [6, 5])
    branches = []
    for number in range(2):
        node = helper.make_node("Constant", [], ["weights"], value=stored)
        if number:
            external(node.attribute[0].t, place)
        branches.append(helper.make_graph([node], f"branch{number}", [], [out]))
    condition = helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("t", TensorProto.BOOL, [], [True]))
    choice = helper.make_node("If", ["yes"], ["inner"], then_branch=branches[0], else_branch=branches[1])
    model.graph.initializer.remove(stored)
    model.graph.node.insert(0, condition)
    model.graph.node.insert(1, choice)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("make", [in_graph, in_constant, in_branch])
@pytest.mark.parametrize("place", ["../secret.bin", "link.bin", "a/../../secret.bin", "ABSOLUTE", "", ".", "x\0y"])
def test_weights_outside_the_folder_are_refused(tmp_path, make, place) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(np.ones((6, 5), np.float32).tobytes())
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "link.bin").symlink_to(secret)
    make(folder / "net.onnx", str(secret) if place == "ABSOLUTE" else place)
    with pytest.raises(ValueError, match="outside"):
        qipf.collect(folder / "net.onnx", X, progress=False)


def test_weights_that_are_missing_are_named(tmp_path) -> None:
    in_graph(tmp_path / "net.onnx", "weights.bin")
    with pytest.raises(ValueError, match="weights"):
        OnnxModel(tmp_path / "net.onnx")


def test_operators_of_libraries_are_refused(tmp_path) -> None:
    node = helper.make_node("Evil", ["x"], ["y"], domain="com.example")
    path = save(tmp_path / "net.onnx", [node], [("x", FLOAT, ["N", 6])], [("y", FLOAT, ["N", 6])])
    with pytest.raises(ValueError, match="library"):
        OnnxModel(path)


def test_a_huge_file_is_refused_without_reading_it(tmp_path) -> None:
    path = tmp_path / "net.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)
    started = time.process_time()
    with pytest.raises(ValueError, match="exceed 2 GiB"):
        OnnxModel(path)
    assert time.process_time() - started < 1


def test_graphs_in_graphs_end(tmp_path) -> None:
    def field(number: int, content: bytes) -> bytes:
        size, length = len(content), bytearray()
        while size > 127:
            length.append(size % 128 + 128)
            size //= 128
        return bytes([8 * number + 2, *length, size]) + content

    graph = b""
    for _ in range(2000):  # a node (1) with an attribute (5) that holds a graph (6)
        graph = field(1, field(5, field(6, graph)))
    (tmp_path / "net.onnx").write_bytes(field(7, graph))
    with pytest.raises(ValueError, match="damaged"):
        OnnxModel(tmp_path / "net.onnx")


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"PK\3\4not a model", b"version https://git-lfs.github.com/spec/v1\n"]
)
def test_other_files_are_one_line(tmp_path, capsys, content, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(content)
    np.savez("x.npz", x=X)
    for words in (["fit", "net.onnx", "x.npz", "--scorer", "entropy", "-o", "a.qipf"], ["inspect", "net.onnx"]):
        assert main(words) == 1
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1
        assert said.startswith("qipf: MODEL: net.onnx")
    assert not Path("a.qipf").exists()


def test_a_graph_that_asks_for_too_much_memory_is_one_line(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["large"]),
        helper.make_node("ReduceSum", ["large"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    inputs, outputs = [("x", FLOAT, ["N", 6])], [("y", FLOAT, ["N", 6])]
    save(Path("net.onnx"), nodes, inputs, outputs, size=np.array([2**42]))
    np.savez("x.npz", x=X)
    assert main(["fit", "net.onnx", "x.npz", "--scorer", "entropy", "-o", "a.qipf"]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "net.onnx" in said or "ONNX model" in said
