"""The parts of a unit in the twin study: each fits scorers, scores every condition and records the results."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Container, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import qipf
from qipf._common.files import replacing
from qipf.predictive.moments import entropy
from qipf.scores import Entropy, SoftmaxResponse
from qipf.scores.coordinates import contrast
from qipf.tasks.outputs import Outputs
from qipf.tasks.views import moved
from qipf.training import train
from twin import networks
from twin.confidence import Confidence, confid_net
from twin.measures import Record, detection, ranked
from twin.setting import Setting

Facts = dict[str, Any]
Guard = Callable[[str, float], None]
"""A function that takes the name and the expected seconds of the next step; raises if too little time is left."""

TRAINING = {"lenet": 2.0, "vgg3": 9.0, "resnet18": 24.0, "published": 10.0, "vit": 10.0}
PASS = {"lenet": 0.5, "vgg3": 2.5, "resnet18": 9.0, "published": 4.0, "vit": 4.0}
"""Approximate seconds for training and for a pass over all conditions, on an H200."""
DEPTH = 0.75
"""The depth of the twins in the third part of the protocol."""
DEPTHS = (0.25, 0.5, 0.95)
"""Other depths for comparison."""
FEW = (4, 8, 16, 32, 64, 128)
"""Numbers of labels per class."""
BATCH = 4000


class Unit:
    """One base network of a pair, with its results."""

    def __init__(self, setting: Setting, base: int, cache: Path, guard: Guard) -> None:
        self.setting, self.base, self.cache, self._guard = setting, base, cache, guard
        self.name = f"{setting.pair}-{base}"

    def room(self, what: str, trainings: float = 0.0, passes: float = 0.0) -> None:
        """Raise if too little time is left."""
        name = self.setting.name
        self._guard(f"{self.name}: {what}", trainings * TRAINING[name] + passes * PASS[name])

    def record(self) -> Record:
        """Return an empty record for the pair's conditions."""
        return Record(self.setting.listed, len(self.setting.labels), self.setting.device)

    @cached_property
    def net(self) -> nn.Module:
        """The base network."""
        return networks.network(self.setting, self.base, self.cache).eval()

    @cached_property
    def predicted(self) -> Tensor:
        """The classes (K, N) that the network predicts in every condition."""
        return torch.load(self.cache / f"{self.name}.predicted", weights_only=True).long().to(self.setting.device)

    def lost(self, done: Container[str]) -> str:
        """Return the names of missing cache files."""
        made = {"network": f"{self.name}.pt", "fit": f"{self.name}-twin.qipf", "scores": f"{self.name}.predicted"}
        missing = [file for part, file in made.items() if part in done and not (self.cache / file).exists()]
        return " and ".join(missing)

    def now(self) -> float:
        """Return the time when the device has finished its work."""
        if self.setting.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def scorer(self, what: str, trainings: float, fit: Callable[[], Any]) -> tuple[Any, float]:
        """Return a scorer, from the cache or newly fitted, and its fitting time in seconds."""
        file = self.cache / f"{self.name}-{what.replace(' ', '-')}.qipf"
        times = file.with_suffix(".seconds")
        if times.exists():
            return qipf.load(file), float(times.read_text())
        self.room(what, trainings=trainings)
        begin = self.now()
        scorer = fit()
        seconds = self.now() - begin
        scorer.save(file)
        times.write_text(str(seconds))
        return scorer, seconds

    def probe(self, what: str = "probe", **more: Any) -> tuple[Any, float]:
        """Return the default scorer and its fitting time."""
        data = self.setting.data.train
        return self.scorer(what, 1.0, lambda: qipf.default(self.net, data, batch_size=BATCH, progress=False, **more))

    def twin(self, what: str = "twin", **more: Any) -> tuple[Any, float]:
        """Return the scorer with `effort="thorough"` and its fitting time."""
        more = {"effort": "thorough", "depth": DEPTH, "batch_size": BATCH, "progress": False, **more}
        return self.scorer(what, 3.0, lambda: qipf.default(self.net, self.setting.data.train, **more))

    def right(self, chances: Tensor) -> list[float]:
        """Return the accuracy of posteriors (K, N, C) in every condition."""
        return [round(float(value), 5) for value in (chances.argmax(2) == self.setting.labels).double().mean(1)]

    def add(self, record: Record, facts: Facts, name: str, chances: Tensor, **more: Any) -> None:
        """Record the contrast and the accuracy of posteriors (K, N, C)."""
        classes = self.predicted
        scores = contrast(chances.double().flatten(0, 1), classes.flatten()).reshape(classes.shape)
        record.add(self.base, name, scores, classes != self.setting.labels, **more)
        number = f" of {more['ensemble']}" if "ensemble" in more else ""
        facts["accuracy"][f"{name}{number} {self.base}"] = self.right(chances)

    def add_scores(self, record: Record, name: str, scores: Tensor, **more: Any) -> None:
        """Record scores (K, N) for the network's predictions."""
        record.add(self.base, name, scores, self.predicted != self.setting.labels, **more)

    @torch.no_grad()
    def seen(self, scorer: Any, view: str | None, images: Sequence[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return logits and posteriors (K, N, C) for a view of each condition."""
        guarded = qipf.wrap(self.net, scorer, posterior=True)
        logits, chances = [], []
        for condition in self.setting.images if images is None else images:
            parts = [guarded(part if view is None else moved(part, view)) for part in condition.split(BATCH)]
            logits.append(torch.cat([part.output for part in parts]))
            chances.append(torch.cat([part.posterior for part in parts]))
        return torch.stack(logits), torch.stack(chances)

    def add_views(self, record: Record, facts: Facts, name: str, scorer: Any, counts: tuple[int, ...]) -> list[Tensor]:
        """Record the results of a scorer for each number of views in `counts`; return the logits of each view."""
        views = [None, *scorer.fitted.facts.get("views", ())][: max(counts)]
        self.room(name, passes=1.6 * len(views))
        found, total = [], 0.0
        for number, view in enumerate(views, start=1):
            logits, chances = self.seen(scorer, view)
            found.append(logits)
            total = total + chances.double()
            if number == 1 and not (self.cache / f"{self.name}.predicted").exists():
                torch.save(logits.argmax(2).to(torch.uint8).cpu(), self.cache / f"{self.name}.predicted")
            if number in counts:
                self.add(record, facts, f"{name} x{number}" if number > 1 else name, total / number)
        return found


def fit_network(unit: Unit, record: Record, facts: Facts) -> None:
    """Train the base network."""
    s = unit.setting
    if s.pair == "published":
        return
    unit.room("the network", trainings=1.5)
    few = (s.data.train.inputs[:2000], s.data.train.targets[:2000])
    train(
        s.fresh(0), few, epochs=1, batch_size=s.recipe.batch_size, augment=s.recipe.augment, cuda_graph=True,
        progress=False,
    )  # fmt: skip
    known = (unit.cache / f"{s.pair}-{unit.base}.pt").exists()
    begin = unit.now()
    net = unit.net
    facts["training_seconds"] = None if known else unit.now() - begin
    if s.name in networks.MIDDLE:
        networks.check_pieces(s.name, net, s.data.train.inputs[:100])


def fit_both(unit: Unit, record: Record, facts: Facts) -> None:
    """Fit the probe and the twin while nothing else runs on the device."""
    probe, facts["probe_seconds"] = unit.probe()
    twin, facts["twin_seconds"] = unit.twin()
    facts["shares"] = {"probe": probe.share, "twin": (twin.share, twin.head_share)}
    facts["views"] = twin.fitted.facts["views"]
    facts["split"] = twin.fitted.facts.get("cut")
    facts["added_passes"] = {name: added_passes(unit, scorer) for name, scorer in (("probe", probe), ("twin", twin))}


@torch.no_grad()
def added_passes(unit: Unit, scorer: Any) -> dict[str, float]:
    """Return the time that `qipf.wrap` adds, in forward passes, by batch size."""
    guarded = qipf.wrap(unit.net, scorer)
    found = {}
    for size in (1, 32, 500, 2000):
        images = unit.setting.data.train.inputs[:size]
        repeats, rounds = (1, 1) if unit.setting.smoke else (3 if size > 100 else 20, 5)
        both = [(_time(unit, unit.net, images, repeats), _time(unit, guarded, images, repeats)) for _ in range(rounds)]
        found[str(size)] = float(f"{statistics.median(own / bare for bare, own in both) - 1:.4g}")
    return found


def _time(unit: Unit, module: nn.Module, inputs: Tensor, repeats: int) -> float:
    begin = unit.now()
    for _ in range(repeats):
        module(inputs)
    return unit.now() - begin


def score(unit: Unit, record: Record, facts: Facts) -> None:
    """Score with the network, the probe and the twin."""
    probe, _ = unit.probe()
    logits = unit.add_views(record, facts, "probe", probe, (1, 2))
    first = logits[0].flatten(0, 1)
    shape = unit.predicted.shape
    unit.add_scores(record, "entropy", Entropy()(Outputs(first)).reshape(shape))
    unit.add_scores(record, "max softmax", SoftmaxResponse()(Outputs(first)).reshape(shape))
    facts["accuracy"][f"network {unit.base}"] = unit.right(logits[0])
    if len(logits) > 1:  # a network may have no valid view
        twice: Any = sum(part.double().softmax(2) for part in logits) / len(logits)
        unit.add(record, facts, "network x2", twice)
        unit.add_scores(record, "network x2, entropy", entropy(twice))
    unit.add_views(record, facts, "twin", unit.twin()[0], (1, 2))


def more_views(unit: Unit, record: Record, facts: Facts) -> None:
    """Score with the twin, using four views."""
    unit.add_views(record, facts, "twin", unit.twin()[0], (4,))


def without_bending(unit: Unit, record: Record, facts: Facts) -> None:
    """Score with scorers trained without elastic distortion."""
    for name, fit in (("probe", unit.probe), ("twin", unit.twin)):
        scorer, _ = fit(f"{name} without elastic", perturb_only=networks.draw_without_bending)
        unit.add_views(record, facts, f"{name} without elastic", scorer, (1, 2))


def ensemble(unit: Unit, record: Record, facts: Facts) -> None:
    """Score with ensembles, which exclude the base network."""
    s = unit.setting
    total, uncertain = 0.0, 0.0
    for number, seed in enumerate(s.members):
        if not (unit.cache / f"{s.pair}-{seed}.probabilities.pt").exists():
            unit.room(f"member {seed}", trainings=1, passes=1)
        chances = networks.cached_probabilities(s, seed, unit.cache)
        total, uncertain = total + chances, uncertain + entropy(chances)
        count = number + 1
        if count in (len(s.members) // 2, len(s.members)):
            _add_mean(unit, record, facts, f"ensemble of {count}", total / count, uncertain / count)


def _add_mean(unit: Unit, record: Record, facts: Facts, name: str, mean: Any, uncertain: Any = None) -> None:
    unit.add(record, facts, name, mean)
    unit.add_scores(record, f"{name}, entropy", entropy(mean))
    unit.add_scores(record, f"{name}, max softmax", -mean.max(2).values)
    if uncertain is not None:
        unit.add_scores(record, f"{name}, mutual information", entropy(mean) - uncertain)


def second(unit: Unit, record: Record, facts: Facts) -> None:
    """Score with networks trained on perturbed images."""
    s = unit.setting
    total = [0.0, 0.0]
    for number in range(s.second):
        once, twice = _second_chances(unit, number, facts)
        unit.add(record, facts, "second network", once, ensemble=number)
        unit.add(record, facts, "second network x2", (once + twice) / 2, ensemble=number)
        total = [total[0] + once, total[1] + (once + twice) / 2]
    _add_mean(unit, record, facts, f"{s.second} second networks", total[0] / s.second)
    _add_mean(unit, record, facts, f"{s.second} second networks x2", total[1] / s.second)


def _second_chances(unit: Unit, number: int, facts: Facts) -> list[Tensor]:
    s = unit.setting
    seed = 5000 + number
    file = unit.cache / f"{s.pair}-{seed}.both.pt"
    if not file.exists():
        unit.room(f"second network {seed}", trainings=2.2, passes=2)
        fresh = s.fresh(seed)
        begin = unit.now()
        networks.second_network(fresh, s.recipe, s.data.train, seed)
        seconds = unit.now() - begin
        found = [networks.probabilities(networks.Viewed(fresh, view), s.images).cpu() for view in (None, s.view)]
        with replacing(file) as part:
            torch.save({"chances": found, "seconds": seconds}, part)
    found = torch.load(file, weights_only=True)
    facts.setdefault("second_network_seconds", []).append(found["seconds"])
    return [part.to(s.device).double() for part in found["chances"]]


def sub_ensemble(unit: Unit, record: Record, facts: Facts) -> None:
    """Score with a deep sub-ensemble."""
    s = unit.setting
    members: list[nn.Module] = []
    start = networks.MIDDLE[s.name]
    trunk = networks.frozen(networks.pieces(s.name, unit.net)[:start])
    for number in range(1, s.sub):
        seed = 4000 + 10 * (unit.base - 1000) + number
        unit.room(f"sub-ensemble {number}", trainings=1)
        fresh = s.fresh(seed)
        begin = unit.now()
        networks.train_by(s.recipe, networks.Behind(trunk, networks.pieces(s.name, fresh)[start:]), s.data.train, seed)
        facts.setdefault("sub_ensemble_seconds", []).append(unit.now() - begin)
        members.append(networks.pieces(s.name, fresh)[start:])
    unit.room("scores of the sub-ensemble", passes=4)
    rests = [networks.pieces(s.name, unit.net)[start:], *members]
    mean: Any = sum(networks.probabilities(nn.Sequential(trunk, rest), s.images).double() for rest in rests) / s.sub
    _add_mean(unit, record, facts, f"sub-ensemble of {s.sub}", mean)


def confidence(unit: Unit, record: Record, facts: Facts) -> None:
    """Score with ConfidNet."""
    s = unit.setting
    unit.room("ConfidNet", trainings=2, passes=2)
    begin = unit.now()
    encoder, head, about = confid_net(s, unit.net, 0)
    facts["confidnet"] = {**about, "seconds": unit.now() - begin}
    unit.add_scores(record, "ConfidNet", _doubts(encoder, head, s.images))


@torch.no_grad()
def _doubts(encoder: nn.Module, head: Confidence, images: list[Tensor]) -> Tensor:
    scores = []
    for condition in images:
        with torch.autocast("cuda", dtype=torch.float16, enabled=condition.device.type == "cuda"):
            scores.append(torch.cat([-head.logits(encoder(part)) for part in condition.split(4000)]))
    return torch.stack(scores)


def depth(unit: Unit, record: Record, facts: Facts) -> None:
    """Score with twins of other depths, using one view."""
    about = facts["depth"] = {}
    for share in DEPTHS:
        twin, seconds = unit.twin(f"depth {share}", depth=share)
        cut = twin.fitted.facts["cut"]
        about[str(share)] = {"seconds": seconds, "added_passes": added_passes(unit, twin), "cut": cut}
        unit.add_views(record, facts, f"twin of {share}", twin, (1,))


def few_labels(unit: Unit, record: Record, facts: Facts) -> None:
    """Score with probes and twins fitted to few labels."""
    s = unit.setting
    clean, labels = s.images[:1], s.data.train.targets.cpu()
    found = facts["few"] = []
    for seed in range(1 if s.smoke else 2):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        for count in FEW:
            rows = torch.cat([order[labels[order] == one][:count] for one in range(10)]).sort().values
            data = tuple(part[rows.to(part.device)] for part in s.data.train)
            unit.room(f"{count} labels per class", trainings=0.5)
            row = {"labels": count, "seed": seed}
            for name in ("probe", "twin") if count >= 32 else ("probe",):
                more = {"effort": "thorough", "depth": DEPTH} if name == "twin" else {}
                with warnings.catch_warnings(action="ignore"):
                    scorer = qipf.default(unit.net, data, seed=seed, progress=False, **more)
                logits, chances = unit.seen(scorer, None, clean)
                classes = logits[0].argmax(1)
                wrong = (classes != s.labels)[None]
                own = contrast(chances[0].double(), classes)
                usual = SoftmaxResponse()(Outputs(logits[0]))
                row[name] = [float(value[0]) for value in detection(*ranked(own[None], wrong))[:2]]
                row["max softmax"] = [float(value[0]) for value in detection(*ranked(usual[None], wrong))[:2]]
                row[f"{name} share"] = scorer.share
            found.append(row)


PARTS: dict[str, Callable[[Unit, Record, Facts], None]] = {
    "network": fit_network,
    "fit": fit_both,
    "scores": score,
    "more-views": more_views,
    "ensemble": ensemble,
    "second": second,
    "without-elastic": without_bending,
    "sub-ensemble": sub_ensemble,
    "confidnet": confidence,
    "depth": depth,
    "few": few_labels,
}
"""The parts of a unit, in order."""
