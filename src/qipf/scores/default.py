"""The recommended scorer of any task, fitted in one call: a probe on clean and perturbed training inputs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from qipf._common.errors import Problem, check_whole
from qipf._common.optional import require
from qipf.scores.base import Fitted, Scorer
from qipf.scores.probe import Probe
from qipf.scores.residual_scale import ResidualScale
from qipf.scores.twin import Twin
from qipf.tasks.collect import Start, begin, collect_augmented, collect_from, what_to_read
from qipf.tasks.finding import make_task
from qipf.tasks.outputs import Outputs
from qipf.tasks.task import ProbeSettings, Task
from qipf.tasks.views import FAR, ViewTrial

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import torch

    from qipf.runners.features import FeatureSpec
    from qipf.tasks.perturb import Perturb

S = TypeVar("S", bound=Scorer)
MEMORY = 2 * 2**30
"""Bytes that the features of the training inputs take at most; inputs that do not fit are left out."""


class Effort(NamedTuple):
    """How much work fitting does: perturbed copies of each input, and passes of the head over all of them."""

    draws: int
    epochs: int


SHARES = {"images": 0.2, "table": 0.5, "tokens": 0.5, "other": 0.5, "": 1.0}
"""The weight of the network's own softmax by the form of the inputs; 1 leaves the head out if none is perturbed."""
CLEAN_SHARE = 0.8
"""The same for a head that knows clean inputs alone, or few inputs per class."""
FEW = 16
"""Images per class below which a head learns too little to outweigh the softmax: `benchmarks/probe/few_examples.py`."""
MOST_SHARE = 0.5
"""The share of the network's softmax above which a twin is not worth its cost."""
EFFORTS = {"quick": Effort(1, 4), "standard": Effort(4, 8), "thorough": Effort(8, 8)}


def default(
    model: Any,
    data: Any,
    *,
    task: Task | str | None = None,
    effort: Literal["quick", "standard", "thorough"] = "standard",
    perturb: Perturb | bool = True,
    features: str | None = None,
    split: str | None = None,
    depth: float = 0.5,
    checkpoint: str | os.PathLike[str] | None = None,
    size: int | None = None,
    memory: int = MEMORY,
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int | None = None,
    progress: bool = True,
) -> Any:
    """Return the recommended scorer of a trained model, fitted and ready: `uq = qipf.default(model, train)`.

    For classes, labels, tokens and pixels it is a `Probe`: each input goes through the model once as it is and once for
    every perturbed copy, and a small head then learns which predictions are right. Data is read once, batch by batch.
    The features that the head reads are kept, at most `memory` bytes. For numbers it is a `ResidualScale`.

    The inputs should be those that the model was trained on for classes, and new to the model for other tasks. With
    fewer than 16 images per class the head counts for little, and a warning says so.

    To score other inputs call `uq.score(model, inputs)`, or collect what it reads first:
    `uq(qipf.collect(model, inputs, layers=uq.layers))`. `qipf.wrap(model, uq)` makes a module of both.

    Args:
        model: A trained model as for `qipf.collect`; None if `data` is `Outputs`. Perturbing inputs and training the
            head need torch.
        data: Labelled inputs as for `qipf.collect`, or `Outputs` with labels and features, which the head is then
            fitted to as they are; `perturb`, `size`, `memory`, `device` and `batch_size` do not go with them.
        task: What one prediction is, as for `qipf.collect`; None finds it.
        effort: For classes: "quick" perturbs each input once, "standard" four times. "thorough" fits a `Twin`, a copy
            of the second half of a torch module, and prints first what it will cost; if there can be none, a warning
            says why, and a probe is fitted with eight perturbed copies of each input.
        perturb: False for no perturbations, or a function `perturb(inputs, generator)` that returns perturbed inputs
            of the same form; the generator is on the device of its inputs. True perturbs images, tables and tokens as
            `qipf.tasks.perturb` says, and for classes leaves the head out if nothing is known about the inputs.
        features: What the head reads, as a name of `qipf.runners.features`, for instance `layer4@2x2`; None lets
            `qipf.runners.features.choose_reading` choose for classes, and is the input of the layer that makes the
            logits for other tasks.
        split: The module behind which a twin copies the network; None finds one by `depth`.
        depth: The share of the network's multiplications that a twin repeats, about.
        checkpoint: A file from which an interrupted fit of a twin continues.
        size: How many inputs to take at most: a random sample of arrays and datasets, the first of loaders.
        memory: Bytes that the kept features take at most.
        seed: Of everything that is random here.
        device: Where the inputs go; None is the device of the model.
        batch_size: Inputs per batch, as for `qipf.collect`.
        progress: Show a progress bar with the time left.

    Raises:
        Problem: An argument does not fit, there is no data, there are no labels, or the model has no layer that a head
            could read.
    """
    if effort not in EFFORTS:
        raise Problem("effort", f"{effort!r}", expected=f"one of {', '.join(EFFORTS)}")
    if not isinstance(perturb, bool) and not callable(perturb):
        raise Problem("perturb", f"{perturb!r}", expected="True, False or a function of inputs and a generator")
    if features is not None and (not isinstance(features, str) or not features):
        raise Problem("features", f"{features!r}", expected="the name of a module, for instance 'layer4@2x2', or None")
    check_whole("seed", seed, 0)
    if isinstance(data, Outputs):
        given = {"perturb": perturb is not True, "size": size is not None, "memory": memory != MEMORY,
                 "device": device is not None, "batch_size": batch_size is not None}  # fmt: skip
        if any(given.values()):
            names = ", ".join(name for name, is_given in given.items() if is_given)
            raise Problem(names, "for inputs only, and data are outputs, which are taken as they are")
        return _of_outputs(model, data, effort, features, seed, progress)
    if model is None:
        raise Problem("model", "None", expected="a model", hint="without one, give Outputs with features and labels")
    start = begin(model, data, task=task, device=device, batch_size=batch_size)
    if effort != "thorough" and (split is not None or checkpoint is not None):
        raise Problem("split" if split else "checkpoint", "only a twin has one", hint='give effort="thorough", too')
    if start.task.name != "classes" and effort != "standard":
        raise Problem("effort", f"{start.task.name} have one way to fit", hint="leave effort out")
    kind = start.task.probe
    if kind is None:
        outputs = collect_from(start, features, progress=progress)
        return _noted(ResidualScale(seed=seed).fit(model, outputs), start, features)
    if effort == "thorough":
        twin = Twin(split=split, depth=depth, seed=seed)
        start, why = _try_twin(twin, start, perturb, size, memory, checkpoint, progress)
        if not why:
            return twin
        warnings.warn(f"no twin: {why}; a probe is fitted instead", stacklevel=2)
    return _probe(model, start, kind, effort, perturb, features, size, memory, seed, progress)


def _try_twin(
    twin: Twin, start: Start, perturb: Any, size: int | None, memory: int, checkpoint: Any, progress: bool
) -> tuple[Start, str]:
    """Fit a twin, and return data that can be read again, and why there is no twin; empty if there is one."""
    require("torch", extra="torch")
    from qipf.training.copies import gathered_inputs

    if perturb is False:
        return start, "it learns from perturbed inputs, and perturb is False"
    own = perturb if callable(perturb) else None
    try:
        twin.prepared(start, own)
        if not start.source.indexed:  # it may be one that can be read only once
            data, _ = gathered_inputs(start, size, memory, twin.seed, progress)
            start = begin(start.runner, (data.inputs, data.labels), task=start.task)
        twin.fit_from(start, perturb=own, size=size, memory=memory, checkpoint=checkpoint, progress=progress)
    except Problem as error:
        if twin.split is not None and error.argument == "split":
            raise
        return start, error.message
    learned = twin.share <= MOST_SHARE
    return start, "" if learned else f"it learned too little from the inputs (share {twin.share:g})"


def _probe(
    model: Any, start: Start, kind: ProbeSettings, effort: str, perturb: Any, features: str | None, size: int | None,
    memory: int, seed: int, progress: bool,
) -> Probe:  # fmt: skip
    """Return a probe that is fitted to clean and perturbed inputs."""
    try:
        require("torch", extra="torch")
    except ImportError as error:
        raise ImportError(f"perturbing inputs and training a head: {error}") from None
    best = kind.reading == "best"
    spec = _spec(start, features, best)
    draws = EFFORTS[effort].draws if kind.copies is None else kind.copies
    trial = ViewTrial(start.task, start.source.rows, seed) if best else None
    outputs, form = collect_augmented(
        start, spec, draws=draws, perturb=perturb, size=size, memory=memory, seed=seed, trial=trial, progress=progress
    )
    settings: dict[str, Any] = {**kind.settings, "seed": seed}
    if best:
        share = CLEAN_SHARE if perturb is False else SHARES[form]
        classes, inputs = max(2, outputs.logits.shape[1]), len(outputs) // (1 + draws)
        if form == "images" and inputs < FEW * classes:
            share = CLEAN_SHARE
            warnings.warn(
                f"data: {inputs} images for {classes} classes are few for a head to learn from, so the network's own "
                f"softmax has the greater weight in the score; give {FEW} or more per class",
                stacklevel=3,
            )
        settings |= {"space": str(spec), "share": share, "epochs": EFFORTS[effort].epochs}
    fitted = _fitted(Probe(**settings), model, outputs, progress)
    return _noted(fitted, start, None if best else features, [] if trial is None else trial.kept())


def _spec(start: Start, features: str | None, best: bool) -> FeatureSpec:
    """Return what the head reads."""
    if best:
        return start.runner.best_reading(start.first) if features is None else start.runner.parse(features)
    read = what_to_read(start, features)
    if "features" not in read:
        raise Problem("features", "no layer is known to make the logits", hint="name a module or tensor to read")
    return read["features"]


def _of_outputs(model: Any, data: Outputs, effort: str, features: str | None, seed: int, progress: bool) -> Scorer:
    """Return the recommended scorer, fitted to outputs as they are."""
    task = make_task(data.task or "classes")
    if task.probe is None:
        return ResidualScale(seed=seed).fit(model, data)
    space = features if features in data.layers else None
    if features is not None and space is None:
        found = ", ".join(map(repr, data.layers)) or "none"
        raise Problem("features", f"{features!r}", expected=f"one of the layers of these outputs, {found}")
    if space is None and data.features is None and len(data.layers) == 1:
        (space,) = data.layers
    settings: dict[str, Any] = {**task.probe.settings, "space": space, "seed": seed}
    if task.name == "classes":
        settings |= {"share": CLEAN_SHARE, "epochs": EFFORTS[effort].epochs}
    return _fitted(Probe(**settings), model, data, progress)


def _fitted(probe: Probe, model: Any, outputs: Outputs, progress: bool) -> Probe:
    probe.progress = progress  # of this fit, not of the next one
    try:
        return probe.fit(model, outputs)
    finally:
        probe.progress = False


def _noted(scorer: S, start: Start, features: str | None, views: Sequence[str] = ()) -> S:
    """Record the model, the task with its options, the named features and the valid views in a fitted scorer."""
    fitted = scorer._require_fitted()
    facts = {**fitted.facts, **start.runner.facts(), "task": start.task.noted()}
    facts |= {"views": [name for name in views if name != FAR]} if views else {}
    scorer._use(Fitted(fitted.tensors, facts if features is None else {**facts, "features": features}))
    return scorer
