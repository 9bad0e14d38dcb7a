"""Export a wrapped model as one ONNX graph."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qipf._common.files import atomic_write
from qipf._common.optional import require

if TYPE_CHECKING:
    from torch import Tensor

    from qipf.deploy.wrapper import Wrapped


def export_onnx(
    wrapped: Wrapped, path: str | os.PathLike[str], example: Tensor | tuple[Tensor, ...], *, opset: int = 18
) -> None:
    """Write `wrap(model, scorer)` as an ONNX file that needs neither torch nor qipf to run.

    The batch may have any size. The outputs are `logits`, `uncertainty` (N,) and, if the scorer has them, `probability`
    (of error), `accept` and `modes` (N, K), and `posterior` (N, C) if `wrap` was called with `posterior=True`. The
    model is exported in evaluation mode and keeps its mode. With `wrap(..., views=2)` the graph computes both views.

    Args:
        wrapped: A module that `qipf.wrap` returned.
        path: The file to write.
        example: An example input, or a tuple of all inputs of the model, with two or more rows; only shapes and types
            matter.
        opset: The version of the ONNX operators.

    Raises:
        ValueError: The scorer or the model cannot be part of a graph, or the example has fewer than two rows.
        ImportError: onnx or onnxscript is missing.
    """
    torch = require("torch", extra="torch")
    require("onnx", extra="onnx")
    require("onnxscript", extra="onnx")
    from qipf.deploy.wrapper import Wrapped

    if not isinstance(wrapped, Wrapped):
        raise TypeError(f"wrapped: expected a module that qipf.wrap returned, got {type(wrapped).__name__}")
    inputs = example if isinstance(example, tuple) else (example,)
    if not inputs or any(not isinstance(part, torch.Tensor) or part.ndim < 1 or part.shape[0] < 2 for part in inputs):
        raise ValueError("example: expected tensors with a leading batch axis of two or more rows")
    scorer = wrapped.scorer.scorer
    if scorer.export_problem:
        raise ValueError(f"{scorer.name} cannot be exported: {scorer.export_problem}")
    graph = _graph(wrapped, with_modes=hasattr(scorer, "modes_of"))
    was_training = {module: module.training for module in wrapped.modules()}
    wrapped.eval()
    try:
        with torch.no_grad():
            graph(*inputs)  # raises the errors of the model itself, and moves the scorer to its device before tracing
            program = _export(torch, graph, inputs, opset)
    finally:
        for module, training in was_training.items():
            module.training = training
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        program.save(str(file), external_data=False)
        atomic_write(path, file.read_bytes())


def _export(torch: Any, graph: Any, inputs: tuple[Tensor, ...], opset: int) -> Any:
    batch = torch.export.Dim("batch")
    shapes = (tuple({0: batch} for _ in inputs),)
    names = ["input"] if len(inputs) == 1 else [f"input_{number}" for number in range(len(inputs))]
    outputs = graph.names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter comments on its own dependencies
        try:
            return torch.onnx.export(
                graph,
                inputs,
                dynamo=True,
                dynamic_shapes=shapes,
                input_names=names,
                output_names=outputs,
                opset_version=opset,
                verbose=False,
            )
        except Exception as error:
            raise ValueError(
                f"the wrapped model cannot be exported ({type(error).__name__}); torch's exporter says:\n{error}"
            ) from error


def _graph(wrapped: Wrapped, *, with_modes: bool) -> Any:
    from torch import nn

    class JudgedModel(nn.Module):
        """Returns all outputs of the wrapped model and its scorer, in the order of `names`."""

        def __init__(self) -> None:
            super().__init__()
            self.wrapped = wrapped
            there = {"probability": bool(wrapped.judge.method), "accept": wrapped.judge.decides, "modes": with_modes}
            there["posterior"] = wrapped.posterior
            self.names = ["logits", "uncertainty", *(name for name, found in there.items() if found)]

        def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
            _, outputs = self.wrapped.observe(*inputs)
            uncertainty, posterior = self.wrapped.scored(outputs)
            modes = self.wrapped.scorer.modes(outputs) if with_modes else None
            found = (outputs.logits, uncertainty, *self.wrapped.judge(uncertainty), modes, posterior)
            return tuple(part for part in found if part is not None)

    return JudgedModel()
