"""`qipf inspect`: what is in a file that `qipf fit` wrote, or which tensors an ONNX model has to read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.errors import UserError
from qipf._common.optional import require
from qipf._common.text import printable

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 64
"""Columns of the plot."""


def inspect(file: Path, *, as_json: bool = False, onnx_output: str | None = None) -> None:
    """Show what a fitted scorer's file holds, after checking that it is whole; with a text plot of its field.

    Nothing in the file is executed. Of an ONNX model, show the inputs and the tensors that --features takes; ONNX
    Runtime opens it, which computes what is constant in its graph, and runs it on no data.

    For example:

    ```
    qipf inspect lenet.qipf
    qipf inspect lenet.qipf --as-json
    qipf inspect lenet.onnx
    ```

    Args:
        file: What `qipf fit` wrote, or an .onnx file.
        as_json: The header and the shapes of the tensors as JSON, for programs.
        onnx_output: Of an .onnx file with several outputs: the name of the one that holds the logits.
    """
    from qipf.scores.saving import load, read

    if file.suffix == ".onnx":
        _onnx(file, as_json, onnx_output)
        return
    if onnx_output is not None:
        raise UserError(f"--onnx-output: names an output of an .onnx file, and FILE is {file}; leave it out")
    header, tensors = read(file)
    shapes = {
        key: {"shape": list(value.shape), "dtype": str(value.dtype), "bytes": value.nbytes}
        for key, value in tensors.items()
    }
    if as_json:
        print(json.dumps({**header, "tensors": shapes}, indent=2))
        return
    table = require("rich.table", extra="torch").Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    for key in ("scorer", "format", "checksum"):
        table.add_row(key, printable(header[key]))
    for group in ("settings", "facts", "attachments", "versions"):
        for key, value in header.get(group, {}).items():
            parts = value if group == "attachments" and isinstance(value, dict) else {}
            for name, part in parts.items():
                table.add_row(printable(f"{group}.{key}.{name}"), printable(part))
            if not parts:
                table.add_row(printable(f"{group}.{key}"), printable(value))
    for key, about in shapes.items():
        table.add_row(
            printable(f"tensors.{key}"), f"{tuple(about['shape'])} {about['dtype']}, {about['bytes']:,} bytes"
        )
    console = require("rich.console", extra="torch").Console(file=sys.stdout, highlight=False, markup=False)
    console.print(table)
    scorer = load(file)
    if scorer.decision is not None:
        print(f"\ndecision: {printable(scorer.decision.report())}")
    field = getattr(scorer, "field", None)
    if field is not None and field.dimension == 1:
        y = np.linspace(-4.0, 4.0, WIDTH)
        print("\n" + plot(y, {"field psi(y)": field(y), "uncertainty": _uncertainty(scorer, y)}))


def _onnx(file: Path, as_json: bool, output: str | None) -> None:
    """The inputs, the outputs and the tensors of an ONNX model; those that all data passes through are marked."""
    from qipf.runners.loading import load_model

    model = load_model(str(file), output=output)
    logits = (model.graph.ending(model.output) or ((model.output,), ""))[0][0]
    through = {*model.graph.cuts(logits)}
    found = {
        "inputs": {one.name: f"{one.dtype} {list(one.shape)}".replace("None", "any") for one in model.inputs},
        "outputs": {one.name: f"{one.type} {list(one.shape)}" for one in model.session.get_outputs()},
        "logits": logits,
        "features": next(iter(model.graph.head_inputs(logits)), None) or model.graph.map_input(logits),
        "tensors": [
            {"name": name, "operator": model.graph.operator(name), "all_data": name in through}
            for name in model.graph.tensors
        ],
    }
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for name, about in found["inputs"].items():
        print(f"input     {printable(name)}  {about}")
    for name, about in found["outputs"].items():
        print(f"output    {printable(name)}  {printable(about)}")
    print(f"logits    {printable(logits)}")
    missing = "none: no linear layer or convolution makes the logits, or it reads the inputs themselves"
    print(f"features  {printable(found['features'] or missing)}")
    print("tensors that --features takes (* all data passes through it):")
    for one in found["tensors"]:
        print(f"{'*' if one['all_data'] else ' '} {printable(one['name'])}  {printable(one['operator'])}")


def _uncertainty(scorer: Any, y: np.ndarray) -> np.ndarray:
    """The mean of the modes along the standardised coordinate."""
    fitted = scorer.fitted
    return scorer._modes(scorer.field, y, fitted.tensors.get("reference")).mean(axis=1)


def plot(y: np.ndarray, curves: dict[str, np.ndarray], height: int = 6) -> str:
    """Curves over y as text, each on its own scale, with the largest and smallest value at the left."""
    lines = []
    for name, values in curves.items():
        low, high = float(np.min(values)), float(np.max(values))
        filled = (values - low) / (high - low or 1.0) * height
        lines.append(name)
        for row in range(height - 1, -1, -1):
            eighths = np.clip(np.rint((filled - row) * 8), 0, 8).astype(int)
            label = f"{high:10.4g}" if row == height - 1 else f"{low:10.4g}" if row == 0 else " " * 10
            lines.append(f"{label} |" + "".join(BARS[step] for step in eighths))
        middle = "y, in standard deviations"
        lines.append(" " * 12 + f"{y[0]:<+6g}{middle:^{max(len(middle), len(y) - 12)}}{y[-1]:>+6g}")
    return "\n".join(lines)
