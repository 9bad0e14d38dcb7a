"""A model and a scorer as one torch module: inputs -> (output, uncertainty)."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from qipf.deploy.buffers import PreciseBuffers
from qipf.deploy.judge import Guarded, Judge
from qipf.models.features import as_rows, find_module, first_tensor, is_one_dimensional, own_copy
from qipf.models.logits import find_logits
from qipf.models.outputs import Outputs
from qipf.models.readings import Reading
from qipf.models.state import named_modules, original
from qipf.scores.base import Fitted, Scorer


def wrap(model: nn.Module, scorer: Scorer, *, features: str | None = None) -> Wrapped:
    """A module that returns the model's own output and the uncertainty of every prediction.

    Where the scorer has a probability of error or a decision, it returns a named tuple of the output, the uncertainty,
    the probability of error and whether each prediction is accepted.

    It can be moved (`.to()`), saved (`state_dict`), compiled (`torch.compile`) and exported (`torch.export`). The
    model is used as it is, in whatever mode it is in; call `.eval()` for predictions. Threads may share it.

    Where the scorer reads more than the logits, the model's layers carry forward hooks for as long as the wrapped
    module lives. They do nothing when the model is called by itself, and go when the wrapped module goes.

    Args:
        model: a trained module. Of a compiled or a parallel one (`torch.compile`, `DataParallel`), the module inside
            is used, as `qipf.collect` does; compile the wrapped module instead.
        scorer: a fitted scorer. A later `fit` of it does not change the wrapped module.
        features: the module whose output the scorer reads as features, for a scorer that reads them; by default the
            input of the last linear layer. Give what was given to `qipf.collect`.

    Raises:
        RuntimeError: the scorer is not fitted.
        ValueError: there is no such layer.
    """
    return Wrapped(model, scorer, features=features)


class Wrapped(nn.Module):
    """What `wrap` returns."""

    def __init__(self, model: nn.Module, scorer: Scorer, *, features: str | None = None) -> None:
        super().__init__()
        self.model = model = original(model)
        self.scorer = ScorerModule(scorer)
        self.judge = Judge(scorer)
        self._taps: dict[str, _Tap] = {}
        if scorer.reads_features:
            self._taps["features"] = _feature_tap(model, scorer, features)
        for name in scorer.layers:
            reading = Reading.parse(name)
            self._taps[name] = _Tap(_submodule(model, reading.module), name, before=False, reading=reading)
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, Tensor] | Guarded:
        """Whatever the model takes; its output as it is, and the uncertainty (N,), or all that `Guarded` has."""
        output, outputs = self.observe(*args, **kwargs)
        uncertainty = self.scorer(outputs)
        return Guarded(output, uncertainty, *self.judge(uncertainty)) if self.judge else (output, uncertainty)

    def observe(self, *args: Any, **kwargs: Any) -> tuple[Any, Outputs]:
        """The model's output as it is, and what the scorer reads of it."""
        for tap in self._taps.values():
            tap.open()
        output = self.model(*args, **kwargs)
        taken = {name: tap.take() for name, tap in self._taps.items()}
        features = taken.pop("features", None)
        return output, Outputs(logits=find_logits(output, None, 0), features=features, layers=taken)


class ScorerModule(PreciseBuffers):
    """A fitted scorer whose tensors are buffers, and whose settings travel in the state dict."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        fitted = scorer._require_fitted()
        self._kind = type(scorer)
        for key, value in fitted.tensors.items():
            self.register_buffer(key, torch.from_numpy(np.array(value, order="C")))
        self._rebuild(scorer.settings(), fitted.facts)

    def _rebuild(self, settings: dict[str, Any], facts: Mapping[str, Any]) -> None:
        tensors = {key: buffer.detach().cpu().numpy() for key, buffer in self.named_buffers()}
        self.scorer = self._kind(**settings)
        self.scorer._use(Fitted(tensors, dict(facts)))
        self._place()

    def forward(self, outputs: Outputs) -> Tensor:
        """The uncertainty (N,); NaN where a logit is NaN or infinite, since a graph cannot raise."""
        finite, known = self._prepared(outputs)
        uncertainty = self.scorer.graph_score(known, dict(self.named_buffers()))
        return torch.where(finite, uncertainty, torch.nan)

    def modes(self, outputs: Outputs) -> Tensor:
        """The modes (N, K), for a scorer that has them; NaN as in `forward`."""
        from qipf.scores.weight_field import WeightQIPF

        if not isinstance(self.scorer, WeightQIPF):
            raise TypeError(f"{self.scorer.name} has no modes")
        finite, known = self._prepared(outputs)
        modes = self.scorer.modes_of(known.logits, dict(self.named_buffers())).to(known.logits.dtype)
        return torch.where(finite[:, None], modes, torch.nan)

    def _prepared(self, outputs: Outputs) -> tuple[Tensor, Outputs]:
        """Which rows are finite, and the outputs with zeros in the others."""
        if torch.compiler.is_exporting() and self.scorer.export_problem:
            raise ValueError(f"{self.scorer.name} cannot be exported: {self.scorer.export_problem}")
        finite = torch.isfinite(outputs.logits).all(dim=1)
        logits = torch.where(finite[:, None], outputs.logits, 0.0)
        return finite, Outputs(logits=logits, features=outputs.features, layers=outputs.layers)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._place()
        return self

    def _place(self) -> None:
        """Have everything on this device before a graph is traced, which would take in what it makes as unknown."""
        for buffer in self.buffers():
            if buffer.device.type not in ("meta", "mps"):  # no values, and no double precision
                self.scorer.prepare(torch.zeros(1, dtype=torch.float64, device=buffer.device))
            return

    def get_extra_state(self) -> Tensor:
        """The settings and the fitted facts, as a tensor of bytes that any state-dict format can hold."""
        settings, facts = self.scorer.settings(), dict(self.scorer._require_fitted().facts)
        plain = {key: value for key, value in settings.items() if not callable(value)}
        text = json.dumps({"scorer": self._kind.name, "settings": plain, "facts": facts}, sort_keys=True)
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Take over settings and facts; the tensors have been loaded before."""
        told = json.loads(bytes(state.cpu().numpy()).decode())
        if told["scorer"] != self._kind.name:
            raise ValueError(f"the state dict is of a scorer {told['scorer']!r}, this module holds {self._kind.name!r}")
        self._rebuild({**self.scorer.settings(), **told["settings"]}, told["facts"])


class _Tap:
    """Takes what goes into, or comes out of, one module during a forward pass, and keeps nothing afterwards.

    A hook that is there from the start: compiling and exporting trace it like the module's own code. The hook knows
    the slot and not the tap, so that it goes when the tap goes.
    """

    def __init__(self, module: nn.Module, name: str, *, before: bool, reading: Reading | None = None) -> None:
        self.name = name
        self.slot = _Slot(before, before or not is_one_dimensional(module), reading)
        if before:
            self._handle = module.register_forward_pre_hook(self.slot.on_input)
        else:
            self._handle = module.register_forward_hook(self.slot.on_output)
        self._remove_hook_with_this()

    def __setstate__(self, state: dict[str, Any]) -> None:  # a copy has a hook of its own, in the copied module
        self.__dict__.update(state)
        self._remove_hook_with_this()

    def _remove_hook_with_this(self) -> None:
        weakref.finalize(self, self._handle.remove).atexit = False

    def open(self) -> None:
        self.slot.cells()[0].open()

    def take(self) -> Tensor:
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
    """What one forward pass leaves."""

    wanted: bool = False
    value: Tensor | None = None

    def open(self) -> None:
        self.wanted, self.value = True, None

    def close(self) -> None:
        self.wanted, self.value = False, None


class _ThreadCell(_Cell, threading.local):
    """One for every thread: requests that are served at once must not see each other's features."""


class _Slot:
    """Where a hook leaves what it saw."""

    def __init__(self, before: bool, channels_last: bool, reading: Reading | None = None) -> None:
        self.before = before
        self.channels_last = channels_last
        self.reading = reading if reading is not None and reading.form else None
        self._of_thread = _ThreadCell()
        self._of_graph = _Cell()

    def __reduce__(self) -> tuple[Any, ...]:  # copies and files need the settings only
        return _Slot, (self.before, self.channels_last, self.reading)

    def cells(self) -> tuple[_Cell, ...]:
        """A graph that is traced has no threads; around its breaks, plain Python goes on with what it left."""
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
        """A copy, made now: an in-place operation may follow, such as ReLU(inplace=True)."""
        if self.reading is not None:
            return own_copy(self.reading.rows(value))
        if value.ndim == 2:
            return value.float() if value.element_size() < 4 else value.clone()
        return as_rows(value, channels_last=self.before or (value.ndim == 3 and self.channels_last))


def _feature_tap(model: nn.Module, scorer: Scorer, features: str | None) -> _Tap:
    if features is not None:
        return _Tap(_submodule(model, features), features, before=False)
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
            f"features: {scorer.name} reads the input of the layer that makes the logits, and {found} of this model "
            f"maps {width or 'any number of'} features to {columns or 'any number of'} logits; name the module whose "
            "output are the features, here and in qipf.collect"
        )
    ((name, head),) = heads.items()
    return _Tap(head, name or "the model itself", before=True)


def _submodule(model: nn.Module, name: str) -> nn.Module:
    return find_module(named_modules(model), name)
