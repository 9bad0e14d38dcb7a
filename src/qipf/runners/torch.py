"""Run a torch module: pass inputs to its forward method, find the logits in its output, and read its layers."""

from __future__ import annotations

import inspect
import math
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram, unflatten

from qipf._common.errors import Problem, first_line
from qipf.arrays import widest_float
from qipf.data.batches import INPUTS, Batch, InputSpec, as_numbers, describe, is_array, take
from qipf.data.npz import native
from qipf.runners.features import HEAD, Candidate, FeatureSpec
from qipf.runners.recorder import (
    Recorder,
    ending_name,
    first_tensor,
    is_output,
    is_signal,
    named_modules,
    untouched,
    watching,
)
from qipf.runners.runner import (
    CORNER,
    Pass,
    Run,
    Runner,
    check_single,
    class_axis,
    computes,
    has_probabilities,
    in_rows,
)

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_TORCH = str(Path(torch.__file__).parent)
NEAR = 0.2
"""The maximum distance between the logits and the upsampled output of the layer that computes them.

The distance is measured in standard deviations of the logits.
"""
WAYS: tuple[dict[str, Any], ...] = (
    {"mode": "nearest"},
    {"mode": "bilinear", "align_corners": False},
    {"mode": "bilinear", "align_corners": True},
    {"mode": "bicubic", "align_corners": False},
)
"""The arguments of `interpolate` that models use to upsample logits to the size of the image."""
MEETING = 8
"""The number of rows used to find layers that depend on all inputs."""
LINEAR, CONVOLUTION = "torch.nn.modules.linear.Linear", "torch.nn.modules.conv.Conv2d"
"""The names of module types in exported programs."""
PLACES = 1024
"""The length of the rows into which weights are folded for a fingerprint."""
HALF_MOST = 65504.0
"""The largest finite number in half precision."""
_DIRECTIONS = math.sqrt(2) * torch.outer(torch.arange(1.0, 5.0).double(), torch.arange(PLACES).double()).cos()


class TorchRunner(Runner):
    """Run a torch module without moving or changing it.

    Args:
        model: A module, possibly wrapped by DataParallel or `torch.compile`, or an exported program.
        device: The device of the inputs; None for the model's device.
    """

    def __init__(self, model: Any, device: torch.device | str | None = None) -> None:
        if isinstance(model, ExportedProgram):
            model = exported_module(model)
        self.module = unwrap(model)
        self.device = input_device(self.module, device)
        self._made: nn.Module | None = None  # the layer that computes per-pixel logits, once found
        self.fixed: int | None = getattr(self.module, "fixed_batch", None)
        self._dtype = next((p.dtype for p in self.module.parameters() if p.dtype in _FLOATS), None)
        self._parameters = forward_parameters(original(self.module))
        self.inputs = [InputSpec(name) for name, one in self._parameters.items() if one.kind not in _VARIADIC]

    def bind(self, inputs: Any, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of `forward`, in the type and on the device of the model."""
        args, kwargs = self._arguments(inputs, number)
        return self._move(args), self._move(kwargs)

    def as_array(self, values: Any, name: str = "data") -> Tensor:
        """Convert values to a tensor."""
        return to_tensor(values, name).detach()

    def peeking(self) -> AbstractContextManager[None]:
        """Return a context manager that restores all random states."""
        return untouched(None, eager=False)

    @contextmanager
    def reading(self, read: Mapping[str, FeatureSpec], *, raw: bool = False, show: bool = True) -> Iterator[Run]:
        """See `Runner.reading`."""
        del show
        recorder = Recorder(self.module, read, endings=not raw)
        heads = [key for key, spec in read.items() if spec == FeatureSpec("", "whole")]
        copies = {key: spec.copy for key, spec in read.items() if spec.copy is not None}
        checked, settled = raw, not heads or self._made is not None
        if heads and self._made is not None:
            recorder.hooks[heads[0]].only = self._made  # pyright: ignore

        def run(batch: Batch) -> Pass:
            nonlocal checked, settled
            rows, batch = batch.rows, self._first(batch, batch.rows)
            recorder.open()
            try:
                values = self._values(batch)
                logits = _before(recorder, values)
                if not checked:
                    checked = True
                    if logits is values:  # the input of a sigmoid may lie in [0, 1]
                        check_logits(logits)
                found = recorder.take(logits)
            finally:
                recorder.close()
            for key, half in copies.items():
                found[key] = half(found[key], batch.args, batch.kwargs)
            if not settled and logits.ndim == 4:
                settled = True
                maker = self._maker(batch, logits, recorder.hooks[heads[0]].only)  # pyright: ignore
                if maker is not None:
                    recorder.hooks[heads[0]].only = self._made = maker  # pyright: ignore
                    del values, logits, found  # otherwise, the tensors of two passes would be in memory
                    return run(batch)
            settled = True
            narrow = logits.element_size() < 4 and logits.ndim <= 2  # larger outputs are cast in blocks
            logits = logits.float() if narrow else logits
            return Pass(logits[:rows], {key: values[:rows] for key, values in found.items()})

        with untouched(self.module, eager=recorder.active), recorder.attached():
            yield run

    def output_shape(self, batch: Batch) -> tuple[int, ...]:
        """Return the shape of the output."""
        with untouched(self.module, eager=False):
            try:
                return tuple(self._values(self._first(batch, 2)).shape)
            except Problem:  # a traced model may accept only the batch size that it was traced with
                return tuple(self._values(batch).shape)

    def candidates(self, batch: Batch) -> tuple[Candidate, ...]:
        """Return the module outputs that have one row per sample and depend on every input of the model."""
        module = original(self.module)
        names: dict[nn.Module, list[str]] = {}
        for name, part in named_modules(module).items():
            names.setdefault(part, []).append(name)
        several = len(_tensors(batch)) > 1
        few = self._first(batch, MEETING if several else 2)
        logits, calls = self._calls(module, names, few, several)
        met = self._met(module, names, few, calls) if several else [True] * len(calls)
        classes = logits.shape[1] if logits.ndim > 1 else 1
        found = [
            (part, _candidate(name, part, tuple(output.shape), classes))
            for (part, output), together in zip(calls, met, strict=True)
            if together and output.shape[0] == logits.shape[0]
            for name in names[part]
        ]
        weighted = [one for part, one in found if any(True for _ in part.parameters(recurse=False))]
        if weighted and weighted[-1].spatial:  # no weights follow, so these are per-position logits
            own = [one.shape[1 if len(one.shape) == 4 else -1] == classes for _, one in found]
            found = [pair for pair, logits in zip(found, own, strict=True) if not (pair[1].spatial and logits)]
        return tuple(one for _, one in found)

    def _calls(
        self, module: nn.Module, names: Mapping[nn.Module, Any], batch: Batch, keep: bool
    ) -> tuple[Tensor, list[tuple[nn.Module, Tensor]]]:
        """Return the logits and, in order, the outputs of all calls, as meta tensors unless `keep` is true."""
        calls: list[tuple[nn.Module, Tensor]] = []

        def note(part: nn.Module, inputs: Any, output: Any) -> None:
            tensor = first_tensor(output)
            if tensor is not None and tensor.ndim and tensor.is_floating_point():
                calls.append((part, tensor.clone() if keep else tensor.to("meta")))

        with untouched(module, eager=True), watching(names, note):
            return self._values(batch, module), calls

    def _met(
        self, module: nn.Module, names: Mapping[nn.Module, Any], batch: Batch, calls: list[tuple[nn.Module, Tensor]]
    ) -> list[bool]:
        """Return, for each call, whether its output depends on every input that affects any output."""
        changed: list[list[bool]] = []
        for key in _tensors(batch):
            moved = {**dict(enumerate(batch.args)), **batch.kwargs}
            moved[key] = moved[key].roll(1, 0)
            args = tuple(moved.pop(index) for index in range(len(batch.args)))
            again = self._calls(module, names, batch._replace(args=args, kwargs=moved), True)[1]
            if len(again) == len(calls):
                same = zip(calls, again, strict=True)
                changed.append([not torch.equal(one, other) for (_, one), (_, other) in same])
        changed = [one for one in changed if any(one)]
        return [all(one[index] for one in changed) for index in range(len(calls))]

    def head(self, batch: Batch, output: tuple[int, ...]) -> FeatureSpec | None:
        """See `Runner.head`; the layer must be linear or, for pixels, a convolution."""
        single = all(size == 1 for size in output[2:])
        kind = nn.Conv2d if len(output) == 4 and not single else nn.Linear
        if not any(isinstance(module, kind) for module in self.module.modules()):
            return None
        return HEAD if single else FeatureSpec("", "whole")

    def fingerprint(self) -> list[float] | None:
        """Return numbers that identify the weights and persistent buffers of the model.

        They include projections onto fixed directions, which differ by about 1 between independently trained networks.
        """
        return fingerprint(self.module)

    def _arguments(self, inputs: Any, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not isinstance(inputs, Mapping):
            given = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
            if len(given) < len(needed := _required(self._parameters)):
                names = ", ".join(needed)
                raise Problem(
                    "data", f"the model takes {len(needed)} inputs ({names}), but the data has {len(given)}",
                    hint=f"pass (({names}), labels), or (({names}), None) if there are no labels",
                )  # fmt: skip
            return given, {}
        named = [p.name for p in self._parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        known = {str(key): value for key, value in inputs.items() if key in named}
        missing = [name for name in _required(self._parameters) if name not in known]
        if known and not missing:  # as Hugging Face models expect
            return (), known
        if not missing or missing == list(self._parameters)[:1]:  # one positional input is enough
            generic = next((key for key in INPUTS if key in inputs and key not in known), None)
            if generic is not None:
                return (inputs[generic],), known
            if len(inputs) == 1 and not known:
                return tuple(inputs.values()), {}
        if not missing and any(p.kind is p.VAR_KEYWORD for p in self._parameters.values()):
            return (), {str(key): value for key, value in inputs.items()}
        takes = f"batch {number}: the model's forward ({', '.join(self._parameters)})"
        if missing and (known or len(missing) > 1):
            raise Problem("data", f"{takes} needs {', '.join(missing)}, which the keys {list(inputs)} do not provide")
        raise Problem(
            "data", f"{takes} has no argument called {' or '.join(map(repr, inputs))}; got {describe(inputs)}",
            hint=f"use the names of its arguments, or one of {', '.join(INPUTS)}",
        )  # fmt: skip

    def _move(self, value: Any) -> Any:
        if is_array(value):
            value = to_tensor(value)
        if isinstance(value, Tensor):
            dtype = self._dtype if self._dtype and value.dtype in _FLOATS else value.dtype
            dtype = getattr(torch, widest_float(self.device)) if dtype == torch.float64 else dtype
            # A non-blocking copy to the CPU may be read before it is complete.
            unblocked = value.device.type == "cpu" and self.device.type == "cuda"
            return value.to(self.device, dtype, non_blocking=unblocked)
        if isinstance(value, Mapping):
            return {key: self._move(item) for key, item in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(self._move(item) for item in value) if type(value) in (tuple, list) else value
        return value

    def _first(self, batch: Batch, rows: int) -> Batch:
        """Return the first rows; if the model has a fixed batch size, repeat the rows to fill a batch of this size."""
        if self.fixed is None or batch.rows > self.fixed:
            return batch.first(rows)
        index = np.arange(self.fixed) % batch.rows
        args, kwargs, labels, mask = (take(part, index) for part in batch[:4])
        return Batch(args, kwargs, labels, mask, self.fixed, batch.number, [batch.numbers[int(i)] for i in index])

    def _values(self, batch: Batch, module: nn.Module | None = None) -> Tensor:
        """Run a batch and return the output that contains the logits, unchanged."""
        module = module or self.module
        values = find_values(call(module, batch.args, batch.kwargs, batch.number))
        if self.module.training:
            raise Problem(
                "model",
                "train() was called during a pass",
                hint="pass a copy of the model, or wait until collect returns",
            )
        if values.ndim == 0 or values.shape[0] != batch.rows:
            found = f"a tensor of shape {tuple(values.shape)}" if values.ndim else "a single number"
            raise Problem(
                "data", f"batch {batch.number}: the model returned {found} for a batch of size {batch.rows}",
                hint="the first axis must be the batch; x[None] adds this axis to a single input",
            )  # fmt: skip
        return values

    def _maker(self, batch: Batch, logits: Tensor, last: nn.Module | None) -> nn.Module | None:
        """Return the convolution that computes the logits (N, C, H, W); None if the only candidate is `last`."""
        could = [
            one for one in self.module.modules() if isinstance(one, nn.Conv2d) and one.out_channels == logits.shape[1]
        ]
        if not could or could == [last]:
            return None
        outputs: dict[nn.Module, Tensor] = {}
        names = {module: name for name, module in named_modules(self.module).items()}

        def note(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                outputs[module] = output

        with watching(could, note):
            logits = self._values(self._first(batch, 1))[:1].float()
        apart = {module: _difference(output, logits) for module, output in outputs.items()}
        order = sorted(apart, key=lambda module: apart[module])
        if not order:
            return None
        if apart[order[0]] > NEAR or (len(order) > 1 and apart[order[1]] < 2 * apart[order[0]]):
            told = ", ".join(names[module] for module in outputs)
            raise Problem(
                "features", f"cannot tell which module with one channel per class computes the logits ({told})",
                hint="name the module whose output is the input of the correct one",
            )  # fmt: skip
        return order[0]


def exported_module(program: ExportedProgram) -> nn.Module:
    """Convert an exported program to a module, with its original submodules if torch can restore them.

    The attribute `fixed_batch` of the module is the program's batch size, or None for any size.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch triggers its own deprecation warnings
            module = unflatten(program)
    except Exception:  # torch may raise any exception for graphs that it cannot split
        module = program.module()  # without submodules, no hooks fire
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
    """Return the linear layer or convolution from which a subgraph was exported; None for other subgraphs."""
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


def unwrap(model: Any) -> nn.Module:
    """Return the module wrapped by DataParallel, or the model itself."""
    if not isinstance(model, nn.Module):
        hint = "call its .module() first" if hasattr(model, "module") else ""
        raise Problem("model", type(model).__name__, expected="a torch.nn.Module", hint=hint)
    while isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        model = model.module
    return model


def original(model: nn.Module) -> nn.Module:
    """Return the module wrapped by DataParallel or `torch.compile`, or the model itself."""
    while (inside := getattr(model, "_orig_mod", unwrap(model))) is not model and inside is not None:
        model = inside
    return model


def input_device(model: nn.Module, device: torch.device | str | None) -> torch.device:
    """Return the device of the inputs; raise Problem unless the model is on that device."""
    homes = list(dict.fromkeys(tensor.device for tensor in (*model.parameters(), *model.buffers())))
    if any(home.type == "meta" for home in homes):
        raise Problem("model", "parameters on the meta device have no values", hint="load them first")
    if device is None or not homes:
        return homes[0] if homes else as_device("device", device or "cpu")
    wanted = as_device("device", device)
    for home in homes:
        if wanted.type == home.type and wanted.index in (None, home.index):
            return home
    raise Problem(
        "device", repr(str(wanted)), expected=f"the device of the model ({homes[0]})", hint="move the model first"
    )


def as_device(name: str, value: torch.device | str) -> torch.device:
    """Convert an argument to a torch device."""
    try:
        return torch.device(value)
    except (RuntimeError, TypeError):
        raise Problem(name, repr(value), expected="a device such as 'cpu' or 'cuda:0'") from None


def to_tensor(values: Any, name: str = "data") -> Tensor:
    """Convert `values` to a tensor; arrays whose memory torch cannot share are copied."""
    if isinstance(values, Tensor):
        return values
    array = native(as_numbers(values, name))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    wide = array.dtype.itemsize > 8 and array.dtype.kind == "f"  # torch has no wider floating-point types
    return torch.as_tensor(array.astype(np.float64) if wide else array)


def forward_parameters(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of `forward` by name; empty for a scripted module."""
    try:
        return inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # a scripted module has no Python signature
        return {}


def _required(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Return the names of the required arguments."""
    return [p.name for p in parameters.values() if p.default is p.empty and p.kind not in _VARIADIC]


def call(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], number: int = 0) -> Any:
    """Call the model.

    Raises:
        Problem: torch cannot run the model on these inputs. Errors that the model itself raises are propagated.
    """
    try:
        return model(*args, **kwargs)
    except (torch.OutOfMemoryError, Problem):
        raise
    except (RuntimeError, TypeError, IndexError, AssertionError, ValueError) as error:
        if _is_explicit(error):
            raise
        given = ", ".join([*map(describe, args), *(f"{key}: {describe(part)}" for key, part in kwargs.items())])
        found = f"batch {number}: the model failed on the inputs ({given}): {first_line(error).rstrip('.')}"
        raise Problem("data", found, hint=_hint(model, [*args, *kwargs.values()])) from error


def _is_explicit(error: BaseException) -> bool:
    """Return True if the error comes from a `raise` statement outside torch, such as a check in the model."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (last.line or "").startswith("raise ") and not last.filename.startswith(_TORCH)


def _hint(model: nn.Module, inputs: list[Any]) -> str:
    fixed = getattr(model, "fixed_batch", None)
    if fixed is not None and any(isinstance(one, Tensor) and one.ndim and len(one) != fixed for one in inputs):
        return f"it was exported for batches of size {fixed}: pass batch_size={fixed}, or export it with dynamic_shapes"
    return (
        "pass one input per argument of the model's forward method, with the shape, type and scale used in training; "
        "x[None] adds a batch axis to a single input"
    )


def find_values(result: Any) -> Tensor:
    """Return the logits in the output of a model, unchanged."""
    values = _search(result)
    if values is None:
        held = f" with keys {sorted(map(str, result))}" if isinstance(result, Mapping) else ""
        raise Problem(
            "model", f"it returned a value of type {type(result).__name__}{held}",
            hint="return a tensor, a tuple that starts with a tensor, a dict with 'logits' or an object with .logits",
        )  # fmt: skip
    if not values.is_floating_point():
        raise Problem("model", f"it returned {values.dtype} values", hint="return floating-point logits, not classes")
    return values


def _search(result: Any) -> Tensor | None:
    if isinstance(result, Tensor):
        return result
    if getattr(result, "logits", None) is not None:
        return _search(result.logits)
    if isinstance(result, Mapping):
        named = [result[key] for key in ("logits", "output", "outputs", "out") if key in result]
        tensors = named or [value for value in result.values() if isinstance(value, Tensor)]
        return _search(tensors[0]) if named or len(tensors) == 1 else None
    if isinstance(result, tuple | list) and result:
        return _search(result[0])
    return None


def _candidate(name: str, part: nn.Module, shape: tuple[int, ...], classes: int) -> Candidate:
    if not isinstance(part, nn.Linear):
        return Candidate(name, shape, "signal" if is_signal(part) else "")
    makes_logits = shape[-1] == classes
    return Candidate(name, shape, "linear", FeatureSpec(name, "input") if makes_logits else None, part.in_features)


def _tensors(batch: Batch) -> list[Any]:
    """Return the positions or names of the inputs that have rows."""
    given = {**dict(enumerate(batch.args)), **batch.kwargs}
    return [key for key, one in given.items() if isinstance(one, Tensor) and one.ndim]


def _before(recorder: Recorder, values: Tensor) -> Tensor:
    """Return the input of the softmax or sigmoid module that computed the values, or the values themselves."""
    last = recorder.ending()
    if last is None or last.entered.numel() != values.numel() or not is_output(last.output, values):
        return values
    entered = last.entered.reshape(values.shape)
    return entered if computes(ending_name(last.module), _few(entered), _few(values)) else values


def _few(values: Tensor) -> np.ndarray:
    """Return some of the values in double precision, for checks."""
    parts = {3: (slice(2), slice(32)), 4: (slice(1), slice(None), slice(CORNER), slice(CORNER))}
    return values[parts.get(values.ndim, slice(CORNER))].detach().cpu().double().numpy()


def check_logits(values: Tensor) -> None:
    """Raise Problem if logits look like probabilities."""
    few = _few(values)
    few = in_rows(few) if few.ndim > 2 else few
    check_single(few)
    if few.size > few.shape[class_axis(few)] and has_probabilities(few, 2e-2):
        hint = "return the input of the softmax, or end the model with an nn.Softmax module"
        raise Problem("model", "it returns probabilities, but scores need logits", hint=hint)


def _difference(output: Tensor, logits: Tensor) -> float:
    """Return the distance between an upsampled output and the logits, in standard deviations of the logits."""
    if output.ndim != 4 or output.shape[:2] != logits.shape[:2]:
        return float("inf")
    scaled = (nn.functional.interpolate(output.float(), size=logits.shape[2:], **way) for way in WAYS)
    tried = (output.float(),) if output.shape == logits.shape else scaled
    spread = float(logits.std().clamp(min=torch.finfo(torch.float32).tiny))
    return min(float((one - logits).square().mean().sqrt()) / spread for one in tried)


@torch.no_grad()
def fingerprint(model: nn.Module) -> list[float] | None:
    """Return the numbers of `TorchRunner.fingerprint`.

    Return None if there are no weights or persistent buffers, or if some of them have no values yet.
    """
    module = original(model)
    parameters = [one for one in module.parameters() if one.is_floating_point()]
    kept = {
        id(one): one
        for part in module.modules()
        for name, one in part._buffers.items()
        if one is not None and name not in part._non_persistent_buffers_set and one.is_floating_point()
    }
    if any(torch.nn.parameter.is_lazy(one) or one.is_meta for one in (*parameters, *kept.values())):
        return None
    # seven numbers for the weights (count, norm, four projections, precision), and six for the compressed buffers
    half = any(one.element_size() < 4 for one in parameters)
    weights, buffers = _numbers(parameters), _numbers([_compressed(one) for one in kept.values()])
    return [*weights, float(half), *buffers] if weights[0] or buffers[0] else None


def _numbers(tensors: Sequence[Tensor]) -> list[float]:
    """Return the number of values, their Euclidean norm, and projections of their folded sum divided by the norm."""
    square, folded = 0.0, torch.zeros(PLACES, dtype=torch.float64)
    for values in tensors:
        flat = values.flatten().float()
        whole = flat.numel() - flat.numel() % PLACES
        with torch.autocast(flat.device.type, enabled=False):
            if whole:  # a matrix product reads the weights as fast as the memory allows
                folded += (flat.new_ones(whole // PLACES) @ flat[:whole].view(-1, PLACES)).cpu()
            square += float(flat @ flat)
        folded[: flat.numel() - whole] += flat[whole:].cpu()
    norm = math.sqrt(square)
    projections = _DIRECTIONS @ folded / (norm or 1.0)
    return [float(sum(one.numel() for one in tensors)), norm, *projections.tolist()]


def _compressed(values: Tensor) -> Tensor:
    """Return signed logarithms of the clamped values, because buffers differ in scale and masks may be infinite."""
    finite = values.float().nan_to_num(nan=0.0).clamp(-HALF_MOST, HALF_MOST)
    return finite.sign() * finite.abs().log1p()
