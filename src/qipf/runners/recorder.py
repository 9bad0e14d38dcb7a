"""Record inputs and outputs of the modules of a torch model, without changing the model.

Several threads may read the same model concurrently: each hook records values separately for each thread. If calls
overlap, the first to start saves modes, buffers and random states, and the last to finish restores them.
"""

from __future__ import annotations

import difflib
import random
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qipf._common.errors import Problem
from qipf.runners.features import FeatureSpec

ENDINGS = ("Sigmoid", "Softmax", "LogSoftmax", "Softmax2d")
"""Torch modules that convert logits to probabilities at the end of a model."""
CANDIDATES = 8
"""The maximum number of calls kept to find the one that computed the logits."""


class PerPass:
    """A value per pass: one per thread, and one for a traced graph; values are neither copied nor pickled."""

    def __init__(self) -> None:
        self._of_thread, self._of_graph = threading.local(), None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def set(self, value: Any) -> None:
        """Set the value of this thread or of the graph being traced."""
        if torch.compiler.is_dynamo_compiling():
            self._of_graph = value
        else:
            self._of_thread.value = value

    def get(self) -> Any:
        """Return the value of the graph being traced or of this thread; if the thread has none, that of the graph."""
        if torch.compiler.is_dynamo_compiling():
            return self._of_graph
        value = getattr(self._of_thread, "value", None)
        return self._of_graph if value is None else value


class _Hook:
    """A hook that stores the input or output of a module under `key` while values are recorded."""

    def __init__(self, seen: PerPass, key: str, spec: FeatureSpec, signal: bool = False) -> None:
        self.seen, self.key, self.spec, self.signal = seen, key, spec, signal

    def on_input(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.on_output(module, args, args)

    def on_output(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        values = self.seen.get()
        if values is not None:
            self.keep(values, module, args, output)

    def keep(self, values: dict[str, Any], module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        value = first_tensor(output)
        if value is None or value.ndim == 0:
            raise Problem(
                "features", f"{str(self.spec)!r}: expected a tensor with rows, got {type(output).__name__}",
                hint="name another module",
            )  # fmt: skip
        values[self.key] = self.rows(value)

    def rows(self, value: Tensor) -> Tensor:
        """Return rows as a copy, because an in-place operation such as ReLU(inplace=True) may follow."""
        channels_last = self.spec.before or (value.ndim == 3 and not self.signal)
        rows = self.spec.rows(value, channels_last=channels_last)
        return rows.clone() if self.spec.form == "whole" or rows.dtype == value.dtype else rows


class _Call(NamedTuple):
    module: nn.Module
    entered: Tensor
    output: Tensor | None


class _HeadHook(_Hook):
    """Keep the inputs of layers that may compute the logits; after the first pass, only that of the layer that did."""

    only: nn.Module | None = None

    def keep(self, values: dict[str, Any], module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not args or (self.only is not None and module is not self.only):
            return
        calls = values.setdefault(self.key, deque(maxlen=CANDIDATES))
        if self.spec.form != "whole":
            calls.append(_Call(module, self.rows(args[0]), output))
        else:  # per-position features are not copied, and only the last call of each layer type is kept
            kept = [call for call in calls if isinstance(call.module, nn.Conv2d) != isinstance(module, nn.Conv2d)]
            calls.clear()
            calls.extend([*kept, _Call(module, args[0].detach(), None)])


class _CopyHook(_Hook):
    """Keep the values that a copy of the last part of the model needs from a pass."""

    def keep(self, values: dict[str, Any], module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.spec.copy.note(values.setdefault(self.key, {}), module, args, output)


class _EndHook(_Hook):
    """Keep the last call of a softmax or sigmoid, which may end the model."""

    def keep(self, values: dict[str, Any], module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
            values[self.key] = _Call(module, args[0], output)


class Recorder:
    """Record features with hooks on the modules of a model.

    Args:
        module: The model.
        read: The features by key.
        head: The layer that computes the logits; None to find it in the first pass.
        endings: Also record softmax and sigmoid modules, for `ending`.

    Attributes:
        active: True if there are hooks.
    """

    def __init__(
        self, module: nn.Module, read: Mapping[str, FeatureSpec], *, head: nn.Module | None = None,
        endings: bool = False,
    ) -> None:  # fmt: skip
        known, every = named_modules(module), list(module.modules())
        self.hooks: dict[str, _Hook] = {}
        self._seen = PerPass()
        self._targets: list[tuple[nn.Module, _Hook]] = []
        for key, spec in read.items():
            if spec.copy is not None:
                self._add(_CopyHook(self._seen, key, spec), spec.copy.watched)
            elif spec.source or head is not None:
                target = find_module(known, spec.source) if head is None or spec.source else head
                self._add(_Hook(self._seen, key, spec, is_signal(target)), [target])
            else:
                kinds = (nn.Linear, nn.Conv2d) if spec.form == "whole" else (nn.Linear,)
                self._add(_HeadHook(self._seen, key, spec), [one for one in every if isinstance(one, kinds)])
        end = _EndHook(self._seen, "", FeatureSpec(""))
        self._targets += [(one, end) for one in every if endings and ending_name(one)]
        self._handles: list[Any] = []
        self.active = bool(self._targets)

    def _add(self, hook: _Hook, modules: Iterable[nn.Module]) -> None:
        self.hooks[hook.key] = hook
        self._targets += [(module, hook) for module in modules]

    def __setstate__(self, state: dict[str, Any]) -> None:  # a copy has its own hooks, in the copied module
        self.__dict__.update(state)
        self._remove_hooks_with_this()

    def attach(self) -> None:
        """Add the hooks; deleting the recorder removes them."""
        check_hooks(module for module, _ in self._targets)
        for module, hook in self._targets:
            if hook.spec.before and type(hook) is _Hook:
                self._handles.append(module.register_forward_pre_hook(hook.on_input))
            else:
                self._handles.append(module.register_forward_hook(hook.on_output))
        self._targets = []  # keep no references to modules, which may be copied
        self._remove_hooks_with_this()

    def _remove_hooks_with_this(self) -> None:
        weakref.finalize(self, _remove, list(self._handles)).atexit = False

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Return a context manager that adds the hooks on entry and removes them on exit."""
        self.attach()
        try:
            yield
        finally:
            _remove(self._handles)

    def open(self) -> None:
        """Prepare for one forward pass in this thread."""
        self._seen.set({})

    def close(self) -> dict[str, Any]:
        """Return the values recorded in this thread, and stop recording."""
        values = self._seen.get()
        self._seen.set(None)
        return values

    def ending(self) -> _Call | None:
        """Return the last call of a softmax or sigmoid in this pass, if any."""
        return self._seen.get().get("")

    def before_ending(self, values: Tensor) -> Tensor:
        """Return the input of the last softmax or sigmoid if its output is `values`; otherwise return `values`."""
        last = self.ending()
        return values if last is None or last.output is not values else last.entered

    def taken(self) -> dict[str, Tensor]:
        """Return the features by key, without the checks of `take`, which cannot be traced."""
        values = self.close()
        for key, hook in self.hooks.items():
            if key not in values:
                raise RuntimeError(
                    f"{f'the layer {str(hook.spec)!r}' if str(hook.spec) else 'the last linear layer'} did not run in "
                    "this forward pass, or was compiled earlier; compile the wrapped module instead"
                )
        return {key: values[key] for key in self.hooks}

    def take(self, logits: Tensor) -> dict[str, Tensor]:
        """Return the features by key; omit the input of the layer that computes the logits if it was not found."""
        values, found = self.close(), {}
        for key, hook in self.hooks.items():
            value = values.get(key)
            if isinstance(hook, _HeadHook):
                value = _made(hook, list(value or ()), logits)
            elif value is None:
                raise Problem(
                    "features", f"module {hook.spec.source!r} was not called in the forward pass, or is inside a "
                    "scripted, exported or compiled part", hint="name another module",
                )  # fmt: skip
            if isinstance(value, Tensor) and value.shape[0] != logits.shape[0]:
                raise Problem(
                    "features", "the number of rows returned by "
                    f"{repr(hook.spec.source) if hook.spec.source else 'the last layer'} is {value.shape[0]}, but the "
                    f"batch size is {logits.shape[0]}",
                    hint="name another module, or read no features",
                )  # fmt: skip
            if value is not None:
                found[key] = value
        return found


def _made(hook: _HeadHook, calls: list[_Call], logits: Tensor) -> Tensor | None:
    """Return the input of the call that computed the logits, or of the last call if no output matches the logits."""
    if hook.spec.form == "whole":
        kind = nn.Conv2d if logits.ndim == 4 else nn.Linear
        call = next((call for call in calls if isinstance(call.module, kind)), None)
    else:
        call = next((call for call in reversed(calls) if is_output(call.output, logits)), calls[-1] if calls else None)
    if call is None:
        return None
    hook.only = call.module
    return call.entered


def is_output(output: Tensor | None, values: Tensor) -> bool:
    """Return True if `values` are the output of a call."""
    if output is None or output.numel() != values.numel():
        return False
    return output.data_ptr() == values.data_ptr() or torch.equal(output.reshape(values.shape).to(values), values)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def check_hooks(modules: Iterable[nn.Module]) -> None:
    """Raise Problem if a module ignores hooks, as TorchScript modules do."""
    if any(isinstance(module, torch.jit.ScriptModule) for module in modules):
        raise Problem("model", "the layers of a TorchScript module cannot be read", hint="pass the original module")


@contextmanager
def watching(modules: Iterable[nn.Module], note: Callable[[nn.Module, Any, Any], None]) -> Iterator[None]:
    """Call `note(module, inputs, output)` after each call of these modules in this thread."""
    thread = threading.get_ident()

    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        if threading.get_ident() == thread:
            note(module, inputs, output)

    check_hooks(modules := list(dict.fromkeys(modules)))
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        _remove(handles)


class _Held(NamedTuple):
    """The mode and the buffers of a submodule before a pass."""

    module: nn.Module
    training: bool
    buffers: list[tuple[str, Tensor, Tensor, int]]

    @classmethod
    def of(cls, module: nn.Module) -> _Held:
        known = [(name, one) for name, one in module._buffers.items() if one is not None and not one.is_inference()]
        return cls(module, module.training, [(name, one, one.detach().clone(), one._version) for name, one in known])

    def restore(self) -> None:
        self.module.training = self.training
        for name, buffer, value, version in self.buffers:
            # Batch norm does not increase the version of its buffers, so compare values; copying equal values would
            # invalidate autograd graphs.
            if buffer._version != version or not torch.equal(buffer, value):
                with torch.no_grad():
                    buffer.copy_(value)
            scripted = isinstance(self.module, torch.jit.ScriptModule)  # its buffers cannot be replaced
            if not scripted and self.module._buffers.get(name) is not buffer:
                self.module._buffers[name] = buffer


class _Holds:
    """The saved state of all models in use, with reference counts."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.modules: dict[int, tuple[_Held, list[int]]] = {}
        self.states: Any = None
        self.calls = self.eager_calls = self.seeded = 0
        self.eager = ExitStack()

    def enter(self, modules: list[nn.Module], eager: bool) -> None:
        with self.lock:
            fresh = {id(one): (_Held.of(one), [0]) for one in modules if id(one) not in self.modules}
            if self.calls == 0 and not self.seeded:
                self.states = _random_states()
            self.calls += 1
            self.modules |= fresh
            for module in modules:
                self.modules[id(module)][1][0] += 1
                module.training = False  # not .eval(): it may be overridden, with effects that cannot be undone
            if eager and self.eager_calls == 0:
                if "torch._dynamo" in sys.modules:  # otherwise, nothing was compiled
                    self.eager.enter_context(torch.compiler.set_stance("force_eager"))
                # the fast path of attention passes nested tensors, which have no shape, to hooks
                self.eager.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
                torch.backends.mha.set_fastpath_enabled(False)
            self.eager_calls += eager

    def leave(self, modules: list[nn.Module], eager: bool) -> None:
        with self.lock:
            unused: list[_Held] = []
            for module in modules:
                held, count = self.modules[id(module)]
                count[0] -= 1
                if count[0] == 0:
                    del self.modules[id(module)]
                    unused.append(held)
            self.eager_calls -= eager
            if self.eager_calls == 0:
                self.eager.close()
            self.calls -= 1
            if self.calls == 0:
                self.restore()
            for held in unused:
                held.restore()

    def restore(self) -> None:
        """Restore the random states if they were saved."""
        if self.states is not None:
            ours, numpy_state, python_state, cuda = self.states
            torch.set_rng_state(ours)
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)
            if cuda is not None:
                torch.cuda.set_rng_state_all(cuda)
        self.states = None


_HOLDS = _Holds()
_SEEDING = threading.RLock()


@contextmanager
def untouched(model: nn.Module | None, *, eager: bool) -> Iterator[None]:
    """Run the block with a model, if any, in evaluation mode without gradients; then restore it and all random states.

    Several threads may share modules. If `eager` is true, compiled parts run uncompiled, so that hooks fire.
    """
    modules = [] if model is None else list(model.modules())
    _HOLDS.enter(modules, eager)
    try:
        # Not inference_mode, because tensors that the model caches may be used in training later.
        with nullcontext() if model is None else torch.no_grad():
            yield
    finally:
        _HOLDS.leave(modules, eager)


@contextmanager
def seeding() -> Iterator[None]:
    """Let one thread at a time seed and restore the global random generators."""
    with _SEEDING:
        with _HOLDS.lock:
            _HOLDS.restore()
            _HOLDS.seeded += 1
        try:
            yield
        finally:
            with _HOLDS.lock:
                _HOLDS.seeded -= 1
                if _HOLDS.calls and not _HOLDS.seeded:
                    _HOLDS.states = _random_states()


def _random_states() -> tuple[Any, ...]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return torch.get_rng_state(), np.random.get_state(), random.getstate(), cuda  # noqa: NPY002 - the user's, not ours


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return all submodules, including those inside compiled parts, under each of their names."""
    return {
        name.replace("_orig_mod.", ""): module
        for name, module in model.named_modules(remove_duplicate=False)
        if name and not name.endswith("_orig_mod")
    }


def find_module(modules: Mapping[str, nn.Module], name: str, argument: str = "features") -> nn.Module:
    """Return the module called `name`; raise Problem about `argument` if there is none."""
    if name in modules:
        return modules[name]
    near = ", ".join(map(repr, difflib.get_close_matches(name, modules, n=5, cutoff=0.0))) or "none"
    hint = f"similar names: {near}; model.named_modules() lists all names"
    raise Problem(argument, f"the model has no module {name!r}", hint=hint)


def type_name(module: nn.Module) -> str:
    """Return the name of a module's class, even in an exported program."""
    return str(getattr(module, "_ty", None) or type(module).__name__).rpartition(".")[2]


def ending_name(module: nn.Module) -> str:
    """Return the class name of a torch softmax or sigmoid; "" for other modules."""
    path = str(getattr(module, "_ty", None) or f"{type(module).__module__}.{type(module).__name__}")
    return type_name(module) if path.startswith("torch.nn.modules.") and type_name(module) in ENDINGS else ""


def is_signal(module: nn.Module) -> bool:
    """Return True if three-dimensional outputs of a module have shape (N, channels, length), as for Conv1d."""
    return type_name(module).lower().endswith("1d")


def first_tensor(output: Any) -> Tensor | None:
    """Return the first tensor in nested tuples, lists and dicts, or None."""
    if isinstance(output, Tensor):
        return output
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return next((tensor for part in parts if (tensor := first_tensor(part)) is not None), None)
