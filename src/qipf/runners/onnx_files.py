"""Read an untrusted ONNX file: nothing outside its folder is opened, and no code is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qipf._common.errors import Problem, first_line
from qipf._common.optional import require

LARGEST = 2**31 - 1
"""The largest size of an ONNX file in bytes; larger models keep their weights in other files."""
STANDARD = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.nchwc")
"""Domains of operators of ONNX Runtime; others need a library of machine code."""


def read_model(source: Path | bytes, folder: Path | None = None) -> Any:
    """Return the `ModelProto` in a file or in its content, checked before ONNX Runtime sees it.

    Args:
        source: The file, or the content of one.
        folder: The folder of files with weights, if `source` is content; None to refuse them.

    Raises:
        ImportError: The package `onnx` is not installed.
        Problem: The file is damaged, too large or not ONNX, names files outside its folder, or needs a library of
            operators.
    """
    onnx = require("onnx", extra="onnxruntime")
    name = str(source) if isinstance(source, Path) else "the model"
    content = _content(source) if isinstance(source, Path) else source
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # of google.protobuf, in one of its implementations
        raise Problem(
            "model", f"{name} is not an ONNX model, or it is damaged ({first_line(error)})", hint="copy it again"
        ) from None
    if not model.HasField("graph") or not model.graph.node or not model.graph.output:
        raise Problem("model", f"{name} is not an ONNX model, or it is damaged (it has no graph)", hint="copy it again")
    _check_files(model, name, source.parent if isinstance(source, Path) else folder)
    _check_domains(model, name)
    return model


def has_external_data(model: Any) -> bool:
    """Return True if some weights are in other files."""
    return any(_is_external(tensor) for tensor in _tensors(model))


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    size = path.stat().st_size
    if size > LARGEST:
        raise Problem(
            "model", f"{path} has {size / 2**30:.3g} GiB, and an ONNX file has at most 2",
            hint="save its weights in another file: onnx.save(model, path, save_as_external_data=True)",
        )  # fmt: skip
    return path.read_bytes()


def _check_files(model: Any, name: str, folder: Path | None) -> None:
    """Raise Problem if weights are in files outside the folder of the model, also by links."""
    for tensor in _tensors(model):
        if not _is_external(tensor):
            continue
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        if folder is None:
            raise Problem(
                "model", f"{name} keeps the weights {tensor.name!r} in {location!r}, and its folder is not known",
                hint="give the path of the model",
            )  # fmt: skip
        inside = folder.resolve()
        file = (inside / location).resolve() if location and "\0" not in location else inside
        if not location or Path(location).is_absolute() or inside not in file.parents:
            raise Problem(
                "model", f"{name} names {location!r} for the weights {tensor.name!r}, outside the folder",
                hint="nothing there is read: put the weights next to the model",
            )  # fmt: skip
        if not file.is_file():
            raise Problem(
                "model",
                f"{name} keeps the weights {tensor.name!r} in {location!r}, which is not there",
                hint="copy it too",
            )


def _check_domains(model: Any, name: str) -> None:
    """Raise Problem if an operator needs a library of machine code."""
    own = {function.domain for function in model.functions}
    for graph in _graphs(model):
        for node in graph.node:
            if node.domain not in STANDARD and node.domain not in own:
                raise Problem(
                    "model", f"{name} needs a library for the operator {node.op_type!r} of {node.domain!r}",
                    hint="make an InferenceSession with that library and give the session",
                )  # fmt: skip


def _graphs(model: Any) -> Iterator[Any]:
    """Yield the graph, the bodies of functions, and all nested graphs; protobuf limits their depth."""
    parts = [model.graph, *model.functions]
    while parts:
        part = parts.pop()
        yield part
        for node in part.node:
            for attribute in node.attribute:
                parts += [attribute.g] if attribute.HasField("g") else []
                parts += attribute.graphs


def _tensors(model: Any) -> Iterator[Any]:
    """Yield every stored tensor."""
    for graph in _graphs(model):
        yield from getattr(graph, "initializer", ())
        for sparse in getattr(graph, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
                yield from [attribute.t] if attribute.HasField("t") else []
                yield from attribute.tensors
                for part in (*sparse, *attribute.sparse_tensors):
                    yield from (part.values, part.indices)
    for training in model.training_info:
        for graph in (training.initialization, training.algorithm):
            yield from graph.initializer


def _is_external(tensor: Any) -> bool:
    return tensor.data_location == 1 or len(tensor.external_data) > 0
