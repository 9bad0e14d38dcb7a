"""Forward hooks that take what a scorer reads during a forward pass."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch import Tensor, nn

from qipf.models.features import as_rows, find_module, first_tensor, is_one_dimensional, own_copy
from qipf.models.readings import Reading
from qipf.models.state import named_modules
from qipf.scores.base import Scorer


class FeatureTap:
    """Takes what goes into one module, or comes out of it, during a forward pass, and keeps nothing afterwards.

    The hook exists from the start, so compiling and exporting trace it like the code of the module. It refers to the
    slot and not to the tap, so it is removed when the tap is deleted.
    """

    def __init__(self, module: nn.Module, name: str, *, before: bool, reading: Reading | None = None) -> None:
        self.name = name
        self.slot = _Slot(before, before or not is_one_dimensional(module), reading)
        if before:
            self._handle = module.register_forward_pre_hook(self.slot.on_input)
        else:
            self._handle = module.register_forward_hook(self.slot.on_output)
        self._remove_hook_with_this()

    def __setstate__(self, state: dict[str, Any]) -> None:  # a copy has its own hook, in the copied module
        self.__dict__.update(state)
        self._remove_hook_with_this()

    def _remove_hook_with_this(self) -> None:
        weakref.finalize(self, self._handle.remove).atexit = False

    def open(self) -> None:
        """Get ready for one forward pass."""
        self.slot.cells()[0].open()

    def take(self) -> Tensor:
        """What the forward pass left, as rows (N, D).

        Raises:
            RuntimeError: the module did not run.
        """
        for cell in self.slot.cells():
            if cell.wanted:
                value = cell.value
                cell.close()
                if value is not None:
                    return value
        raise RuntimeError(
            f"the layer {self.name!r}, which the scorer reads, did not run in this forward pass, or is inside a part "
            "that was compiled before; compile the wrapped module instead"
        )


class _Cell:
    """What one forward pass leaves behind."""

    wanted: bool = False
    value: Tensor | None = None

    def open(self) -> None:
        self.wanted, self.value = True, None

    def close(self) -> None:
        self.wanted, self.value = False, None


class _ThreadCell(_Cell, threading.local):
    """One cell per thread: requests that are served at the same time must not see each other's features."""


class _Slot:
    """Where a hook leaves what it has seen."""

    def __init__(self, before: bool, channels_last: bool, reading: Reading | None = None) -> None:
        self.before = before
        self.channels_last = channels_last
        self.reading = reading if reading is not None and reading.form else None
        self._of_thread = _ThreadCell()
        self._of_graph = _Cell()

    def __reduce__(self) -> tuple[Any, ...]:  # copies and files only need the settings
        return _Slot, (self.before, self.channels_last, self.reading)

    def cells(self) -> tuple[_Cell, ...]:
        """The cells of this thread and of a traced graph, which has no threads.

        Where a compiled graph breaks, plain Python continues with what the graph has left.
        """
        return (self._of_graph,) if torch.compiler.is_dynamo_compiling() else (self._of_thread, self._of_graph)

    def on_input(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._keep(args[0] if args else None)

    def on_output(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._keep(first_tensor(output))

    def _keep(self, value: Tensor | None) -> None:
        for cell in self.cells():
            if cell.wanted:
                cell.value = None if value is None else self._rows(value)
                return

    def _rows(self, value: Tensor) -> Tensor:
        """A copy, made now, because an in-place operation such as ReLU(inplace=True) may follow."""
        if self.reading is not None:
            return own_copy(self.reading.rows(value))
        if value.ndim == 2:
            return value.float() if value.element_size() < 4 else value.clone()
        return as_rows(value, channels_last=self.before or (value.ndim == 3 and self.channels_last))


def feature_tap(model: nn.Module, scorer: Scorer, features: str | None) -> FeatureTap:
    """A tap on the named module, or on the input of the only linear layer that fits what the scorer was fitted to."""
    if features is not None:
        reading = Reading.parse(features)
        return FeatureTap(submodule(model, reading.module), features, before=reading.before, reading=reading)
    facts = scorer._require_fitted().facts
    width, columns = facts.get("width"), facts.get("columns")
    names = {module: name for name, module in {"": model, **named_modules(model)}.items()}  # shared layers once
    heads = {
        name: module
        for module, name in names.items()
        if isinstance(module, nn.Linear)
        and width in (None, module.in_features)
        and columns in (None, module.out_features)
    }
    if len(heads) != 1:
        found = f"{len(heads)} linear layers ({', '.join(heads)})" if heads else "no linear layer"
        raise ValueError(
            f"features: {scorer.name} reads the input of the layer that makes the logits, but {found} of this model "
            f"maps {width or 'any number of'} features to {columns or 'any number of'} logits; name the module whose "
            "output is the features, here and in qipf.collect"
        )
    ((name, head),) = heads.items()
    return FeatureTap(head, name or "the model itself", before=True)


def submodule(model: nn.Module, name: str) -> nn.Module:
    """The module of this name; an error suggests similar names."""
    return find_module(named_modules(model), name)
