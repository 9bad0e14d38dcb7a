"""Export a wrapped model as one ONNX graph."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf.deploy.wrapper import Wrapped


def export_onnx(
    wrapped: Wrapped, path: str | os.PathLike[str], example: Tensor | tuple[Tensor, ...], *, opset: int = 18
) -> None:
    """Write `wrap(model, scorer)` as an ONNX file that runs without torch or qipf.

    The batch size is dynamic. The outputs are `logits` and `uncertainty` (N,), followed by `probability` (of error),
    `accept`, `modes` (N, K) and `posterior` (N, C) if available. The model is exported in evaluation mode.

    Args:
        wrapped: The result of `qipf.wrap`.
        path: The file to write.
        example: An input of the model, or a tuple of all its inputs, with two or more rows; only shapes and dtypes
            matter.
        opset: The version of the ONNX operator set.

    Raises:
        ValueError: The scorer or the model cannot be exported.
        ImportError: onnx or onnxscript is not installed.
    """
    require("onnx", extra="onnx")
    require("onnxscript", extra="onnx")
    if not isinstance(wrapped, Wrapped):
        raise TypeError(f"wrapped: expected a module returned by qipf.wrap, got {type(wrapped).__name__}")
    inputs = example if isinstance(example, tuple) else (example,)
    if not inputs or any(not isinstance(part, Tensor) or part.ndim < 1 or part.shape[0] < 2 for part in inputs):
        raise ValueError("example: expected tensors with a leading batch axis of two or more rows")
    scorer = wrapped.scorer.scorer
    if scorer.export_problem:
        raise ValueError(f"{scorer.name} cannot be exported: {scorer.export_problem}")
    graph = _Judged(wrapped)
    batch = torch.export.Dim("batch")
    was_training = {module: module.training for module in wrapped.modules()}
    wrapped.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            graph(*inputs)  # raises errors of the model itself, and moves the scorer to the model's device
            warnings.simplefilter("ignore")  # the exporter warns about its own dependencies
            try:
                program: Any = torch.onnx.export(
                    graph, inputs, dynamo=True, opset_version=opset, verbose=False, output_names=graph.names,
                    input_names=["input"] if len(inputs) == 1 else [f"input_{number}" for number in range(len(inputs))],
                    dynamic_shapes=(tuple({0: batch} for _ in inputs),),
                )  # fmt: skip
            except Exception as error:
                found = f"({type(error).__name__}); torch reports:\n{error}"
                raise ValueError(f"the wrapped model cannot be exported {found}") from error
    finally:
        for module, training in was_training.items():
            module.training = training
    fixed = next((size for part in program.model.graph.inputs if isinstance(size := part.shape[0], int)), None)
    if fixed is not None:
        raise ValueError(
            f"the wrapped model cannot be exported for batches of any size, only of {fixed}; in the model's forward "
            "method, replace len(x) by x.shape[0]"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        program.save(str(file), external_data=False)
        atomic_write(path, file.read_bytes())


class _Judged(nn.Module):
    """A module that returns all outputs of the wrapped model and its scorer, in the order of `names`."""

    def __init__(self, wrapped: Wrapped) -> None:
        super().__init__()
        self.wrapped, self.with_modes = wrapped, hasattr(wrapped.scorer.scorer, "modes_of")
        there = {"probability": bool(wrapped.judge.method), "accept": wrapped.judge.decides, "modes": self.with_modes}
        there["posterior"] = wrapped.posterior
        self.names = ["logits", "uncertainty", *(name for name, found in there.items() if found)]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        _, outputs = self.wrapped.observe(*inputs)
        uncertainty, posterior = self.wrapped.scored(outputs)
        modes = self.wrapped.scorer.modes(outputs) if self.with_modes else None
        found = (outputs.logits, uncertainty, *self.wrapped.judge(uncertainty), modes, posterior)
        return tuple(part for part in found if part is not None)
