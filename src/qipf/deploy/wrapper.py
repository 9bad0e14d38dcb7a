"""Combine a model and a scorer in one torch module that returns (output, uncertainty)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from qipf._common.errors import Problem
from qipf.arrays import is_traced
from qipf.decisions.preconditions import check_scorer
from qipf.deploy.buffers import PreciseBuffers
from qipf.deploy.judge import Guarded, Improved, Judge
from qipf.runners.features import HEAD, FeatureSpec
from qipf.runners.loading import check_facts
from qipf.runners.recorder import Recorder, named_modules
from qipf.runners.torch import TorchRunner, check_logits, find_values, original
from qipf.scores.base import Fitted, Scorer
from qipf.scores.confidence import Confidence
from qipf.scores.coordinates import without_autocast
from qipf.scores.mixture import Mixture
from qipf.scores.saving import upgraded
from qipf.tasks.classes import Classes
from qipf.tasks.finding import TASKS
from qipf.tasks.outputs import Outputs
from qipf.tasks.views import View, viewed

_CLASSES = Classes()


def wrap(
    model: nn.Module, scorer: Scorer, *, features: str | None = None, posterior: bool = False, views: int | None = None
) -> Wrapped:
    """Combine a model and a scorer in a module that returns (output, uncertainty).

    If the scorer has a probability of error or a decision, or if `posterior` is true, the module returns a named tuple
    that also contains these values. The module can be moved, saved, compiled, exported and shared between threads. Call
    `.eval()` before making predictions.

    If the scorer reads more than the logits, the model has forward hooks until the wrapped module is deleted.

    Args:
        model: A trained module. Compile the wrapped module instead of the model.
        scorer: A fitted scorer. Fitting it again does not change the wrapped module.
        features: The name of the module whose output the scorer reads; by default, the features used in `fit`.
        posterior: Also return the class probabilities (N, C) of the scorer (a probe or a twin only), which are often
            better than those of the model.
        views: The number of views per image to average over, including the image itself, with one pass per view; by
            default, the scorer's setting.

    Raises:
        ValueError: The scorer does not suit the model or `views`.
    """
    if isinstance(model, Scorer) and isinstance(scorer, nn.Module):
        raise TypeError("expected qipf.wrap(model, scorer), got the scorer first; swap the two arguments")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got an object of type {type(model).__name__}")
    check_scorer(scorer)
    facts = scorer._require_fitted().facts
    if views is not None and (other := scorer.with_views(views)) is not scorer:
        if scorer.attachments:
            found = f"the {' and '.join(scorer.attachments)} of this scorer cannot be used with another number of views"
            raise Problem("views", found, hint=f"refit all attachments for scorer.with_views({views})")
        scorer = other
    task = TASKS.get(scorer.task_name)
    if task is not None and not task.independent:
        raise Problem(
            "scorer",
            f"it was fitted to several predictions per input (the task {task.name!r})",
            hint="call scorer.score instead",
        )
    check_facts({name: value for name, value in facts.items() if name in ("model", "cut")}, model)
    return Wrapped(model, scorer, features=features, posterior=posterior)


class Wrapped(nn.Module):
    """A model and a scorer, combined by `wrap`."""

    def __init__(
        self, model: nn.Module, scorer: Scorer, *, features: str | None = None, posterior: bool = False
    ) -> None:
        super().__init__()
        if posterior and not isinstance(scorer, Mixture):
            raise TypeError(f"posterior: the scorer {scorer.name} has no posterior; use qipf.default(model, data)")
        self.posterior = posterior
        self.model = model = original(model)
        self.scorer = ScorerModule(scorer)
        self.judge = Judge(scorer)
        home = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), None)
        if home is not None and home.type != "meta":
            self.scorer.to(home)
            self.judge.to(home)
        self._recorder = _recorder(model, scorer, features)
        copies = {key: hook.spec.copy for key, hook in self._recorder.hooks.items() if hook.spec.copy is not None}
        self._copied, self.twin = next(iter(copies.items()), ("", None))
        self._views = tuple(dict.fromkeys(layer.name for layer in scorer.layers if isinstance(layer, View)))
        self.training = model.training
        self._unseen = isinstance(scorer, Confidence)  # for other scorers, the logits were checked during fitting

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, Tensor] | Guarded | Improved:
        """Return the output of the model and the uncertainty (N,), or a `Guarded` or `Improved` tuple."""
        output, outputs = self.observe(*args, **kwargs)
        uncertainty, posterior = self.scored(outputs)
        if posterior is not None:
            return Improved(output, uncertainty, *self.judge(uncertainty), posterior=posterior)
        return Guarded(output, uncertainty, *self.judge(uncertainty)) if self.judge else (output, uncertainty)

    def scored(self, outputs: Outputs) -> tuple[Tensor, Tensor | None]:
        """Return the uncertainty (N,) and, if requested, the posterior (N, C)."""
        return self.scorer.improved(outputs) if self.posterior else (self.scorer(outputs), None)

    def observe(self, *args: Any, **kwargs: Any) -> tuple[Any, Outputs]:
        """Return the output of the model, and the logits, features and layers that the scorer reads."""
        output, logits, taken = self._pass(args, kwargs)
        if self._unseen and not is_traced(logits) and len(logits) > 1:
            check_logits(logits.detach())
            self._unseen = False
        for name in self._views:
            _, seen, layers = self._pass(viewed(args, name), viewed(kwargs, name))
            taken |= {f"{name}:logits": _rows(seen), **{f"{name}:{key}": values for key, values in layers.items()}}
        features = taken.pop("features", None)
        return output, _outputs(_rows(logits), features, taken)

    def _pass(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Tensor, dict[str, Tensor]]:
        """Return the output of the model, its logits, and the recorded layers, keyed by name."""
        self._recorder.open()
        output = self.model(*args, **kwargs)
        logits = self._recorder.before_ending(find_values(output))
        taken = self._recorder.taken()
        if self.twin is not None:
            taken[self._copied] = _rows(self.twin(taken[self._copied], args, kwargs))
        return output, logits, taken


class ScorerModule(PreciseBuffers):
    """A module that holds the tensors of a fitted scorer as buffers."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        fitted = scorer._require_fitted()
        self._kind = type(scorer)
        for key, value in fitted.tensors.items():
            if "." in key:  # the weights of a twin, which is a separate module
                continue
            self.register_buffer(key, torch.from_numpy(np.array(value, order="C")))
        self._rebuild(scorer.settings(), fitted.facts)

    def _rebuild(self, settings: dict[str, Any], facts: Mapping[str, Any]) -> None:
        tensors = {key: buffer.detach().cpu().numpy() for key, buffer in self.named_buffers()}
        self.scorer = self._kind(**settings)
        self.scorer._use(Fitted(tensors, dict(facts)))

    def forward(self, outputs: Outputs) -> Tensor:
        """Return the uncertainty (N,), which is NaN for rows with non-finite logits."""
        mark, known = self._prepared(outputs)
        scores = self.scorer.graph_score(known, self._buffers)
        return scores if mark is None else scores + mark

    def improved(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Return the uncertainty (N,) and the posterior (N, C), with NaN as in `forward`."""
        if not isinstance(self.scorer, Mixture):
            raise TypeError(f"{self.scorer.name} has no posterior")
        mark, known = self._prepared(outputs)
        with without_autocast(known.logits):
            posterior = self.scorer.class_probabilities(known, self._buffers)
            uncertainty = self.scorer.contrast(posterior, known.logits)
        return (uncertainty, posterior) if mark is None else (uncertainty + mark, posterior + mark[:, None])

    def modes(self, outputs: Outputs) -> Tensor:
        """Return the modes (N, K), with NaN as in `forward`."""
        from qipf.scores.weight_qipf import WeightQIPF

        if not isinstance(self.scorer, WeightQIPF):
            raise TypeError(f"{self.scorer.name} has no modes; only WeightQIPF has them")
        mark, known = self._prepared(outputs)
        modes = self.scorer.modes_of(known.logits, self._buffers).to(known.logits.dtype)
        return modes if mark is None else modes + mark[:, None]

    def _prepared(self, outputs: Outputs) -> tuple[Tensor | None, Outputs]:
        """Return a mark for each row (NaN if it has non-finite logits, or else 0), and the outputs with finite logits.

        Non-finite logits are replaced by 0. On the CPU and outside a graph, where the check is cheap, return None
        instead of marks if all logits are finite.
        """
        if torch.compiler.is_exporting() and self.scorer.export_problem:
            raise ValueError(f"{self.scorer.name} cannot be exported: {self.scorer.export_problem}")
        logits = outputs.logits
        if not torch.compiler.is_compiling():
            self._follow(logits.device)
        if logits.device.type == "cpu" and not is_traced(logits) and math.isfinite(logits.sum().item()):
            return None, outputs
        mark = (logits * 0).sum(dim=1)  # infinity times 0 is NaN
        finite = torch.nan_to_num(logits, 0.0, 0.0, 0.0)
        return mark, _outputs(finite, outputs.features, outputs.layers)

    def get_extra_state(self) -> Tensor:
        settings, facts = self.scorer.settings(), dict(self.scorer._require_fitted().facts)
        plain = {key: value for key, value in settings.items() if not callable(value)}
        text = json.dumps({"scorer": self._kind.name, "settings": plain, "facts": facts}, sort_keys=True)
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        told = json.loads(bytes(state.cpu().numpy()).decode())
        if told["scorer"] != self._kind.name:
            raise ValueError(
                f"this module holds the scorer {self._kind.name!r}, but the state dict belongs to {told['scorer']!r}; "
                "wrap the model with that scorer first"
            )
        before, own = self.scorer, [str(layer) for layer in self.scorer.layers]
        self._rebuild({**before.settings(), **told["settings"]}, upgraded(told["facts"]))
        wanted = [str(layer) for layer in self.scorer.layers]
        if wanted != own:
            self.scorer = before
            raise Problem(
                "state_dict", f"its scorer reads {', '.join(wanted) or 'no layer'}, but this module reads "
                f"{', '.join(own) or 'none'}", hint="first wrap a scorer with the same layers and number of views",
            )  # fmt: skip


def _recorder(model: nn.Module, scorer: Scorer, features: str | None) -> Recorder:
    """Return an attached recorder of the features and layers that a fitted scorer reads.

    It also records the input of a final softmax or sigmoid, unless the scorer was fitted to a regression model.
    """
    scorer._check_features(features)
    facts = scorer._require_fitted().facts
    features = facts.get("features") if features is None and scorer.reads_features else features
    layers = [one for one in scorer.layers if not isinstance(one, View)]
    read = {name: FeatureSpec.parse(name) for name in layers if isinstance(name, str)}
    read |= {str(one): one.spec(TorchRunner(model)) for one in layers if not isinstance(one, str)}
    head = None
    if scorer.reads_features:
        read = {"features": HEAD if features is None else FeatureSpec.parse(features), **read}
        head = _head(model, scorer) if features is None else None
    numbers = facts.get("output") == "regression" or facts.get("task", {}).get("name") == "numbers"
    recorder = Recorder(model, read, head=head, endings=not numbers)
    recorder.attach()
    return recorder


def _head(model: nn.Module, scorer: Scorer) -> nn.Module:
    facts = scorer._require_fitted().facts
    width, columns = facts.get("width"), facts.get("columns")
    names = {module: name for name, module in {"": model, **named_modules(model)}.items()}  # each shared layer once
    heads = {
        name: module
        for module, name in names.items()
        if isinstance(module, nn.Linear)
        and width in (None, module.in_features)
        and columns in (None, module.out_features)
    }
    if len(heads) != 1:
        wanted = f"{width or 'any number of'} features to {columns or 'any number of'} logits"
        raise Problem(
            "features", f"{len(heads)} ({', '.join(heads)})" if heads else "none",
            expected=f"one linear layer that maps {wanted}",
            hint='pass features="module name" here and to qipf.collect to read the output of that module',
        )  # fmt: skip
    return next(iter(heads.values()))


def _rows(logits: Tensor) -> Tensor:
    """Return logits (N, C) in float32 or wider."""
    logits = _CLASSES.arranged(logits)
    return logits.float() if logits.element_size() < 4 else logits


def _outputs(logits: Tensor, features: Tensor | None, layers: Mapping[str, Tensor]) -> Outputs:
    """Return the `Outputs` of a pass; outside a graph, skip the checks, which may take longer than the model."""
    if torch.compiler.is_compiling():
        return Outputs(logits=logits, features=features, layers=layers)
    return Outputs.unchecked(logits, features=features, layers=layers)
