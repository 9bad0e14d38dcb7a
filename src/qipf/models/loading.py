"""The models that the command line accepts."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from qipf._common.errors import InputError, UserError
from qipf._common.optional import require
from qipf.models.likeness import differ, likeness
from qipf.models.sessions.model import OnnxModel

WEIGHT_FILES = (".safetensors", ".h5")
MOST_COMPARED = 10**8
"""Parameters of a model up to which it is built twice to see whether its weights are random."""
WAYS_OUT = {
    ".keras": "unzip it and give its model.weights.h5",
    **dict.fromkeys(
        (".pt", ".pth", ".ckpt", ".bin"),
        "it may hold pickled code; in Python, safetensors.torch.save_file(torch.load(FILE, weights_only=True), "
        "'net.safetensors') makes a file for --weights, and MODEL is module:callable",
    ),
}
"""What to do with files that are not read, by their ending."""


def load_model(spec: str, weights: Path | None = None, output: str | None = None) -> Any:
    """A module from a `.pt2` exported program or `module:callable`, or an `OnnxModel`; a file of weights stays a path.

    The first two run code: the program's graph, or whatever importing `module` and calling `callable` does. Of an ONNX
    model, ONNX Runtime runs the graph, which is made of its own operators. Nothing else is ever executed.

    Args:
        spec: what the user wrote.
        weights: `.safetensors` checkpoint for the module that `module:callable` returns.
        output: the name of the output of an ONNX model that holds the logits.

    Raises:
        InputError: there is no such file, module or callable, or the checkpoint does not fit.
        UserError: `spec` is none of these, or `weights` or `output` does not go with it.
    """
    path = Path(spec)
    if path.suffix == ".onnx":
        _refuse(weights, "an .onnx file brings its own weights")
        return _onnx(path, output)
    if output is not None:
        raise UserError(f"--onnx-output: names an output of an .onnx file, and MODEL is {spec}; leave it out")
    if path.suffix == ".pt2":
        _refuse(weights, "a .pt2 program brings its own weights")
        return _exported(path)
    if path.suffix in WEIGHT_FILES:
        _refuse(weights, "MODEL is a file of weights already")
        if not path.is_file():
            raise InputError(f"MODEL: there is no file {path}")
        return path
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise UserError(
            f"MODEL: expected a .pt2 exported program, an .onnx file, module:callable or a file of weights "
            f"({', '.join(WEIGHT_FILES)}), got {spec!r}{_way_out(path)}"
        )
    net = _called(module, name)
    if weights is not None:
        _load_checkpoint(net, weights)
    return net


def is_weights(model: Any) -> bool:
    """Whether `load_model` returned a file of weights, which can be read but not run."""
    return isinstance(model, Path)


def is_random(spec: str, net: Any) -> bool:
    """Whether `module:callable` gives other weights each time it is called, so that nobody trained them."""
    if isinstance(net, OnnxModel):
        return False
    torch = require("torch", extra="torch")
    module, _, name = spec.partition(":")
    if is_weights(net) or Path(spec).suffix == ".pt2" or sum(v.numel() for v in net.parameters()) > MOST_COMPARED:
        return False
    with torch.random.fork_rng(devices=[]):
        torch.seed()
        again = _called(module, name)
    if any(torch.nn.parameter.is_lazy(values) for values in again.parameters()):
        return True
    mark, other = likeness(net), likeness(again)
    return mark is not None and other is not None and differ(mark, other)


def _onnx(path: Path, output: str | None) -> OnnxModel:
    if not path.is_file():
        raise InputError(f"MODEL: there is no file {path}")
    try:
        return OnnxModel(path, output=output)
    except (ValueError, OSError) as error:
        if str(error).startswith("output: "):
            raise UserError(f"--onnx-output: {str(error).removeprefix('output: ')}") from error
        raise InputError(f"MODEL: {error}") from error


def _exported(path: Path) -> Any:
    torch = require("torch", extra="torch")
    from qipf.runners.exported import exported_module

    if not path.is_file():
        raise InputError(f"MODEL: there is no file {path}")
    try:
        program = torch.export.load(path)
    except Exception as error:  # torch raises whatever its archive reader meets
        raise InputError(f"MODEL: {path} is not an exported program that this torch can read ({error})") from error
    return exported_module(program)


def _called(module: str, name: str) -> Any:
    torch = require("torch", extra="torch")
    folder = str(Path.cwd())
    if "" not in sys.path and folder not in sys.path:
        sys.path.append(folder)  # last, so that no file here takes the place of an installed package
    try:
        function = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"MODEL: cannot import {module!r} ({error}); is it installed, or in this folder?") from error
    except (Exception, SystemExit) as error:
        raise _failed(f"importing {module!r}", error) from error
    for part in name.split("."):
        if not hasattr(function, part):
            raise InputError(f"MODEL: {module!r} has no {name!r}")
        function = getattr(function, part)
    if isinstance(function, torch.nn.Module):
        return function
    if not callable(function):
        raise InputError(f"MODEL: {module}:{name} is of type {type(function).__name__}, expected something to call")
    try:
        net = function()
    except (Exception, SystemExit) as error:
        raise _failed(f"calling {module}:{name}", error) from error
    if not isinstance(net, torch.nn.Module):
        found = type(net).__name__
        raise InputError(f"MODEL: {module}:{name}() returned an object of type {found}, expected a torch.nn.Module")
    return net


def _failed(what: str, error: BaseException) -> InputError:
    """An error of the user's own code, with its place there."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return InputError(
        f"MODEL: {what} failed with {type(error).__name__}: {error}, in {Path(last.filename).name}, line {last.lineno} "
        "(--debug shows the details)"
    )


def _way_out(path: Path) -> str:
    return f"; {WAYS_OUT[path.suffix]}" if path.suffix in WAYS_OUT else ""


def _load_checkpoint(net: Any, path: Path) -> None:
    safetensors = require("safetensors.torch", extra="torch")
    error_type = require("safetensors", extra="torch").SafetensorError
    if path.suffix != ".safetensors":
        raise UserError(f"--weights: expected a .safetensors file, got {path}{_way_out(path)}")
    if not path.is_file():
        raise InputError(f"--weights: there is no file {path}")
    try:
        tensors = safetensors.load_file(path)
    except error_type as error:
        raise InputError(f"--weights: {path} is damaged, or not what its name says ({error}); copy it again") from error
    try:
        net.load_state_dict(tensors)
    except RuntimeError as error:
        why = " ".join(str(error).split())  # torch gives every key a line
        raise InputError(f"--weights: {path} does not fit the model ({why})") from error


def _refuse(weights: Path | None, why: str) -> None:
    if weights is not None:
        raise UserError(f"--weights: goes with module:callable only ({why})")
