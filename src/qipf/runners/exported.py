"""Restore the modules of an exported program, so that their outputs can be read."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram, unflatten

LINEAR, CONVOLUTION = "torch.nn.modules.linear.Linear", "torch.nn.modules.conv.Conv2d"


def exported_module(program: ExportedProgram) -> nn.Module:
    """Return the program with its modules called by name, or as one flat graph if torch cannot restore them.

    `program.module()` runs the same operations, but calls no submodule, so that hooks see nothing of it. Linear layers
    and convolutions become `nn.Linear` and `nn.Conv2d` again, by which features are found. All parameters are those of
    the program. The attribute `fixed_batch` of the module is the number of rows that it takes, or None for any number.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own use of what it deprecates
            module = unflatten(program)
    except Exception:  # torch raises whatever it meets in graphs that it cannot split
        module = program.module()
    else:
        for name, part in [*module.named_modules(remove_duplicate=False)]:
            if name and (layer := _layer(part)) is not None:
                parent, _, last = name.rpartition(".")
                setattr(module.get_submodule(parent), last, layer)
    inputs = [node.meta.get("val") for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    sizes = [one.shape[0] for one in inputs if isinstance(one, torch.Tensor) and one.ndim]
    fixed = sizes[0] if sizes and all(type(size) is int and size == sizes[0] for size in sizes) else None
    module.__dict__["fixed_batch"] = fixed
    return module


def _layer(part: nn.Module) -> nn.Linear | nn.Conv2d | None:
    """Return the linear layer or convolution that a piece of graph was exported from; None for anything else."""
    graph: Any = getattr(part, "graph", None)
    kind = getattr(part, "_ty", None)
    parameters = dict(part.named_parameters())
    if graph is None or kind not in (LINEAR, CONVOLUTION) or parameters.keys() - {"bias"} != {"weight"}:
        return None
    called = [node for node in graph.nodes if node.op == "call_function"]
    if len(called) != 1 or sum(node.op == "placeholder" for node in graph.nodes) != 1:
        return None
    outputs, inputs, *kernel = parameters["weight"].shape
    made: dict[str, Any] = {"bias": "bias" in parameters, "device": "meta"}
    if kind == LINEAR:
        layer = nn.Linear(inputs, outputs, **made)
    elif called[0].target not in (torch.ops.aten.conv2d.default, torch.ops.aten.conv2d.padding) or called[0].kwargs:
        return None
    else:
        names = ("stride", "padding", "dilation", "groups")  # in the order of aten.conv2d
        numbers = (tuple(one) if isinstance(one, list) else one for one in called[0].args[3:])
        given: dict[str, Any] = dict(zip(names, numbers, strict=False))
        layer = nn.Conv2d(inputs * given.get("groups", 1), outputs, (kernel[0], kernel[1]), **given, **made)
    for name, values in parameters.items():
        setattr(layer, name, values)
    return layer.train(part.training)
