"""An exported program as a module with the modules that it was made of, so that their outputs can be read."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn
from torch.export import ExportedProgram, unflatten

LINEAR = "torch.nn.modules.linear.Linear"


def exported_module(program: ExportedProgram) -> nn.Module:
    """The program with its modules called by their names, or as one flat graph where torch cannot restore them.

    `program.module()` runs the same operations, but calls no submodule: hooks see nothing of it. Linear layers become
    `nn.Linear` again, which is how features are found. All parameters are those of the program.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own use of what it deprecates
            module = unflatten(program)
    except Exception:  # torch raises whatever it meets in graphs that it cannot split
        return program.module()
    for name, part in [*module.named_modules(remove_duplicate=False)]:
        if name and (linear := _linear(part)) is not None:
            parent, _, last = name.rpartition(".")
            setattr(module.get_submodule(parent), last, linear)
    return module


def _linear(part: nn.Module) -> nn.Linear | None:
    """The linear layer that a piece of graph was exported from; None where it is something else."""
    graph: Any = getattr(part, "graph", None)
    parameters = dict(part.named_parameters())
    if graph is None or getattr(part, "_ty", None) != LINEAR or parameters.keys() - {"bias"} != {"weight"}:
        return None
    kinds = [node.op for node in graph.nodes]
    if kinds.count("placeholder") != 1 or kinds.count("call_function") != 1:
        return None
    outputs, inputs = parameters["weight"].shape
    linear = nn.Linear(inputs, outputs, bias="bias" in parameters, device="meta")
    for name, values in parameters.items():
        setattr(linear, name, values)
    return linear.train(part.training)
