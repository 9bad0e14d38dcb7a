"""Run a trained network over data once and keep its logits, features and labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qipf._common.optional import require
from qipf.models.labels import check_classes, in_line
from qipf.models.outputs import Outputs
from qipf.models.sessions.model import as_onnx, check_no_device

if TYPE_CHECKING:
    import torch


def collect(
    model: Any,
    data: Any,
    *,
    features: str | bool | None = None,
    layers: str | Iterable[str] = (),
    device: torch.device | str | None = None,
    store: torch.device | str | None = "cpu",
    batch_size: int = 500,
    progress: bool = True,
) -> Outputs:
    """Return the logits, features and labels of a trained torch or ONNX model: one pass, evaluation mode, no gradients.

    The model is left as it was found, even after an error or an interrupt: the mode of every submodule,
    device, dtype, requires_grad, hooks and buffers, and the random states of Python, NumPy and torch.

    Features with more than two dimensions become (N, D) by averaging: feature maps over space, tokens over
    the sequence. Inputs are cast to the floating-point type of the model, and results in half precision are
    stored as float32. NaN is passed on; the scorers name the row. Compiled models run uncompiled while
    features are recorded. If a named module is called several times, the last call counts.

    An ONNX model needs no torch, and its outputs are NumPy arrays. Where it ends in a softmax, what stands before it is
    read; where only its probabilities are known, their logarithms are; both are said in one line. Names of modules are
    then names of tensors in the graph, which `qipf inspect model.onnx` lists.

    Args:
        model: A torch module, which is never moved. Wrappers of parallel and compiled modules are looked through. Or an
            ONNX model: an `onnxruntime.InferenceSession`, the path of an `.onnx` file, or `qipf.models.OnnxModel`.
        data: A DataLoader, a dataset, a tensor, a tuple (inputs, labels), or an iterable of batches. Two
            arrays in a tuple are always inputs and labels; in a list they are two batches of inputs. A batch
            is a tensor, (inputs,), (inputs, labels) or a dict; inputs may be a tuple or a dict of arguments,
            also where data is not in batches: ((a, b), labels).
            The items of a dict become the arguments of `forward` with the same names; an input under a common name
            such as "image" becomes the first argument where `forward` calls it something else.
        features: None for the input of the linear layer that makes the logits, or otherwise of the last linear
            layer called (no features if there is none); the name of a module for its output; False for none.
        layers: Names of further modules whose outputs go to `Outputs.layers`.
        device: Where the inputs go; None is the device of the model. An ONNX model runs where its session does.
        store: Where the results go; None is the device of the model.
        batch_size: Rows per batch, for data that does not come in batches.
        progress: Show a progress bar with the time left.

    Returns:
        The outputs, in the order of the data.

    Raises:
        TypeError: `model` is not a module, or its output or the data is of an unsupported kind.
        ValueError: There is no data, a module name is unknown, labels do not match the inputs, or labels are not
            classes of a model with several logits.
    """
    if not isinstance(layers, Iterable):
        raise TypeError(f"layers: expected names of modules, got {layers!r}")
    names = (layers,) if isinstance(layers, str) else tuple(layers)
    onnx = as_onnx(model)
    if onnx is not None:
        from qipf.models.sessions.collecting import collect_onnx

        check_no_device(device)
        return collect_onnx(onnx, data, features=features, layers=names, batch_size=batch_size, progress=progress)
    require("torch", extra="torch")
    from qipf._common.progress import track
    from qipf.models.batches import Batches
    from qipf.models.calling import call
    from qipf.models.features import Recorder
    from qipf.models.logits import Rows, find_logits
    from qipf.models.state import as_device, input_device, untouched, unwrap

    module = unwrap(model)
    target = input_device(module, device)
    keep_on = target if store is None else as_device("store", store)
    recorder = Recorder(module, features, names)
    kept: dict[str, Rows] = {}
    with untouched(module, eager=recorder.active), recorder:
        batches = Batches(data, batch_size, module, target)
        for number, batch in enumerate(track(batches, "collecting", total=batches.count, show=progress)):
            result = call(module, batch.arguments, batch.keywords, number)
            logits = find_logits(result, batch.rows, number)
            labels = None if batch.labels is None else in_line(batch.labels)
            if labels is not None:  # at once, and not after hours of work
                check_classes(labels, logits.shape[1], first=kept["labels"].count if "labels" in kept else 0)
            results = {"logits": logits, **recorder.take(logits), "labels": labels}
            for name, values in results.items():
                if number > 0 and (values is None) == (name in kept):
                    raise ValueError(
                        f"batch {number}: {name} are in some batches but not in others; give them in all or in none"
                    )
                if values is not None:
                    kept.setdefault(name, Rows(batches.rows, keep_on)).append(values)
    if not kept or kept["logits"].count == 0:
        raise ValueError("data: expected at least one row, got none; is the data set empty, or the iterator used up?")
    found = {name: rows.finish() for name, rows in kept.items()}
    return Outputs(
        found.pop("logits"),
        found.pop("features", None),
        found.pop("labels", None),
        {name.removeprefix("layer:"): values for name, values in found.items()},
    )
