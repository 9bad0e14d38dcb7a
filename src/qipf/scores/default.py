"""Fit the recommended scorer: for most tasks, a probe trained on clean and perturbed inputs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from qipf._common.errors import Problem, check_choice, check_whole
from qipf._common.optional import require
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

MEMORY = 2 * 2**30
"""The default limit on the size of the stored features or inputs, in bytes."""

COPIES = ("perturb", "perturb_only", "memory")
TWIN = ("split", "depth", "checkpoint")


class Effort(NamedTuple):
    """The effort of a fit: the number of perturbed copies per input, and the number of training epochs of the head."""

    draws: int
    epochs: int


EFFORTS = {"quick": Effort(1, 4), "standard": Effort(4, 5), "thorough": Effort(8, 5)}
"""The efforts, keyed by name."""


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
    depth: float = 0.75,
    checkpoint: str | os.PathLike[str] | None = None,
    size: int | None = None,
    memory: int = MEMORY,
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int | None = None,
    progress: bool = True,
) -> Any:
    """Fit and return the recommended scorer for a trained model.

    The scorer is a `ResidualScale` for numbers (regression), a `Twin` for classes with `effort="thorough"`, and
    otherwise a `Probe`, a small head trained on features of clean and perturbed inputs. For classes, pass the training
    inputs of the model; for other tasks, pass held-out inputs.

    To score inputs, call `scorer.score(model, inputs)`, or collect the outputs first:
    `scorer(qipf.collect(model, inputs, layers=scorer.layers))`.

    Args:
        model: A trained model as for `qipf.collect`, or None if `data` is `Outputs`. Training a head requires torch.
        data: Labelled inputs as for `qipf.collect`, or `Outputs` with labels and features.
        task: As for `qipf.collect`.
        effort: For classes only. "quick" perturbs each input once, and "standard" four times. "thorough" fits a `Twin`
            or, if this is impossible, issues a warning and fits a probe with eight perturbed copies per input.
        perturb: True for the built-in perturbations of `qipf.tasks.perturb`, False for none, or one or more additional
            functions `f(inputs, generator)`.
        perturb_only: Functions that replace the built-in perturbations.
        features: The features that the head reads, such as `layer4@2x2` (see `qipf.runners.features`). By default, they
            are chosen automatically for classes, and are the input of the last layer for other tasks.
        split: The module after which a twin copies the network; by default, determined by `depth`.
        depth: The approximate fraction of the network's multiplications that a twin repeats.
        checkpoint: A file from which an interrupted fit of a twin resumes.
        size: The maximum number of inputs: a random sample of arrays or a dataset, or the first inputs of a loader.
        memory: The maximum size in bytes of the stored features or, for a twin, inputs; further inputs are omitted.
        seed: The random seed.
        device: As for `qipf.collect`.
        batch_size: As for `qipf.collect`.
        progress: Show a progress bar.

    Raises:
        Problem: The model has no layer that a head can read.
    """
    check_choice("effort", effort, tuple(EFFORTS))
    check_whole("seed", seed, 0)
    check_whole("size", 1 if size is None else size, 1)
    check_whole("memory", memory, 1)
    if features is not None and (not isinstance(features, str) or not features):
        raise Problem("features", f"{features!r}", expected="None or the name of a module, such as 'layer4@2x2'")
    more = () if isinstance(perturb, bool) else _functions("perturb", perturb)
    only = _functions("perturb_only", perturb_only)
    optional = {"task": task, "split": split, "checkpoint": checkpoint, "size": size, "device": device,
                "features": features, "batch_size": batch_size, "perturb_only": only or None}  # fmt: skip
    given = {name for name, value in optional.items() if value is not None}
    usual = {"perturb": (perturb, True), "depth": (depth, Twin.depth), "memory": (memory, MEMORY)}
    given |= {name for name, (value, standard) in usual.items() if value is not standard and value != standard}
    given |= set() if effort == "standard" else {"effort"}

    def refuse(names: Sequence[str], why: str) -> None:
        if found := ", ".join(name for name in names if name in given):
            raise Problem(found, why, hint="omit arguments that have no effect")

    if {"perturb", "perturb_only"} <= given:
        refuse(("perturb", "perturb_only"), "perturb_only replaces all other perturbations")
    if {"split", "depth"} <= given:
        refuse(("split", "depth"), "split already determines where the copy begins")
    if isinstance(data, Outputs):
        refuse(
            (*COPIES, *TWIN, "task", "size", "device", "batch_size"),
            "used only with inputs, but data is an Outputs object",
        )
        kind = make_task(data.task or "classes")
        if kind.name != "classes" or effort == "thorough":
            refuse(("effort",), f"{effort!r} is not available for Outputs with the task {kind.name!r}")
        if kind.probe is None:
            refuse(("features",), "not used with Outputs, which already contain features")
            return ResidualScale(seed=seed).fit(model, data)
        return _of_outputs(kind, model, data, effort, features, seed, progress)
    if model is None:
        raise Problem(
            "model", "None", expected="a model", hint="without a model, pass Outputs with features and labels"
        )
    start = begin(model, data, task=task, device=device, batch_size=batch_size)
    if effort != "thorough":
        refuse(TWIN, 'used only with effort="thorough", which fits a twin')
    if start.task.name != "classes":
        refuse(("effort",), f"not used for the task {start.task.name!r}")
    if start.task.probe is None:
        refuse(COPIES, f"not used for the task {start.task.name!r}, for which inputs are not perturbed")
        start = start if size is None else start._replace(source=start.source.sample(size, seed))
        scale = ResidualScale(seed=seed).fit(model, collect_from(start, features, progress=progress))
        scale._note({**start.facts, **({} if features is None else {"features": features})})
        return scale
    read = {"perturb": perturb is not False and not only, "own": more or only, "size": size, "memory": memory}
    fit = _Fit(model, start, start.task.probe, effort, features, seed, progress, read)
    if effort != "thorough":
        return fit.probe()
    try:
        return fit.twin(Twin(split=split, depth=depth, seed=seed), checkpoint)
    except Problem as error:
        if split is not None:
            raise
        warnings.warn(f"a probe is fitted instead of a twin: {error.message}", stacklevel=2)
        return fit.probe()


@dataclass
class _Fit:
    """A call to `default` with inputs instead of `Outputs`."""

    model: Any
    start: Start
    kind: ProbeSettings
    effort: str
    features: str | None
    seed: int
    progress: bool
    read: dict[str, Any]

    def twin(self, twin: Twin, checkpoint: Any) -> Twin:
        """Fit a twin together with a probe, and return it; raise Problem if this is impossible."""
        torch = require("torch", extra="torch")
        from qipf.training.copies import gathered_inputs

        def beside(known: Start) -> Probe:
            return replace(self, start=known, effort="standard", read={**self.read, "size": None}).probe()

        if not self.read["perturb"] and not self.read["own"]:
            raise Problem("perturb", "False", expected="perturbed inputs, on which a twin is trained")
        if self.features is not None:
            with self.start.reading({"head": self.start.runner.parse(self.features)}, show=False):
                pass  # raises before the twin is trained
        with torch.inference_mode(False):  # inference tensors cannot be trained
            twin.prepared(self.start, self.read["own"], self.read["perturb"])
            if not self.start.source.indexed:  # the data may be readable only once
                size, memory = self.read["size"], self.read["memory"]
                data, _ = gathered_inputs(self.start, size, memory, self.seed, self.progress)
                self.start = begin(self.start.runner, (data.inputs, data.labels), task=self.start.task)
            return twin.fit_from(self.start, **self.read, checkpoint=checkpoint, progress=self.progress, beside=beside)

    def probe(self) -> Probe:
        """Fit a probe to clean and perturbed inputs, and return it."""
        try:
            torch = require("torch", extra="torch")
        except ImportError as error:
            raise ImportError(f"perturbing inputs and training a head: {error}") from None
        start, best = self.start, self.kind.reading == "best"
        settings: dict[str, Any] = {**self.kind.settings, "seed": self.seed}
        noted = dict(start.facts)
        change = start.task.perturber(torch.Generator(), self.read["own"])
        if best and self.read["perturb"] and not change.ways(start.first.first(2).inputs, 1):
            of_head = {"features": self.features, "size": self.read["size"]}
            if found := ", ".join(name for name, value in of_head.items() if value is not None):
                raise Problem(
                    found,
                    "used only to train a head, but there is no built-in perturbation for these inputs",
                    hint="pass a function as perturb=, or perturb=False to train on clean inputs",
                )
            warnings.warn(
                "data: there is no built-in perturbation for these inputs, so the score uses only the softmax; to "
                "train a head, pass a function as perturb= (images must be floating-point numbers or bytes)",
                stacklevel=3,
            )
            probe = Probe(share=1.0, temperature=1.0, seed=self.seed).fit(
                self.model, collect_from(start, False, progress=self.progress)
            )
            probe._note(noted)
            return probe
        spec = self._spec(best)
        trial = ViewTrial(start.task, start.source.rows, self.seed) if best else None
        draws = EFFORTS[self.effort].draws if self.kind.copies is None else self.kind.copies
        options = {**self.read, "seed": self.seed, "progress": self.progress}
        outputs = collect_augmented(start, spec, draws=draws, trial=trial, **options)
        if best:
            settings |= {"space": str(spec), "epochs": EFFORTS[self.effort].epochs}
        elif self.features is not None:
            noted["features"] = self.features
        probe = _fitted(settings, self.model, outputs, self.progress, in_place=best)
        if trial is not None and (views := trial.kept()):
            noted["views"] = [name for name in views if name != FAR]
        probe._note(noted)
        return probe

    def _spec(self, best: bool) -> FeatureSpec:
        """Return the features that the head reads."""
        runner = self.start.runner
        if best:
            return runner.best_reading(self.start.first) if self.features is None else runner.parse(self.features)
        read = what_to_read(self.start, self.features)
        if "features" not in read:
            raise Problem("features", "no layer that computes the logits was found", hint="pass the name of a module")
        return read["features"]


def _functions(name: str, given: Any) -> tuple[Perturb, ...]:
    """Return one or more functions as a tuple; raise Problem if a value is not a function."""
    found = (given,) if callable(given) else tuple(given) if isinstance(given, Sequence) else (given,)
    if not all(map(callable, found)):
        raise Problem(name, f"{given!r}", expected="one or more functions of inputs and a generator")
    return found


def _of_outputs(
    task: Task, model: Any, data: Outputs, effort: str, features: str | None, seed: int, progress: bool
) -> Probe:
    """Fit a probe to outputs, and return it."""
    if features is not None and features not in data.layers:
        found = ", ".join(map(repr, data.layers)) or "none"
        raise Problem("features", f"{features!r}", expected=f"the name of a layer in the outputs (available: {found})")
    if features is None and data.features is None and len(data.layers) == 1:
        (features,) = data.layers
    settings: dict[str, Any] = {**task.probe.settings, "space": features, "seed": seed} if task.probe else {}
    if task.name == "classes":
        settings |= {"epochs": EFFORTS[effort].epochs}
    return _fitted(settings, model, data, progress)


def _fitted(settings: dict[str, Any], model: Any, outputs: Outputs, progress: bool, in_place: bool = False) -> Probe:
    probe = Probe(**settings, progress=progress)  # the progress bar is for this fit only
    probe = (
        fit_share(probe, model, outputs, in_place=in_place) if outputs.task == "classes" else probe.fit(model, outputs)
    )
    probe.progress = False
    return probe
