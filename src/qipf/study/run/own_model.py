"""Load the user's own model, and reject models, source code and files that have changed since the run started."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qipf._common.optional import require
from qipf.study.plan.methods import MODEL_FILES, ONE_PASS_FILES


class ChangedError(ValueError):
    """A file or a model has changed since the run started."""


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(name: str) -> str:
    """Return the SHA-256 of a file, or `name` if it is not a file."""
    path = Path(name)
    return file_digest(path) if path.suffix and path.is_file() else name


def model_file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a model file, including the external weights of an ONNX model."""
    if Path(path).suffix != ".onnx":
        return file_digest(path)
    helper = require("onnx.external_data_helper", extra="onnxruntime")
    try:
        graph = require("onnx", extra="onnxruntime").load(str(path), load_external_data=False)
    except Exception:  # the cell that loads the model reports the error
        return file_digest(path)
    tensors = [tensor for tensor in helper._get_all_tensors(graph) if helper.uses_external_data(tensor)]
    names = {helper.ExternalDataInfo(tensor).location for tensor in tensors}
    folder = Path(path).resolve().parent
    files = {name: (folder / name).resolve() for name in sorted(names)}  # files outside this folder are refused later
    inside = {name: file for name, file in files.items() if file.is_relative_to(folder) and file.is_file()}
    found = [file_digest(path), *(f"{name} {file_digest(file)}" for name, file in inside.items())]
    return found[0] if len(found) == 1 else hashlib.sha256("\n".join(found).encode()).hexdigest()


@contextmanager
def unchanged(path: str | None, expected: str | None) -> Iterator[None]:
    """Raise ChangedError unless a file has the digest `expected` before and after the block that reads it."""

    def check() -> None:
        if path is not None and expected and (found := model_file_digest(path)) != expected:
            raise ChangedError(
                f"{path} differs from the file at the start of the run: expected SHA-256 {expected[:12]}, got "
                f"{found[:12]}; run the same command again to use the new file"
            )

    check()
    yield
    check()


_INSTALLED = {"site-packages", "dist-packages"}


def module_digest(name: str, source: Path) -> str:
    """Return a digest of a module and, recursively, of its imports from the same folder.

    Calls to `importlib.import_module` are not followed. For an installed module, only its package is included.
    """
    files = imported_files(name, source)
    if len(files) == 1:
        return file_digest(source)
    found = hashlib.sha256()
    for module, file in sorted(files.items()):
        found.update(f"{module} {file_digest(file)}\n".encode())
    return found.hexdigest()


def imported_files(name: str, source: Path) -> dict[str, Path]:
    """Return the files of a module and of its imports from the same folder, keyed by dotted name."""
    source = source.resolve()
    package = source.name == "__init__.py"
    root = source.parents[name.count(".") + package]
    top = name.partition(".")[0] if _INSTALLED & set(root.parts) else None
    found, waiting = {name: source}, [name]
    while waiting:
        module = waiting.pop()
        for wanted in _imports(module, found[module]):
            if top is not None and wanted.partition(".")[0] != top:
                continue
            for part in accumulate(wanted.split("."), "{}.{}".format):
                file = _file(root, part)
                if file is not None and part not in found:
                    found[part] = file
                    waiting.append(part)
    return found


def _imports(module: str, file: Path) -> Iterator[str]:
    """Yield the dotted names of modules that a file may import; in `from a import b`, b may be a module."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # compiled, or not Python
        return
    here = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            if start:
                yield start
            yield from (f"{start}.{alias.name}" if start else alias.name for alias in node.names)


def _file(root: Path, name: str) -> Path | None:
    place = root.joinpath(*name.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


_PINNED = "__qipf_module_digest__"
"""Attribute of an imported module that holds the digest of its source at the first build."""


def load(model: str, weights: str | None, expected: Mapping[str, Any] | None = None) -> nn.Module:
    """Build the user's model with a fixed seed.

    Args:
        model: A file with a suffix in `MODEL_FILES`, or "module:callable".
        weights: A safetensors file for "module:callable".
        expected: Expected result of `digests`; None skips the check.

    Raises:
        ChangedError: The digests differ from `expected`.
    """
    program = model.endswith(MODEL_FILES)
    wanted = expected or {}
    with unchanged(weights, wanted.get("weights")), unchanged(model if program else None, wanted.get("model")):
        net = _build(model, weights)
    if expected is not None and not program:
        found = _network_digest(model, net)
        if found != expected["model"]:
            raise ChangedError(
                f"the model {model} differs from the model at the start of the run: expected digest "
                f"{expected['model'][:12]}, got {found[:12]}; use the same source and weights everywhere and run again"
            )
    return net


def digests(model: str, weights: str | None) -> dict[str, str | None]:
    """Return the digests of the model's files or, for "module:callable", of its source and tensors.

    A model that cannot be built is identified by its name.
    """
    of_weights = None if weights is None else file_digest(weights)
    if model.endswith(MODEL_FILES):
        return {"model": model_file_digest(model), "weights": of_weights}
    try:
        return {"model": _network_digest(model, _build(model, weights)), "weights": of_weights}
    except Exception:  # whatever the user's code raises
        return {"model": model, "weights": of_weights}


def _build(model: str, weights: str | None) -> nn.Module:
    from qipf.runners.loading import load_model

    if model.endswith(".h5"):
        from qipf.weights.keras import load_keras

        return load_keras(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net: Any = load_model(model, None if weights is None else Path(weights))
    if not model.endswith(ONE_PASS_FILES):  # these have no training mode
        net.eval()
    return net


def _network_digest(model: str, net: nn.Module) -> str:
    found = hashlib.sha256(f"{model} {_pinned_digest(model.partition(':')[0])}".encode())
    for name, value in net.state_dict().items():
        found.update(f"{name} {getattr(value, 'dtype', type(value))} {getattr(value, 'shape', '')}".encode())
        if isinstance(value, Tensor):
            found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        else:
            found.update(repr(value).encode())
    return found.hexdigest()


def _pinned_digest(name: str) -> str:
    """Return the digest that a module's source had at the first call in this process."""
    module = sys.modules[name]
    if _PINNED not in vars(module):
        source = getattr(module, "__file__", None)
        setattr(module, _PINNED, "" if source is None else module_digest(name, Path(source)))
    return vars(module)[_PINNED]
