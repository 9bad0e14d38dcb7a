"""Attach a recorder of the layers that a scorer reads to a model."""

from __future__ import annotations

from torch import nn

from qipf._common.errors import Problem
from qipf.runners.features import HEAD, FeatureSpec
from qipf.runners.recorder import Recorder, named_modules
from qipf.runners.torch import TorchRunner
from qipf.scores.base import Scorer
from qipf.tasks.views import View


def attach_recorder(model: nn.Module, scorer: Scorer, features: str | None) -> Recorder:
    """Return a recorder of the features and layers that a fitted scorer reads, whose hooks live as long as it does.

    It also keeps the input of a softmax or a sigmoid, which `Recorder.before_ending` returns as the logits, unless the
    scorer was fitted to the numbers of a regression.

    Args:
        model: The module, without wrappers.
        scorer: A fitted scorer.
        features: The module whose output is the features; None for the one that the scorer was fitted to, or the
            input of the only linear layer that fits it.

    Raises:
        Problem: There is no such layer.
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
        raise Problem(
            "features", f"{found} of this model maps {width or 'any number of'} features to "
            f"{columns or 'any number of'} logits",
            hint="name the module whose output is the features, here and in qipf.collect",
        )  # fmt: skip
    return next(iter(heads.values()))
