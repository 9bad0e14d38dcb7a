"""`qipf inspect`: show the contents of a fitted scorer's file, or the tensors of an ONNX model."""

from __future__ import annotations

import sys
from json import dumps

from qipf._common.optional import require
from qipf._common.printing import printable
from qipf.cli.running import split_model
from qipf.cli.shown import told_threshold


def inspect(file: str, /, *, json: bool = False) -> None:
    """Show the contents of a fitted scorer's file, or the tensors of an ONNX model.

    Nothing in a scorer's file is executed, and its checksum is verified. An ONNX model is loaded but not run.

    For example:

    ```
    qipf inspect net.qipf
    qipf inspect net.onnx:logits
    ```

    Args:
        file: A file written by `qipf fit`, or an .onnx file (FILE.onnx:OUTPUT for one of several outputs).
        json: Print JSON instead of text.
    """
    from qipf.scores.saving import load, read

    path, output = split_model(file)
    if path.endswith(".onnx"):
        _onnx(path, json, output)
        return
    header, tensors = read(file)
    if json:
        shapes = {
            key: {"shape": list(value.shape), "dtype": str(value.dtype), "bytes": value.nbytes}
            for key, value in tensors.items()
        }
        print(dumps({**header, "tensors": shapes}, indent=2))
        return
    table = require("rich.table", extra="torch").Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    rows = {key: header[key] for key in ("scorer", "format", "checksum")}
    for group in ("settings", "facts", "attachments", "versions"):
        for key, value in header.get(group, {}).items():
            nested = group == "attachments" and isinstance(value, dict)
            rows |= {f"{group}.{key}.{name}": part for name, part in value.items()} if nested else {}
            rows |= {} if nested and value else {f"{group}.{key}": value}
    for key, value in tensors.items():
        rows[f"tensors.{key}"] = f"{value.shape} {value.dtype}, {value.nbytes:,} bytes"
    for key, value in rows.items():
        table.add_row(printable(key), printable(value))
    console = require("rich.console", extra="torch").Console(file=sys.stdout, highlight=False, markup=False)
    console.print(table)
    scorer = load(file)
    if scorer.decision is not None:
        print(f"\ndecision: {printable(scorer.decision.report())}\n{told_threshold(scorer.decision)}")


def _onnx(file: str, as_json: bool, output: str | None) -> None:
    """Print the inputs, outputs and tensors of an ONNX model; tensors that all data passes through are marked."""
    from qipf.runners.loading import load_model

    model = load_model(file, output=output)
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
        print(dumps(found, indent=2))
        return
    for name, about in found["inputs"].items():
        print(f"input     {printable(name)}  {about}")
    for name, about in found["outputs"].items():
        print(f"output    {printable(name)}  {printable(about)}")
    print(f"logits    {printable(logits)}")
    missing = "none: the logits do not come from a linear layer or convolution, or this layer reads the inputs directly"
    print(f"features  {printable(found['features'] or missing)}")
    print("tensors accepted by --features (*: all data passes through the tensor):")
    for one in found["tensors"]:
        print(f"{'*' if one['all_data'] else ' '} {printable(one['name'])}  {printable(one['operator'])}")
