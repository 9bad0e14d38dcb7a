"""Open a model from any library, and load models named on the command line or in a plan."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qipf._common.errors import Problem
from qipf._common.optional import require
from qipf.runners.function import FunctionRunner
from qipf.runners.onnx import OnnxRunner, is_session
from qipf.runners.runner import OUTPUT, Runner, differ
from qipf.runners.sklearn import SklearnRunner, is_estimator

WEIGHT_FILES = (".safetensors", ".h5")
MOST_COMPARED = 10**8
"""The maximum number of parameters for which a model is built twice to detect random weights."""
WAYS_OUT = {
    ".keras": "unzip it and pass its model.weights.h5",
    **dict.fromkeys(
        (".pt", ".pth", ".ckpt", ".bin"),
        "it may contain code; load it in Python and save the exported model with torch.export.save, or pass "
        "module:callable with a .safetensors weights file",
    ),
}
"""Hints for unsupported files, by extension."""


def open_model(model: Any, *, device: Any = None) -> Runner:
    """Return a runner for a model.

    Args:
        model: Any model that `qipf.collect` accepts, or a runner.
        device: The device of the inputs of a torch module; None for the module's device.
    """
    path = isinstance(model, str | os.PathLike)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module | torch.export.ExportedProgram):
        from qipf.runners.torch import TorchRunner

        return TorchRunner(model, device)
    if path and Path(model).suffix == ".pt2":
        raise Problem("model", f"{model} is the path of an exported program", hint="pass torch.export.load(path)")
    if isinstance(model, Runner):
        runner = model
    elif path or is_session(model):
        runner = OnnxRunner(model)
    elif is_estimator(model):
        runner = SklearnRunner(model)
    elif callable(model) and not isinstance(model, type):
        runner = FunctionRunner(model)
    else:
        raise Problem(
            "model", type(model).__name__,
            expected="a torch module, an exported program, an ONNX file or session, an estimator, or a function",
            hint="for other models, pass their outputs as qipf.Outputs",
        )  # fmt: skip
    if device is not None and str(runner.device).partition(":")[0] != str(device).partition(":")[0]:
        hint = "omit device (an ONNX model runs on the device of its session)"
        raise Problem("device", f"cannot be set to {str(device)!r} for this model", hint=hint)
    return runner


def model_facts(model: Any) -> dict[str, Any]:
    """Return the facts about a model that a fitted scorer records, if any."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        from qipf.runners.torch import fingerprint  # for a module that may not be ready to run

        found = fingerprint(model)
        return {} if found is None else {"model": found}
    if isinstance(model, Runner) or is_session(model) or is_estimator(model):
        return open_model(model).facts()
    return {}


def has_other_weights(facts: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Return True if the facts of two models show different weights."""
    known, other = facts.get("model"), found.get("model")
    return bool(known) and other is not None and differ(known, other)


def is_other_kind(facts: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Return True if the facts of two models show that exactly one of them is an ONNX model."""
    known, other = facts.get("model"), found.get("model")
    return None not in (known, other) and isinstance(known, str) != isinstance(other, str)


def check_facts(facts: Mapping[str, Any], model: Any, stacklevel: int = 3) -> None:
    """Warn if a scorer with these facts was fitted to a model with different weights.

    Raises:
        Problem: The scorer was fitted to another output of an ONNX model, or contains a twin of another network.
    """
    found = model_facts(model)
    noted, read = facts.get(OUTPUT), found.get(OUTPUT)
    if None not in (noted, read) and noted != read:
        raise Problem(
            "output", f"this scorer was fitted to the output {noted!r}, but {read!r} is read here",
            hint=f"select the output {noted!r}",
        )  # fmt: skip
    if has_other_weights(facts, found):
        if "cut" in facts:
            raise Problem("model", "it is not the network that the twin was fitted to", hint="pass that network")
        warnings.warn(
            "model: its weights differ from those that this scorer was fitted to; pass the original model, "
            "or refit the scorer",
            stacklevel=stacklevel,
        )


def load_model(spec: str, weights: Path | None = None, output: str | None = None) -> Any:
    """Load a model from a `.pt2` or `.onnx` file or `module:callable`, or return the path of a weights file.

    Python code is executed only for `module:callable`.

    Args:
        spec: A file or `module:callable`.
        weights: A `.safetensors` checkpoint for the module that `module:callable` returns.
        output: The name of the ONNX output that holds the logits.
    """
    path = Path(spec)
    if path.suffix != ".onnx" and output is not None:
        raise Problem("output", f"only .onnx models have named outputs, got {spec}", hint="omit output")
    if path.suffix in (".onnx", ".pt2", *WEIGHT_FILES):
        if weights is not None:
            hint = "pass weights only with module:callable"
            raise Problem("weights", f"{path.suffix} files have their own weights", hint=hint)
        if not path.is_file():
            raise Problem("model", f"there is no file {path}")
        if path.suffix == ".onnx":
            return OnnxRunner(path, output=output)
        return _exported(path) if path.suffix == ".pt2" else path
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise Problem(
            "model", repr(spec), hint=WAYS_OUT.get(path.suffix, ""),
            expected=f"a .pt2 program, an .onnx file, module:callable or weights ({', '.join(WEIGHT_FILES)})",
        )  # fmt: skip
    net = _called(module, name)
    if weights is not None:
        _load_checkpoint(net, weights)
    return net


def is_random(spec: str, net: Any) -> bool:
    """Return True if calls of `module:callable` return models with different, and thus untrained, weights."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(net, torch.nn.Module) or Path(spec).suffix == ".pt2":
        return False
    from qipf.runners.torch import fingerprint

    if sum(values.numel() for values in net.parameters()) > MOST_COMPARED:
        return False
    module, _, name = spec.partition(":")
    with torch.random.fork_rng(devices=[]):
        torch.seed()
        again = _called(module, name)
    if any(torch.nn.parameter.is_lazy(values) for values in again.parameters()):
        return True
    one, other = fingerprint(net), fingerprint(again)
    return one is not None and other is not None and differ(one, other)


def _exported(path: Path) -> Any:
    torch = require("torch", extra="torch")
    from qipf.runners.torch import exported_module

    log = logging.getLogger("torch.export")
    silent, log.disabled = log.disabled, True  # torch also logs the problems that the error below reports
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch does not verify the checksums of weights
        program: Any = None if damaged else torch.export.load(path)
    except Exception as error:  # torch's archive reader may raise any exception
        hint = "export and save the model again with this version"
        raise Problem("model", f"{path} is not a program exported with this version of torch", hint=hint) from error
    finally:
        log.disabled = silent
    if damaged:
        raise Problem("model", f"{path} is damaged: {damaged} does not match its checksum", hint="copy the file again")
    return exported_module(program)


def _called(module: str, name: str) -> Any:
    torch = require("torch", extra="torch")
    folder = str(Path.cwd())
    if "" not in sys.path and folder not in sys.path:
        sys.path.append(folder)  # last, so that no local file shadows an installed package
    try:
        function = importlib.import_module(module)
    except ModuleNotFoundError as error:
        hint = "install the missing module, or change to its folder"
        raise Problem("model", f"cannot import {module!r} ({error})", hint=hint) from error
    except (Exception, SystemExit) as error:
        raise _failed(f"importing {module!r}", error) from error
    for part in name.split("."):
        if not hasattr(function, part):
            raise Problem("model", f"{module!r} has no attribute {name!r}")
        function = getattr(function, part)
    if isinstance(function, torch.nn.Module):
        return function
    if not callable(function):
        raise Problem("model", f"{module}:{name} is of type {type(function).__name__}", hint="name a function")
    try:
        net = function()
    except (Exception, SystemExit) as error:
        raise _failed(f"calling {module}:{name}", error) from error
    if not callable(net) and not is_estimator(net):
        found, expected = type(net).__name__, "a torch.nn.Module, an estimator or a function"
        raise Problem("model", f"an object of type {found} from {module}:{name}()", expected=expected)
    return net


def _failed(what: str, error: BaseException) -> Problem:
    """Return a Problem that describes an error in the user's code and its location."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    found = f"{what} failed with {type(error).__name__}: {error}, in {Path(last.filename).name}, line {last.lineno}"
    return Problem("model", found)


def _load_checkpoint(net: Any, path: Path) -> None:
    safetensors = require("safetensors.torch", extra="torch")
    error_type = require("safetensors", extra="torch").SafetensorError
    if path.suffix != ".safetensors":
        hint = "save the model's state_dict() with safetensors.torch.save_file(...)"
        raise Problem("weights", str(path), expected="a .safetensors file", hint=hint)
    if not path.is_file():
        raise Problem("weights", f"there is no file {path}")
    try:
        tensors = safetensors.load_file(path)
    except error_type as error:
        hint = "copy it again"
        raise Problem("weights", f"{path} is not a safetensors file, or is damaged ({error})", hint=hint) from error
    try:
        net.load_state_dict(tensors)
    except RuntimeError as error:
        why = " ".join(str(error).split())  # torch prints every key on its own line
        raise Problem("weights", f"{path} does not fit the model ({why})") from error
