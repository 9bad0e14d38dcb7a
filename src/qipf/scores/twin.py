"""The twin: a copy of the later layers of a network, trained on clean and perturbed inputs."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from qipf._common.errors import Problem, check_positive, check_whole
from qipf._common.optional import require
from qipf.arrays import Array, to_numpy
from qipf.data.batches import Batch
from qipf.scores.base import Fitted
from qipf.scores.coordinates import class_logits, softmax
from qipf.scores.mixture import SEEN_COPIES, Mixture, best_shares, cooled, folds, parts_of
from qipf.scores.probe import DOUBT, MOST_NUMBERS, Probe, head_logits
from qipf.tasks.classes import warn_of_missing_classes
from qipf.tasks.collect import Start, begin
from qipf.tasks.outputs import Outputs
from qipf.tasks.task import Task
from qipf.tasks.views import FAR, ViewTrial, has_images

if TYPE_CHECKING:
    import torch

    from qipf.runners.halves import Cut, SecondHalf
    from qipf.tasks.perturb import Perturb

PREFIX = "copy."
"""The prefix of the copy's weights among the tensors of a fitted twin."""
LEAST_PER_CLASS = 32
"""The minimum number of inputs per class, on average, for fitting a twin."""
LARGE_STEP = 1000
"""The number of inputs per step for which the learning rate is not reduced."""
MEMORY = 2 * 2**30
CHUNK = 500


@dataclass(eq=False)
class Twin(Mixture):
    r"""Log odds against the predicted class, from a trained copy of the later layers of the network.

    The copy is trained to predict the true class of clean and perturbed inputs; the network is unchanged. The posterior
    is a mixture of the softmax outputs of the copy, the network and, if present, the head of a `Probe`; the score is
    computed from it as in `Probe`. A twin does not store the network, so scoring requires the torch module.

    Args:
        split: The module after which the network is copied; by default, determined by `depth`.
        depth: The approximate fraction of the network's multiplications that the copy repeats, if `split` is None.
        epochs: The number of training epochs.
        rows: The maximum number of inputs per training step, half of them perturbed on average.
        learning_rate: The peak learning rate of the one-cycle schedule for steps of at least 1,000 inputs; the rate is
            reduced in proportion for smaller steps, so that few inputs change the copy little.
        share: The weight of the network's softmax in the posterior; set by `fit`.
        head_share: The weight of the probe's head; set by `fit`.
        temperature: The temperature of the network's logits; `fit` replaces it by a value nearer to 1 if the share is
            above one half.
        seed: The random seed.
        views: The number of views per image to average over, as in `Probe`.
    """

    name: ClassVar[str] = "twin"

    split: str | None = None
    depth: float = 0.75
    epochs: int = 20
    rows: int = 1000
    learning_rate: float = 2e-3
    share: float = 0.2
    head_share: float = 0.0
    temperature: float = 1.5
    seed: int = 0
    views: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "rows", "views"):
            check_whole(name, getattr(self, name), 1)
        check_whole("seed", self.seed, 0)
        if not 0 < self.depth < 1:
            raise Problem("depth", f"{self.depth!r}", expected="a fraction between 0 and 1")
        if not (0 <= self.share <= 1 and 0 <= self.head_share <= 1 - self.share + 1e-9):
            found = f"{self.share!r} and {self.head_share!r}"
            raise Problem("share, head_share", found, expected="two numbers from 0 to 1 with a sum of at most 1")
        for name in ("learning_rate", "temperature"):
            check_positive(name, getattr(self, name))

    def fit(
        self, model: Any = None, data: Any = None, *, task: Task | str | None = None, features: str | None = None,
        device: Any = None, batch_size: int | None = None, progress: bool = True,
    ) -> Self:  # fmt: skip
        """Fit the twin to a torch module and labelled inputs, as in `Scorer.fit`; `Outputs` are not supported."""
        if model is None or data is None or isinstance(data, Outputs):
            raise Problem("data", "a twin is trained on inputs", hint="pass a torch module and (inputs, labels)")
        if features is not None:
            raise Problem("features", f"{features!r} has no effect on a twin", hint="use Twin(split=...) instead")
        with require("torch", extra="torch").inference_mode(False):
            return self.fit_from(begin(model, data, task=task, device=device, batch_size=batch_size), progress=progress)

    def fit_from(
        self, start: Start, *, perturb: bool = True, own: Sequence[Perturb] = (), size: int | None = None,
        memory: int = MEMORY, checkpoint: str | os.PathLike[str] | None = None, progress: bool = True,
        beside: Callable[[Start], Probe] | None = None,
    ) -> Self:  # fmt: skip
        """Fit the twin to a model and data prepared by `qipf.tasks.collect.begin`.

        Args:
            start: The model and the data.
            perturb: Use the built-in perturbations.
            own: User-defined perturbations.
            size: The maximum number of inputs.
            memory: The maximum size of the inputs in bytes.
            checkpoint: A file, written after every epoch, from which an interrupted fit resumes.
            progress: Print the cost before fitting, and show a progress bar.
            beside: A function that fits a probe, whose head becomes part of the posterior.

        Raises:
            Problem: A twin cannot be fitted to this model or task, or there are too few inputs.
        """
        torch = require("torch", extra="torch")
        from qipf.runners.halves import splittable
        from qipf.training import train
        from qipf.training.copies import CopyLearner, epoch_seconds, gathered_inputs
        from qipf.training.loop import Split

        if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
            raise Problem("checkpoint", f"{checkpoint!r}", expected="the path of a file")
        if checkpoint is not None and not Path(checkpoint).absolute().parent.is_dir():
            raise Problem("checkpoint", f"{checkpoint}: there is no such folder", hint="create the folder first")
        cut, half, change, generator = self.prepared(start, own, perturb)
        data, columns = gathered_inputs(start, size, memory, self.seed, progress)
        labels = to_numpy(data.labels)
        warn_of_missing_classes(labels, columns, stacklevel=5)
        if data.rows < LEAST_PER_CLASS * max(2, columns):
            expected = f"an average of at least {LEAST_PER_CLASS} inputs per class for a twin"
            raise Problem("data", f"{data.rows} inputs for {max(2, columns)} classes", expected=expected)
        views = self._tried(start, data)
        if self.views > (most := 1 + len(set(views) - {FAR})):
            why = "the model is less accurate on other views"
            raise Problem("views", f"{self.views}", expected=f"at most {most}", hint=why)
        held = folds(labels, self.seed, parts_of(len(labels))) == 0
        known = data.chosen(np.flatnonzero(~held))
        learner = CopyLearner(splittable(start.runner), half, known, change, generator, views)
        numbers = torch.arange(2 * known.rows)
        split = Split(numbers, torch.as_tensor(np.tile(labels[~held], 2)).long())
        rows = min(self.rows, max(32, len(numbers) // 32))
        with learner.reading(), torch.enable_grad():
            if progress:
                seconds = self.epochs * epoch_seconds(learner, split, rows)
                megabytes = sum(one.nbytes for one in half.weights().values()) / 1e6
                print(
                    f"note: the twin copies the network after {cut.split!r}; fitting takes about {seconds:.0f} s, "
                    f"scoring takes an extra {cut.share:.0%} of a forward pass, and the saved twin takes "
                    f"up at most {megabytes + (0 if beside is None else 4 * MOST_NUMBERS / 1e6):.2g} MB",
                    file=sys.stderr,
                )
            half.learn(True)
            parts = [learner.identity(), str(perturb), *map(_code, own)] if checkpoint is not None else []
            identity = f"{cut.split} {hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}"
            train(
                learner, split, epochs=self.epochs, batch_size=rows,
                learning_rate=self.learning_rate * min(1, rows / LARGE_STEP), weight_decay=0.02, seed=self.seed,
                device=start.runner.device, checkpoint=checkpoint, identity=identity,
                on_start=learner.draw, cuda_graph=has_images(known.inputs), progress=progress,
            )  # fmt: skip
        half.learn(False)
        weights = half.weights()
        if not all(np.isfinite(one).all() for one in weights.values()):
            raise Problem("learning_rate", "the weights of the trained copy are not finite", hint="use a smaller value")
        tensors: dict[str, Any] = {PREFIX + name: one for name, one in weights.items()}
        facts = {"columns": columns, "cut": asdict(cut), "views": [name for name in views if name != FAR]}
        facts |= {**start.facts, "digest": learner.identity(inputs=False)[:8]}
        if beside is not None:
            probe = beside(begin(start.runner, (known.inputs, known.labels), task=start.task))
            head = probe._require_fitted().tensors
            if head and probe.space is not None:
                tensors, facts = {**tensors, **head}, {**facts, "space": probe.space}
        self._use(Fitted(tensors, facts))
        generator.manual_seed(self.seed)  # the same copies if the fit was resumed
        self._weigh(start, half, data.chosen(np.flatnonzero(held)), change, DOUBT / data.rows)
        self._attachments = {}
        return self

    def prepared(
        self, start: Start, own: Sequence[Perturb] = (), builtin: bool = True
    ) -> tuple[Cut, SecondHalf, Callable[[Any], Any], torch.Generator]:
        """Return the split, the copy, a function that perturbs inputs, and its random generator."""
        torch = require("torch", extra="torch")
        from qipf.runners.halves import split_network

        if start.task.name != "classes":
            raise Problem("task", f"a twin supports only the task 'classes', not {start.task.name!r}")
        cut, half = split_network(start.runner, start.first, self.split, self.depth)
        if any(one.element_size() < 4 for one in half.parameters()):
            raise Problem("model", "the model is in half precision", hint="fit the twin to model.float()")
        generator = torch.Generator(start.runner.device).manual_seed(self.seed)
        change = start.task.perturber(generator, own, builtin=builtin)
        ways = change.ways(start.first.first(2).inputs, 2)
        if not ways:
            raise Problem(
                "data", "these inputs cannot be perturbed", hint="pass a function as perturb= to qipf.default"
            )

        def perturbed(inputs: Any) -> Any:
            if len(set(ways)) == 1:
                return change(inputs, ways[0])
            return change(inputs, ways[int(torch.randint(len(ways), (), generator=generator, device=generator.device))])

        return cut, half, perturbed, generator

    def _tried(self, start: Start, data: Batch) -> list[str]:
        """Return the names of the views on which the network remains accurate; none if the inputs are not images."""
        trial = ViewTrial(start.task, data.rows, self.seed)
        if has_images(data.inputs):
            with start.reading({}, show=False) as run:
                for first in range(0, data.rows, CHUNK):
                    trial.see(run, data.chosen(slice(first, first + CHUNK)))
        return trial.kept()

    def _weigh(self, start: Start, half: SecondHalf, held: Batch, change: Any, doubt: float) -> None:
        """Choose the mixture weights that maximise the likelihood of held-out labels."""
        fitted, found = self._require_fitted(), []
        read = {"copy": half.spec}
        if "space" in fitted.facts:
            read["head"] = start.runner.parse(fitted.facts["space"])
        with start.runner.reading(read, show=False) as run:
            for first in range(0, held.rows, CHUNK):
                batch = held.chosen(slice(first, first + CHUNK))
                at = np.arange(batch.rows), to_numpy(batch.labels).astype(np.int64)
                for number in range(1 + SEEN_COPIES):
                    seen = run(batch if number == 0 else batch.replaced(change(batch.inputs)))
                    rows = [start.task.arranged(seen.features["copy"])]
                    rows += [seen.features["head"]] if "head" in read else []
                    logits = start.task.arranged(seen.logits)
                    parts = [class_logits(logits) / self.temperature]
                    parts += [one for _, one in self._heads(rows, self._placed(fitted, logits))]
                    found.append([*(to_numpy(softmax(one))[at] for one in parts), np.full(batch.rows, number)])
        *chances, copies = np.concatenate(found, axis=1)
        self.share, _, self.head_share = (*best_shares(chances, copies > 0, doubt), 0.0)[:3]
        self._note(cooled(self.temperature, self.share))

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        raise Problem("data", "a twin is trained on inputs", hint="call fit(model, (inputs, labels))")

    def _own_layers(self) -> tuple[Any, ...]:
        if self.fitted is None or self.share == 1:
            return ()
        from qipf.runners.halves import Copied, Cut

        cut = self.fitted.facts["cut"]
        weights = {k.removeprefix(PREFIX): v for k, v in self.fitted.tensors.items() if k.startswith(PREFIX)}
        facts = self.fitted.facts
        copied = Copied(
            Cut(**{**cut, "past": tuple(cut["past"])}), weights, facts.get("digest", ""), facts.get("model")
        )
        return (copied, self.fitted.facts["space"]) if self._has_head else (copied,)

    @property
    def _has_head(self) -> bool:
        return "space" in self._require_fitted().facts

    def _heads(self, rows: Sequence[Array], tensors: Mapping[str, Array]) -> Sequence[tuple[float, Array]]:
        heads = [(1 - self.share - self.head_share, class_logits(rows[0]))]
        return [*heads, (self.head_share, head_logits(rows[1], tensors))] if self._has_head else heads


def _code(function: Perturb) -> str:
    """Return a text that distinguishes most functions, and is the same in a later process."""
    code = getattr(function, "__code__", None)
    constants = [one for one in code.co_consts if isinstance(one, int | float | str)] if code else []
    return f"{getattr(function, '__qualname__', type(function).__qualname__)} {code and code.co_code.hex()} {constants}"
