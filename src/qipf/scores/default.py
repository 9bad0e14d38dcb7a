"""The recommended scorer of any task, fitted in one call: a probe on clean and perturbed training inputs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from qipf._common.errors import Problem, check_whole
from qipf._common.optional import require
from qipf.scores.base import Fitted, Scorer
from qipf.scores.probe import Probe, fit_share
from qipf.scores.residual_scale import ResidualScale
from qipf.scores.twin import Twin
from qipf.tasks.collect import Start, begin, collect_augmented, collect_from, what_to_read
from qipf.tasks.finding import make_task
from qipf.tasks.outputs import Outputs
from qipf.tasks.task import ProbeSettings, Task
from qipf.tasks.views import FAR, ViewTrial

if TYPE_CHECKING:
    import os

    import torch

    from qipf.runners.features import FeatureSpec
    from qipf.tasks.perturb import Perturb

S = TypeVar("S", bound=Scorer)
MEMORY = 2 * 2**30
"""Maximum size in bytes of the features of the training inputs; inputs that do not fit are left out."""


class Effort(NamedTuple):
    """The effort of a fit: perturbed copies per input, and training epochs of the head."""

    draws: int
    epochs: int


EFFORTS = {"quick": Effort(1, 4), "standard": Effort(4, 5), "thorough": Effort(8, 5)}
"""The recorded studies used a head of 1,024 units with dropout and eight epochs, which took three times as long."""


def default(
    model: Any,
    data: Any,
    *,
    task: Task | str | None = None,
    effort: Literal["quick", "standard", "thorough"] = "standard",
    perturb: Perturb | Sequence[Perturb] | bool = True,
    perturb_only: Perturb | Sequence[Perturb] = (),
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
    """Fit and return the recommended scorer of a trained model: `uq = qipf.default(model, train)`.

    For classes, labels, tokens and pixels it is a `Probe`: the model runs once on each input and once on
    each perturbed copy, and a small head then learns which predictions are correct. Data is read once, batch by batch.
    The features that the head reads are kept in memory, up to `memory` bytes. For numbers it is a `ResidualScale`.

    Use the training inputs of the model for classes, and inputs new to the model for other tasks. For
    classes the weight of the head against the network's own softmax is chosen on held-out inputs: with few labels, the
    score is close to the softmax response.

    To score other inputs call `uq.score(model, inputs)`, or collect its inputs first:
    `uq(qipf.collect(model, inputs, layers=uq.layers))`. `qipf.wrap(model, uq)` combines both in one module.

    Args:
        model: A trained model as for `qipf.collect`; None if `data` is `Outputs`. Perturbing inputs and training the
            head need torch.
        data: Labelled inputs as for `qipf.collect`, or `Outputs` with labels and features, to which the head is then
            fitted directly; `perturb`, `size`, `memory`, `device` and `batch_size` are not allowed with them.
        task: The task, as for `qipf.collect`; None to infer it.
        effort: For classes: "quick" perturbs each input once, "standard" four times. "thorough" fits a `Twin`, a copy
            of the second half of a torch module, after printing its cost; it includes the head of
            a probe. If a twin is not possible, a warning gives the reason, and a probe is fitted with eight perturbed
            copies of each input.
        perturb: True for the built-in perturbations of `qipf.tasks.perturb`; False for none; one or several functions
            `f(inputs, generator)` to add to the built-in ones. A function returns perturbed inputs of the same form;
            the generator is on the device of its inputs. If inputs of classes cannot be perturbed, the head is
            left out, and a warning reports it.
        perturb_only: One or several functions that replace the built-in perturbations.
        features: The features of the head, named as in `qipf.runners.features`, for instance `layer4@2x2`; None lets
            `qipf.runners.features.choose_reading` choose for classes, and is the input of the layer that computes the
            logits for other tasks.
        split: The module after which a twin copies the network; None to choose one by `depth`.
        depth: The approximate fraction of the network's multiplications that a twin repeats.
        checkpoint: A file from which an interrupted fit of a twin resumes.
        size: The maximum number of inputs: a random sample of arrays and datasets, the first inputs of loaders.
        memory: The maximum size of the stored features in bytes.
        seed: The random seed.
        device: The device of the inputs; None for that of the model.
        batch_size: Inputs per batch, as for `qipf.collect`.
        progress: Show a progress bar with the time left.

    Raises:
        Problem: An argument is invalid, data or labels are missing, or the model has no layer that a head
            could read.
    """
    if effort not in EFFORTS:
        raise Problem("effort", f"{effort!r}", expected=f"one of {', '.join(EFFORTS)}")
    more = () if isinstance(perturb, bool) else _functions("perturb", perturb)
    only = _functions("perturb_only", perturb_only)
    if only and perturb is not True:
        raise Problem("perturb_only", "perturb as well", expected="only one of the two")
    if features is not None and (not isinstance(features, str) or not features):
        raise Problem("features", f"{features!r}", expected="the name of a module, for instance 'layer4@2x2', or None")
    check_whole("seed", seed, 0)
    check_whole("size", 1 if size is None else size, 1)
    if isinstance(data, Outputs):
        given = {"perturb": perturb is not True, "perturb_only": bool(only), "size": size is not None,
                 "memory": memory != MEMORY, "device": device is not None,
                 "batch_size": batch_size is not None, "split": split is not None,
                 "checkpoint": checkpoint is not None}  # fmt: skip
        if any(given.values()):
            names = ", ".join(name for name, is_given in given.items() if is_given)
            raise Problem(names, "for inputs only, and data are outputs, which are taken as they are")
        return _of_outputs(model, data, effort, features, seed, progress)
    if model is None:
        raise Problem("model", "None", expected="a model", hint="without one, give Outputs with features and labels")
    start = begin(model, data, task=task, device=device, batch_size=batch_size)
    of_twin = {"split": split is not None, "checkpoint": checkpoint is not None, "depth": depth != Twin.depth}
    if effort != "thorough" and any(of_twin.values()):
        names = ", ".join(name for name, is_given in of_twin.items() if is_given)
        raise Problem(names, "for a twin only", hint='pass effort="thorough" as well')
    if start.task.name != "classes" and effort != "standard":
        raise Problem("effort", f"{start.task.name} have one way to fit", hint="leave effort out")
    kind = start.task.probe
    if kind is None:
        outputs = collect_from(start, features, progress=progress)
        return _noted(ResidualScale(seed=seed).fit(model, outputs), start, features)
    read = {"perturb": perturb is not False and not only, "own": more or only, "size": size, "memory": memory}
    if effort != "thorough":
        return _probe(model, start, kind, effort, features, seed, progress, read)
    twin = Twin(split=split, depth=depth, seed=seed)
    start, why = _try_twin(twin, model, start, kind, features, read, checkpoint, progress)
    if not why:
        return twin
    warnings.warn(f"no twin: {why}; a probe is fitted instead", stacklevel=2)
    return _probe(model, start, kind, effort, features, seed, progress, read)


def _try_twin(
    twin: Twin, model: Any, start: Start, kind: ProbeSettings, features: str | None, read: dict[str, Any],
    checkpoint: Any, progress: bool,
) -> tuple[Start, str]:  # fmt: skip
    """Fit a twin with a probe; return data that can be read again, and the reason if there is no twin."""
    require("torch", extra="torch")
    from qipf.training.copies import gathered_inputs

    def beside(known: Start) -> Probe:
        return _probe(model, known, kind, "standard", features, twin.seed, progress, {**read, "size": None})

    if not read["perturb"] and not read["own"]:
        return start, "it learns from perturbed inputs, and perturb is False"
    if features is not None:
        with start.runner.reading({"head": start.runner.parse(features)}, show=False):
            pass  # raises before the twin is trained
    try:
        twin.prepared(start, read["own"], read["perturb"])
        if not start.source.indexed:  # it may be readable only once
            data, _ = gathered_inputs(start, read["size"], read["memory"], twin.seed, progress)
            start = begin(start.runner, (data.inputs, data.labels), task=start.task)
        twin.fit_from(start, **read, checkpoint=checkpoint, progress=progress, beside=beside)
    except Problem as error:
        if twin.split is not None and error.argument == "split":
            raise
        return start, error.message
    return start, ""


def _probe(
    model: Any, start: Start, kind: ProbeSettings, effort: str, features: str | None, seed: int, progress: bool,
    read: dict[str, Any],
) -> Probe:  # fmt: skip
    """Return a probe fitted to clean and perturbed inputs."""
    try:
        require("torch", extra="torch")
    except ImportError as error:
        raise ImportError(f"perturbing inputs and training a head: {error}") from None
    best = kind.reading == "best"
    draws = EFFORTS[effort].draws if kind.copies is None else kind.copies
    if best and read["perturb"] and not _known(start, read["own"]):
        warnings.warn(
            "data: there is no built-in perturbation for such inputs, so the score is that of the softmax; pass a "
            "function as perturb=",
            stacklevel=3,
        )
        outputs = collect_from(start, False, progress=progress)
        return _noted(Probe(share=1.0, seed=seed).fit(model, outputs), start, None)
    spec = _spec(start, features, best)
    trial = ViewTrial(start.task, start.source.rows, seed) if best else None
    outputs = collect_augmented(start, spec, draws=draws, seed=seed, trial=trial, progress=progress, **read)
    settings: dict[str, Any] = {**kind.settings, "seed": seed}
    if trial is None:
        return _noted(_fitted(Probe(**settings), model, outputs, progress), start, features)
    settings |= {"space": str(spec), "epochs": EFFORTS[effort].epochs}
    return _noted(_fitted(Probe(**settings), model, outputs, progress, in_place=True), start, None, trial.kept())


def _known(start: Start, own: Sequence[Perturb]) -> bool:
    """Return True if the inputs can be perturbed."""
    import torch

    return bool(start.task.perturber(torch.Generator(), own).ways(start.first.first(2).inputs, 1))


def _functions(name: str, given: Any) -> tuple[Perturb, ...]:
    """Return one function or several as a tuple."""
    found = (given,) if callable(given) else tuple(given) if isinstance(given, Sequence) else (given,)
    if not all(map(callable, found)):
        raise Problem(name, f"{given!r}", expected="one or several functions of inputs and a generator")
    return found


def _spec(start: Start, features: str | None, best: bool) -> FeatureSpec:
    """Return the features that the head reads."""
    if best:
        return start.runner.best_reading(start.first) if features is None else start.runner.parse(features)
    read = what_to_read(start, features)
    if "features" not in read:
        raise Problem("features", "no layer is known to make the logits", hint="name a module or tensor to read")
    return read["features"]


def _of_outputs(model: Any, data: Outputs, effort: str, features: str | None, seed: int, progress: bool) -> Scorer:
    """Return the recommended scorer, fitted directly to outputs."""
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
        settings |= {"epochs": EFFORTS[effort].epochs}
    return _fitted(Probe(**settings), model, data, progress)


def _fitted(probe: Probe, model: Any, outputs: Outputs, progress: bool, in_place: bool = False) -> Probe:
    probe.progress = progress  # for this fit only
    try:
        if outputs.task == "classes":
            return fit_share(probe, model, outputs, in_place=in_place)
        return probe.fit(model, outputs)
    finally:
        probe.progress = False


def _noted(scorer: S, start: Start, features: str | None, views: Sequence[str] = ()) -> S:
    """Record the model, the task, the named features and the valid views in a fitted scorer."""
    fitted = scorer._require_fitted()
    facts = {**fitted.facts, **start.runner.facts(), "task": start.task.noted()}
    facts |= {"views": [name for name in views if name != FAR]} if views else {}
    scorer._use(Fitted(fitted.tensors, facts if features is None else {**facts, "features": features}))
    return scorer
