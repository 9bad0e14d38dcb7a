"""Record what flows through the modules of a torch model during a forward pass."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from qipf.models.readings import Reading

_CANDIDATES = 8  # linear calls remembered while looking for the one that made the logits; bounds the memory


class _LinearCall(NamedTuple):
    module: nn.Module
    features: Tensor
    output: Tensor


class Recorder:
    """Hooks that record features; a context manager, so that no hook stays behind."""

    def __init__(self, model: nn.Module, features: str | bool | None, layers: tuple[str, ...]) -> None:
        if features is True or not isinstance(features, str | bool | None):
            raise TypeError(f"features: expected a module name, None or False, got {features!r}")
        if not all(isinstance(name, str) for name in layers):
            raise TypeError(f"layers: expected names of modules, got {layers!r}")
        modules = {
            name.replace("_orig_mod.", ""): module
            for name, module in model.named_modules(remove_duplicate=False)
            if name
        }
        wanted = {f"layer:{name}": name for name in layers}
        if isinstance(features, str):
            wanted = {"features": features, **wanted}
        readings = {key: Reading.parse(text) for key, text in wanted.items()}
        self._named = {key: (reading, find_module(modules, reading.module)) for key, reading in readings.items()}
        self._linear = (
            [module for module in dict.fromkeys(modules.values()) if isinstance(module, nn.Linear)]
            if features is None
            else []
        )
        if features is None and isinstance(model, nn.Linear):
            self._linear.append(model)
        self._handles: dict[nn.Module, Any] = {}
        self._recorded: dict[str, Tensor] = {}
        self._calls: deque[_LinearCall] = deque(maxlen=_CANDIDATES)

    @property
    def active(self) -> bool:
        """Whether anything is to be recorded."""
        return bool(self._named or self._linear)

    def __enter__(self) -> Self:
        self._stack: list[Any] = []
        for key, (reading, module) in self._named.items():
            self._stack.append(module.register_forward_hook(partial(self._on_named, key, reading)))
        for module in self._linear:
            self._handles[module] = module.register_forward_hook(self._on_linear)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (*self._stack, *self._handles.values()):
            handle.remove()
        self._recorded.clear()
        self._calls.clear()

    def _on_named(self, key: str, reading: Reading, module: nn.Module, inputs: Any, output: Any) -> None:
        read = inputs if reading.before else output
        tensor = first_tensor(read)
        if tensor is None or tensor.ndim == 0:
            raise TypeError(
                f"module {reading.module!r} has {type(read).__name__} to read, expected a tensor with rows; "
                "name another module"
            )
        if reading.form:
            self._recorded[key] = own_copy(reading.rows(tensor))
        else:
            self._recorded[key] = as_rows(tensor, channels_last=tensor.ndim == 3 and not is_one_dimensional(module))

    def _on_linear(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if inputs:  # copied now: a later in-place operation may overwrite it
            self._calls.append(_LinearCall(module, as_rows(inputs[0], channels_last=True), output))

    def take(self, logits: Tensor) -> dict[str, Tensor | None]:
        """Return what the last forward pass left, by name, checked to have one row per row of logits."""
        found: dict[str, Tensor | None] = dict(self._recorded)
        if self._linear:
            call = _maker(self._calls, logits)
            found["features"] = None if call is None else call.features
            if call is not None:
                self._forget_all_but(call.module)
        for key, (reading, _) in self._named.items():
            if key not in found:
                raise ValueError(
                    f"module {reading.module!r} was not called in the forward pass, or is inside a scripted or "
                    "exported program, where nothing can be recorded; name another module"
                )
        for key, values in found.items():
            if values is not None and values.shape[0] != logits.shape[0]:
                name = self._named[key][0].module if key in self._named else "the last linear layer"
                raise ValueError(
                    f"{name!r} gave {values.shape[0]} rows for {logits.shape[0]} inputs: its first "
                    "dimension is not the batch; name another module, or pass features=False"
                )
        self._recorded.clear()
        self._calls.clear()
        return found

    def _forget_all_but(self, chosen: nn.Module) -> None:
        """Watch only the layer that made the logits, from the second batch on."""
        for module in [module for module in self._handles if module is not chosen]:
            self._handles.pop(module).remove()


def _maker(calls: deque[_LinearCall], logits: Tensor) -> _LinearCall | None:
    """Return the call whose output is the logits: by memory, or by value, or else the last call."""
    for call in reversed(calls):
        if call.output.data_ptr() == logits.data_ptr() and call.output.numel() == logits.numel():
            return call
    for call in reversed(calls):
        output = call.output.reshape(logits.shape) if call.output.numel() == logits.numel() else None
        if output is not None and torch.equal(output.to(logits), logits):
            return call
    return calls[-1] if calls else None


def own_copy(tensor: Tensor) -> Tensor:
    """Return a copy that no later in-place operation changes, in float32 or wider."""
    wide = tensor.dtype if tensor.is_floating_point() and tensor.element_size() >= 4 else torch.float32
    return tensor.detach().to(wide, copy=True)


def as_rows(tensor: Tensor, *, channels_last: bool) -> Tensor:
    """Return a new (N, D) copy, averaged over space or tokens, in float32 or wider."""
    tensor = own_copy(tensor)
    if tensor.ndim == 1:
        return tensor[:, None]
    if tensor.ndim == 2:
        return tensor
    return tensor.flatten(1, -2).mean(1) if channels_last else tensor.flatten(2).mean(2)


def is_one_dimensional(module: nn.Module) -> bool:
    """Whether a three-dimensional output is (N, channels, length), as for Conv1d, and not (N, tokens, D)."""
    name = getattr(module, "_ty", None) or type(module).__name__  # parts of exported programs keep their class there
    return str(name).lower().endswith("1d")


def first_tensor(output: Any) -> Tensor | None:
    """Return the first tensor in nested tuples, lists and dicts, or None."""
    if isinstance(output, Tensor):
        return output
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return next((tensor for part in parts if (tensor := first_tensor(part)) is not None), None)


def find_module(modules: dict[str, nn.Module], name: str) -> nn.Module:
    """Return the module with this name, or raise ValueError with similar names or those that a user may mean."""
    if name in modules:
        return modules[name]
    near = difflib.get_close_matches(name, modules, n=3, cutoff=0.5)
    if near:
        hint = f"similar names are {', '.join(map(repr, near))}"
    else:  # the last modules with weights of their own: what a name would most likely be about
        heavy = [(key, module) for key, module in modules.items() if any(True for _ in module.parameters(False))]
        shown = ", ".join(f"{key!r} ({type(module).__name__})" for key, module in (heavy or list(modules.items()))[-6:])
        hint = f"its last modules{' with weights' if heavy else ''} are {shown}" if shown else "it has no modules"
    raise ValueError(f"the model has no module {name!r}; {hint}; model.named_modules() lists all")
