"""Copy the part of a torch network that follows one of its modules, to train and run this part separately.

The copy contains the whole network and receives the same inputs, but the modules that finish before the split are not
run again: they return NaN tensors with the shapes recorded in the original pass. The module at the split returns its
output from that pass, and everything after the split runs as in the network, including any Python code between the
modules. If a value bypasses the split, as in a long skip connection, the logits become NaN and the split is rejected.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from qipf._common.errors import Problem, first_line
from qipf.data.batches import Batch
from qipf.runners.features import FeatureSpec
from qipf.runners.recorder import PerPass, ending_name, find_module, is_output, untouched, watching
from qipf.runners.runner import Runner, differ
from qipf.runners.torch import TorchRunner, find_values, original

LOOK = 64
"""The number of inputs used to check a split."""


@dataclass(frozen=True)
class Cut:
    """A position at which a network is split.

    Attributes:
        split: The module after which the network is split.
        past: The modules that finish before the split, without their submodules.
        ending: The name of the final softmax or sigmoid, which the copy omits; "" if there is none.
        share: The fraction of the network's multiplications that the copy performs.
    """

    split: str
    past: tuple[str, ...]
    ending: str
    share: float

    def __str__(self) -> str:
        return f"{self.split}@copy"


@dataclass(frozen=True, eq=False)
class Copied:
    """The logits of a trained copy of the last part of a network, as a layer that a scorer reads."""

    cut: Cut
    weights: Mapping[str, np.ndarray]
    digest: str = ""
    """A digest that distinguishes copies of the same network."""
    network: Sequence[float] | None = None
    """The fingerprint of the network, if known."""

    def __str__(self) -> str:
        return f"{self.cut}{self.digest}"

    def spec(self, runner: Runner) -> FeatureSpec:
        """Return the specification of this layer for a runner."""
        module = splittable(runner)
        if any(name not in dict(module.named_modules()) for name in (*self.cut.past, self.cut.split)):
            raise _other_network()
        found = runner.fingerprint()
        if self.network is not None and found is not None and differ(self.network, found):
            raise _other_network()
        half = SecondHalf(module, self.cut)
        half.load(self.weights)
        return half.spec


def splittable(runner: Runner) -> nn.Module:
    """Return the torch module of a runner, or raise Problem if the module cannot be copied."""
    if not isinstance(runner, TorchRunner):
        raise Problem("model", "only a torch module can have a twin")
    module = original(runner.module)
    made = isinstance(module, torch.jit.ScriptModule | torch.fx.GraphModule)
    if made or type(module).__module__.startswith("torch.export"):
        raise Problem("model", "an exported or scripted program cannot have a twin", hint="pass the original module")
    return module


class SecondHalf(nn.Module):
    """A copy of everything that follows a module of a network, in evaluation mode until `learn(True)` is called."""

    def __init__(self, model: nn.Module, cut: Cut) -> None:
        super().__init__()
        self.spec = FeatureSpec(cut.split, "copy", self)
        self._state, self._fixed = PerPass(), True
        known = dict(model.named_modules())
        self.watched = {find_module(known, name, "split"): name for name in (*cut.past, cut.split)}
        memo: dict[int, Any] = {id(one): _Stub(one, name, self._state) for one, name in self.watched.items()}
        if cut.ending:
            memo[id(find_module(known, cut.ending, "split"))] = nn.Identity()
        for part in model.modules():  # keep only torch's own hooks, such as those of weight normalisation
            for hooks in (part._forward_pre_hooks, part._forward_hooks, part._backward_pre_hooks, part._backward_hooks):
                own = {key: hook for key, hook in hooks.items() if type(hook).__module__.startswith("torch.")}
                memo[id(hooks)] = OrderedDict(own)
        try:
            self.network = copy.deepcopy(model, memo).eval()
        except Exception as error:  # copying a module may raise any exception
            raise Problem("model", f"it cannot be copied ({first_line(error)})") from error
        self._split = cut.split

    @property
    def start(self) -> nn.Module:
        """The module after which the original network is split."""
        return next(one for one, name in self.watched.items() if name == self._split)

    def note(self, state: dict[str, list[Any]], module: nn.Module, _: Any, output: Any) -> None:
        """Record the output of a call, or only its shape if the module precedes the split."""
        name = self.watched[module]
        kept = tree_map(_value if name == self._split else _shape, output)
        state.setdefault(name, []).append(kept)

    def forward(self, state: dict[str, list[Any]], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
        """Return the logits for the inputs of the pass that recorded `state`."""
        if not torch.compiler.is_compiling():
            self._follow(state)
        self._state.set({name: list(calls) for name, calls in state.items()})
        try:
            values = find_values(self.network(*args, **kwargs))
            return values.reshape(values.shape[0], -1)
        finally:
            self._state.set(None)

    def train(self, mode: bool = True) -> SecondHalf:
        """Set the mode if the copy is trainable; otherwise, keep evaluation mode."""
        return super().train(mode and not self._fixed)

    def learn(self, learning: bool) -> None:
        """Make all weights trainable, or freeze them."""
        self._fixed = not learning
        for parameter in self.network.parameters():
            if parameter.is_floating_point():
                parameter.requires_grad_(learning)
        self.train(learning)

    def weights(self) -> dict[str, np.ndarray]:
        """Return the parameters and buffers by name, with half precision cast to single precision."""
        found = {name: one.detach().cpu() for name, one in self._tensors().items()}
        return {name: (one.float() if one.dtype in _HALF else one).numpy().copy() for name, one in found.items()}

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Load all parameters and buffers; raise Problem unless their names and shapes match."""
        own = self._tensors()
        if {name: tuple(one.shape) for name, one in own.items()} != {n: w.shape for n, w in weights.items()}:
            raise _other_network()
        with torch.no_grad():
            for name, values in weights.items():
                own[name].copy_(torch.from_numpy(np.array(values)))
        self.learn(False)

    def _tensors(self) -> dict[str, Tensor]:
        """Return the parameters and all buffers, including those that a state dict omits."""
        of = self.network
        return {
            **dict(of.named_parameters(remove_duplicate=False)), **dict(of.named_buffers(remove_duplicate=False))
        }  # fmt: skip

    def _follow(self, state: Mapping[str, list[Any]]) -> None:
        """Move the copy to the device of the network, if the network has been moved."""
        found = next((one for one in tree_leaves(state[self._split]) if isinstance(one, Tensor)), None)
        home = next((one for one in self.network.parameters()), None)
        if found is not None and home is not None and home.device != found.device:
            self.to(found.device)


def _other_network() -> Problem:
    return Problem("model", "it is not the network that the twin was fitted to", hint="pass that network")


_HALF = (torch.float16, torch.bfloat16)


class _Stub(nn.Module):
    """A stand-in for a module that is not run again; the attributes of the module remain accessible."""

    def __init__(self, module: nn.Module, name: str, state: PerPass) -> None:
        super().__init__()
        self._module, self._called, self._state = [module], name, state  # a list prevents registration as a submodule

    def forward(self, *_: Any, **__: Any) -> Any:
        return tree_map(_value, self._state.get()[self._called].pop(0))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_module"][0], name)


def _shape(value: Any) -> Any:
    """Replace a floating-point tensor by a NaN tensor that needs almost no memory; return other values unchanged."""
    floating = isinstance(value, Tensor) and value.is_floating_point()
    return value.new_full((), torch.nan).expand(value.shape) if floating else value


def _value(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def split_network(runner: Runner, batch: Batch, split: str | None = None, depth: float = 0.5) -> tuple[Cut, SecondHalf]:
    """Split a network; return the cut and a copy of the part after it, which reproduces the logits of `batch`.

    Split after the module `split`; if it is None, a module is chosen after which about the fraction `depth` of the
    multiplications remains.
    """
    module = splittable(runner)
    batch = batch.first(LOOK)
    calls, ending = _trace(module, batch)
    names = {one: name for name, one in module.named_modules()}
    if split is not None:
        split = names[find_module(dict(module.named_modules()), split, "split")]
        return _checked(runner, module, batch, _cut(calls, split, ending))
    once = [call for call in calls if sum(other.name == call.name for other in calls) == 1 and call.holds]
    total, behind, found = sum(call.work for call in calls) or 1.0, 0.0, []
    for call in reversed(calls):
        if call in once and 0 < behind < total:
            found.append((round(abs(behind / total - depth), 3), call.name.count("."), call.name))
        behind += call.work
    why = "no module runs exactly once between two layers"
    for _, _, name in sorted(found):
        try:
            return _checked(runner, module, batch, _cut(calls, name, ending))
        except Problem as error:
            if error.argument != "split":
                raise
            why = error.found
    raise Problem("split", f"this network cannot be split ({why})")


class _Ran(NamedTuple):
    """A call to a module during a pass."""

    name: str
    end: int
    """The number of calls that completed before this call."""
    work: float
    """The number of multiplications in the module, excluding its submodules."""
    holds: bool
    """True if the call returned a single floating-point tensor with at least two dimensions."""


def _trace(module: nn.Module, batch: Batch) -> tuple[list[_Ran], str]:
    """Return all module calls in a pass, and the name of the final softmax or sigmoid, if any."""
    names = {one: name for name, one in module.named_modules() if name}
    calls: list[_Ran] = []
    last: list[Any] = ["", None]

    def note(one: nn.Module, _: Any, output: Any) -> None:
        tensors = [part for part in tree_leaves(output) if isinstance(part, Tensor)]
        holds = len(tensors) == 1 and tensors[0].ndim > 1 and tensors[0].is_floating_point()
        calls.append(_Ran(names[one], len(calls), _work(one, output), holds))
        if ending_name(one):
            last[:] = names[one], output

    with untouched(module, eager=True), watching(names, note):
        values = find_values(module(*batch.args, **batch.kwargs))
        ends = isinstance(last[1], Tensor) and is_output(last[1], values)
    return calls, last[0] if ends else ""


def _work(module: nn.Module, output: Any) -> float:
    """Return the number of multiplications in a layer: one per output value and contributing weight."""
    weights = [one for one in module.parameters(recurse=False) if one.ndim > 1]
    found = next((one for one in tree_leaves(output) if isinstance(one, Tensor)), None)
    if not weights or found is None or isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return 0.0
    channels = weights[0].shape[0] if found.ndim != 3 or isinstance(module, nn.Linear) else found.shape[-1]
    return found.numel() / max(1, channels) * sum(one.numel() for one in weights)


def _cut(calls: list[_Ran], split: str, ending: str) -> Cut:
    mine = [call for call in calls if call.name == split]
    if len(mine) != 1 or not mine[0].holds:
        found = f"{split!r}, which "
        found += f"runs {len(mine)} times" if len(mine) != 1 else "does not return such a tensor"
        expected = "a module that runs once and returns one floating-point tensor with at least two dimensions"
        raise Problem("split", found, expected=expected)
    last = {call.name: call.end for call in calls}
    done = {name for name, end in last.items() if end < mine[0].end and not name.startswith(f"{split}.")}
    past = sorted(name for name in done if not any(name.startswith(f"{other}.") for other in done))
    total, behind = (sum(call.work for call in calls if call.end > least) for least in (-1, mine[0].end))
    return Cut(split, tuple(past), ending, behind / (total or 1.0))


def _checked(runner: Runner, module: nn.Module, batch: Batch, cut: Cut) -> tuple[Cut, SecondHalf]:
    """Return a cut and its copy; raise Problem unless the copy runs alone, is trainable and reproduces the logits."""
    half, learning, reads = SecondHalf(module, cut), SecondHalf(module, cut), _Reads(module)
    learning.learn(True)
    state: dict[str, list[Any]] = {}
    try:
        with runner.reading({}, show=False) as run:
            logits = run(batch).logits.double()
        with untouched(module, eager=True), watching(half.watched, partial(half.note, state)):
            module(*batch.args, **batch.kwargs)
            with reads:
                copied = half(state, batch.args, batch.kwargs).reshape(logits.shape)
            learning(state, batch.args, batch.kwargs).reshape(logits.shape)  # may return something else in this mode
    except (RuntimeError, TypeError, LookupError, AttributeError, ValueError) as error:
        raise Problem("split", f"the part after {cut.split!r} does not run by itself ({first_line(error)})") from error
    if bool(logits.isnan().any()):
        raise Problem("data", "the network returns NaN for some inputs", hint="remove these inputs")
    tolerance = 2e-2 if copied.dtype in _HALF else 1e-4
    if bool(copied.isnan().any()):
        raise Problem("split", f"a connection bypasses {cut.split!r}", hint="name another module")
    if not float((copied.double() - logits).abs().max()) <= tolerance * max(1.0, float(logits.abs().max())):
        raise Problem(
            "split", f"the part after {cut.split!r} does not reproduce the logits", hint="name another module"
        )
    if not cut.share:
        raise Problem("split", f"nothing after {cut.split!r} can be trained", hint="name an earlier module")
    if reads.found:
        raise Problem(
            "split", f"the part after {cut.split!r} uses weights of the original network, for example through a closure"
        )
    return cut, half


class _Reads(TorchDispatchMode):
    """Detect operations that read parameters of a module; a copy of the module must not perform any such operation."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._own, self.found = {_memory(one) for one in module.parameters()} - {0}, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found |= any(isinstance(one, Tensor) and _memory(one) in self._own for one in tree_leaves((args, kwargs)))
        return func(*args, **(kwargs or {}))


def _memory(values: Tensor) -> int:
    """Return the memory address of a dense floating-point tensor; 0 for other tensors."""
    strided = values.is_floating_point() and values.layout == torch.strided
    return values.untyped_storage().data_ptr() if strided else 0
