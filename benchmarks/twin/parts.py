"""The parts of a unit of the twin study: each fits something, scores every condition with it, and records rows."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from confidence import Confidence, confid_net
from halves import (
    DEPTHS,
    MIDDLE,
    Viewed,
    as_trained,
    check_pieces,
    copied,
    draw_without_bending,
    frozen,
    learned,
    pieces,
    second_network,
    views,
)
from measures import Record
from networks import cached_probabilities, network, probabilities
from setting import Setting
from torch import Tensor, nn

from qipf.predictive.summary import entropy
from qipf.scores import Entropy, Probe, SoftmaxResponse
from qipf.scores.base import Fitted
from qipf.scores.coordinates import contrast
from qipf.scores.default import default
from qipf.scores.probe import LEAST
from qipf.study import nets
from qipf.tasks.collect import collect
from qipf.tasks.outputs import Outputs
from qipf.training import train

Facts = dict[str, Any]
Guard = Callable[[str, float], None]
"""Called with what comes next and about how many seconds it takes; raises if there is no time for it."""

TRAINING = {"lenet": 2.0, "vgg3": 9.0, "resnet18": 24.0}
PASS = {"lenet": 0.5, "vgg3": 2.5, "resnet18": 9.0}
"""About how many seconds a training and a pass over all conditions take on an H200."""
SHARE, TEMPERATURE = 0.2, 1.5


class Unit:
    """One base network of a pair, with what was computed about it so far."""

    def __init__(self, setting: Setting, base: int, cache: Path, guard: Guard) -> None:
        self.setting, self.base, self.cache, self._guard = setting, base, cache, guard
        self.name = f"{setting.pair}-{base}"
        self.views = views(setting.digits)
        self.start = DEPTHS[setting.name][MIDDLE[setting.name]]

    def room(self, what: str, trainings: float = 0.0, passes: float = 0.0) -> None:
        """Raise if there is no time for so many trainings of the network and passes over all conditions."""
        name = self.setting.name
        self._guard(f"{self.name}: {what}", trainings * TRAINING[name] + passes * PASS[name])

    def record(self) -> Record:
        """A new record of the pair's conditions."""
        return Record(self.setting.listed, len(self.setting.labels), self.setting.device)

    @cached_property
    def net(self) -> nn.Module:
        """The base network."""
        return network(self.setting.pair, self.setting.data, self.base, self.cache).eval()

    @cached_property
    def predicted(self) -> Tensor:
        """The classes that it predicts in every condition, (K, N)."""
        return torch.load(self.cache / f"{self.name}.predicted", weights_only=True).long().to(self.setting.device)

    def kept(
        self, what: str, trainings: float, build: Callable[[], nn.Module], make: Callable[[], nn.Module]
    ) -> tuple[nn.Module, float]:
        """A module that was trained before, or is now, and the seconds that it took."""
        file = self.cache / f"{self.name}-{what.replace(' ', '-')}.state"
        if file.exists():
            found = torch.load(file, weights_only=True)
            module = build()
            module.load_state_dict(found["state"])
            return module.to(self.setting.device).eval(), found["seconds"]
        self.room(what, trainings=trainings)
        begin = self.now()
        module = make()
        seconds = self.now() - begin
        torch.save({"state": module.state_dict(), "seconds": seconds}, file.with_suffix(".tmp"))
        file.with_suffix(".tmp").rename(file)
        return module.eval(), seconds

    def now(self) -> float:
        """The time when the device has done its work."""
        if self.setting.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def twin(self, what: str, start: int, **more: Any) -> tuple[nn.Module, float]:
        """A copy of the pieces from `start` on, trained now or before."""
        s = self.setting
        return self.kept(
            what,
            2.0,
            lambda: copy.deepcopy(pieces(s.name, self.net)[start:]),
            lambda: copied(s.name, self.net, start, s.twin, s.data.train, 0, **more),
        )

    def probe(self, what: str, perturb: Any = True) -> tuple[Probe, float]:
        """`qipf.default`, fitted now or before."""
        file = self.cache / f"{self.name}-{what.replace(' ', '-')}.probe"
        if file.exists():
            found = torch.load(file, weights_only=True)
            probe = Probe(space=found["space"])
            tensors = {name: values.numpy() for name, values in found["tensors"].items()}
            probe._use(Fitted(tensors=tensors, facts=found["facts"]))
            return probe, found["seconds"]
        begin = self.now()
        effort = "quick" if self.setting.smoke else "standard"
        probe = default(
            self.net, self.setting.data.train, effort=effort, perturb=perturb, batch_size=4000, progress=False
        )
        seconds = self.now() - begin
        fitted = probe._require_fitted()
        tensors = {name: torch.as_tensor(values).cpu() for name, values in fitted.tensors.items()}
        about = {"space": probe.space, "facts": dict(fitted.facts), "seconds": seconds, "tensors": tensors}
        torch.save(about, file.with_suffix(".tmp"))
        file.with_suffix(".tmp").rename(file)
        probe.share = SHARE  # a smoke test has too few images for it
        return probe, seconds

    def right(self, chances: Tensor) -> list[float]:
        """The share of right classes in every condition."""
        return [round(float(value), 5) for value in (chances.argmax(2) == self.setting.labels).double().mean(1)]

    def add(self, record: Record, facts: Facts, name: str, chances: Tensor, **more: Any) -> None:
        """Record the contrast of the network's class under a posterior (K, N, C), and the posterior's accuracy."""
        classes = self.predicted
        scores = contrast(chances.double().flatten(0, 1), classes.flatten()).reshape(classes.shape)
        record.add(self.base, name, scores, classes != self.setting.labels, **more)
        number = f" of {more['ensemble']}" if "ensemble" in more else ""
        facts["accuracy"][f"{name}{number} {self.base}"] = self.right(chances)

    def add_scores(self, record: Record, name: str, scores: Tensor, **more: Any) -> None:
        """Record scores (K, N) of the network's predictions."""
        record.add(self.base, name, scores, self.predicted != self.setting.labels, **more)


def softmax_at(logits: Tensor) -> Tensor:
    """The network's own share of a posterior."""
    return (logits / TEMPERATURE).softmax(-1)


def mixed(head: Tensor, logits: Tensor) -> Tensor:
    """The posterior of a twin: its softmax and a share of the network's own."""
    return ((1 - SHARE) * head + SHARE * softmax_at(logits)).clamp_min(LEAST)


@torch.no_grad()
def logits_of(unit: Unit, probes: dict[str, Probe], count: int) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
    """Logits (K, N, C) of the network for the first views, in single precision, and posteriors of probes."""
    layers = next(iter(probes.values())).layers
    logits: list[Tensor] = []
    posteriors: dict[str, list[Tensor]] = {name: [] for name in probes}
    for view in unit.views[:count]:
        seen, found = [], {name: [] for name in probes}
        for condition in unit.setting.images:
            outputs: Outputs = collect(
                unit.net, view(condition), layers=layers, store=None, batch_size=4000, progress=False
            )
            seen.append(outputs.logits)
            for name, probe in probes.items():
                found[name].append(probe.posterior(outputs))
        logits.append(torch.stack(seen))
        for name, values in found.items():
            posteriors[name].append(torch.stack(values))
    return logits, posteriors


@torch.no_grad()
def chances_of(unit: Unit, copies: dict[str, tuple[int, nn.Module]], view: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits of the network and softmax of copies of its last pieces, (K, N, C), in half precision on a GPU."""
    s = unit.setting
    on_gpu = s.device == "cuda"
    layout = torch.channels_last if on_gpu else torch.contiguous_format
    trunk = frozen(pieces(s.name, unit.net)).to(memory_format=layout)  # pyright: ignore[reportCallIssue]
    rests = {name: (start, rest.eval().to(memory_format=layout)) for name, (start, rest) in copies.items()}  # pyright: ignore
    own: list[Tensor] = []
    found: dict[str, list[Tensor]] = {name: [] for name in copies}
    for condition in s.images:
        parts: dict[str, list[Tensor]] = {name: [] for name in ("", *copies)}
        for images in unit.views[view](condition).split(4000):
            hidden = images.contiguous(memory_format=layout)
            for number, piece in enumerate(trunk):
                for name, (start, rest) in rests.items():
                    if start == number:
                        parts[name].append(_logits(rest, hidden, on_gpu).softmax(1))
                if number < len(trunk) - 1:
                    with torch.autocast("cuda", dtype=torch.float16, enabled=on_gpu):
                        hidden = piece(hidden)
            parts[""].append(trunk[-1](hidden.float()))
        own.append(torch.cat(parts[""]))
        for name in copies:
            found[name].append(torch.cat(parts[name]))
    return torch.stack(own), {name: torch.stack(values) for name, values in found.items()}


def _logits(rest: Any, hidden: Tensor, on_gpu: bool) -> Tensor:
    """All but the last layer in half precision; logits in half precision would tie."""
    with torch.autocast("cuda", dtype=torch.float16, enabled=on_gpu):
        for piece in rest[:-1]:
            hidden = piece(hidden)
    return rest[-1](hidden.float())


def fit_network(unit: Unit, record: Record, facts: Facts) -> None:
    """Train the base network."""
    s = unit.setting
    unit.room("the network", trainings=1.5)
    warm = nets.build(s.name, channels=s.data.train.inputs.shape[1], size=s.data.train.inputs.shape[2], seed=0)
    few = (s.data.train.inputs[:2000], s.data.train.targets[:2000])
    train(
        warm.to(s.device), few, epochs=1, batch_size=s.recipe.batch_size, augment=s.recipe.augment, cuda_graph=True,
        progress=False,
    )  # fmt: skip
    known = (unit.cache / f"{s.pair}-{unit.base}.pt").exists()
    begin = unit.now()
    net = unit.net
    facts["training_seconds"] = None if known else unit.now() - begin
    check_pieces(s.name, net, s.data.train.inputs[:100])


def fit_probe(unit: Unit, record: Record, facts: Facts) -> None:
    """Fit the probe."""
    _, facts["probe_seconds"] = unit.probe("probe")


def fit_twin(unit: Unit, record: Record, facts: Facts) -> None:
    """Fit the twin."""
    _, facts["twin_seconds"] = unit.twin("twin", unit.start)


def measure_cost(unit: Unit, record: Record, facts: Facts) -> None:
    """Measure the time that the twin and the probe add to a pass of the network."""
    twin, _ = unit.twin("twin", unit.start)
    facts["added_share_of_a_pass"] = added_share(unit, twin, unit.start)
    facts["parameters"] = {"network": _count(unit.net), "twin": _count(twin)}


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def added_share(unit: Unit, rest: nn.Module, start: int) -> dict[str, float]:
    """Time of the copy as a share of the network's time, in single precision, by the size of the batch."""
    parts = pieces(unit.setting.name, unit.net)
    found = {}
    for size in (1, 32, 500, 2000):
        images = unit.setting.data.train.inputs[:size]
        hidden = parts[:start](images)
        repeats, rounds = (1, 1) if unit.setting.smoke else (3 if size > 100 else 20, 5)
        both = [(_time(unit, unit.net, images, repeats), _time(unit, rest, hidden, repeats)) for _ in range(rounds)]
        found[str(size)] = float(f"{statistics.median(own / whole for whole, own in both):.4g}")
    return found


def _time(unit: Unit, module: nn.Module, inputs: Tensor, repeats: int) -> float:
    begin = unit.now()
    for _ in range(repeats):
        module(inputs)
    return unit.now() - begin


def score(unit: Unit, record: Record, facts: Facts) -> None:
    """The network, the probe and the twin, with views."""
    unit.room("scores", passes=9)
    probe, _ = unit.probe("probe")
    bare, facts["probe_without_elastic_seconds"] = unit.probe("probe without elastic", draw_without_bending)
    twin, _ = unit.twin("twin", unit.start)
    logits, posteriors = logits_of(unit, {"probe": probe, "probe without elastic": bare}, 2)
    torch.save(logits[0].argmax(2).to(torch.uint8).cpu(), unit.cache / f"{unit.name}.predicted")
    unit.__dict__.pop("predicted", None)
    first = logits[0].flatten(0, 1)
    shape = unit.predicted.shape
    unit.add_scores(record, "entropy", Entropy()(Outputs(first)).reshape(shape))
    unit.add_scores(record, "max softmax", SoftmaxResponse()(Outputs(first)).reshape(shape))
    facts["accuracy"][f"network {unit.base}"] = unit.right(logits[0])
    twice = sum(part.double().softmax(2) for part in logits) / 2
    unit.add(record, facts, "network x2", twice)
    unit.add_scores(record, "network x2, entropy", entropy(twice))
    for name, values in posteriors.items():
        unit.add(record, facts, name, values[0])
        unit.add(record, facts, f"{name} x2", sum(values) / 2)
    total = alone = torch.zeros_like(logits[0])
    for view in range(4):
        own, heads = chances_of(unit, {"twin": (unit.start, twin)}, view)
        total = total + mixed(heads["twin"], logits[view] if view < 2 else own)
        alone = alone + heads["twin"]
        if view in (0, 1, 3):
            unit.add(record, facts, f"twin x{view + 1}" if view else "twin", total / (view + 1))
        if view < 2:
            name = "twin, copy alone" + (" x2" if view else "")
            unit.add(record, facts, name, (alone / (view + 1)).clamp_min(LEAST))


def without_bending(unit: Unit, record: Record, facts: Facts) -> None:
    """The twin that never saw elastic distortion."""
    twin, facts["twin_without_elastic_seconds"] = unit.twin(
        "twin without elastic", unit.start, draw=draw_without_bending
    )
    unit.room("scores without elastic", passes=3)
    total = 0.0
    for view in range(2):
        own, heads = chances_of(unit, {"twin": (unit.start, twin)}, view)
        total = total + mixed(heads["twin"], own)
        unit.add(record, facts, "twin without elastic" + (" x2" if view else ""), total / (view + 1))


def ensemble(unit: Unit, record: Record, facts: Facts) -> None:
    """Ensembles of five and ten, without the base network, by four statistics."""
    s = unit.setting
    total, uncertain = 0.0, 0.0
    for number in range(s.ensemble):
        seed = 2000 + number
        if not (unit.cache / f"{s.pair}-{seed}.probabilities.pt").exists():
            unit.room(f"member {seed}", trainings=1, passes=1)
        chances = cached_probabilities(s.pair, s.data, s.images, seed, unit.cache)
        total, uncertain = total + chances, uncertain + entropy(chances)
        count = number + 1
        if count in (s.ensemble // 2, s.ensemble):
            _add_mean(unit, record, facts, f"ensemble of {count}", total / count, uncertain / count)


def _add_mean(unit: Unit, record: Record, facts: Facts, name: str, mean: Any, uncertain: Any = None) -> None:
    unit.add(record, facts, name, mean)
    unit.add_scores(record, f"{name}, entropy", entropy(mean))
    unit.add_scores(record, f"{name}, max softmax", -mean.max(2).values)
    if uncertain is not None:
        unit.add_scores(record, f"{name}, mutual information", entropy(mean) - uncertain)


def second(unit: Unit, record: Record, facts: Facts) -> None:
    """Second networks trained on perturbed images, with one and two views, and five of them."""
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
        shape = s.data.train.inputs.shape
        fresh = nets.build(s.name, classes=10, channels=shape[1], size=shape[2], seed=seed).to(s.device)
        begin = unit.now()
        net = second_network(s.name, fresh, s.recipe, s.data.train, seed)
        seconds = unit.now() - begin
        found = [probabilities(Viewed(net, view), s.images).cpu() for view in unit.views[:2]]
        torch.save({"chances": found, "seconds": seconds}, file.with_suffix(".part"))
        file.with_suffix(".part").rename(file)
    found = torch.load(file, weights_only=True)
    facts.setdefault("second_network_seconds", []).append(found["seconds"])
    return [part.to(s.device).double() for part in found["chances"]]


def sub_ensemble(unit: Unit, record: Record, facts: Facts) -> None:
    """A deep sub-ensemble: the network, and new last pieces on its frozen first ones, trained on clean images."""
    s = unit.setting
    shape = s.data.train.inputs.shape
    copies: dict[str, tuple[int, nn.Module]] = {}
    for number in range(1, s.sub):
        seed = 4000 + 10 * (unit.base - 1000) + number
        fresh = nets.build(s.name, classes=10, channels=shape[1], size=shape[2], seed=seed).to(s.device)
        rest = pieces(s.name, fresh)[unit.start :]
        trunk = frozen(pieces(s.name, unit.net)[: unit.start])
        made, seconds = unit.kept(
            f"sub {number}",
            1.0,
            lambda rest=rest: rest,
            lambda rest=rest, trunk=trunk, seed=seed: learned(
                rest, trunk, s.data.train, as_trained(s.recipe), seed, None
            ),
        )
        facts.setdefault("sub_ensemble_seconds", []).append(seconds)
        copies[str(number)] = (unit.start, made)
    unit.room("scores of the sub-ensemble", passes=4)
    own, heads = chances_of(unit, copies, 0)
    mean = (own.double().softmax(2) + sum(part.double() for part in heads.values())) / s.sub
    _add_mean(unit, record, facts, f"sub-ensemble of {s.sub}", mean)


def confidence(unit: Unit, record: Record, facts: Facts) -> None:
    """ConfidNet."""
    s = unit.setting
    unit.room("ConfidNet", trainings=2, passes=2)
    begin = unit.now()
    encoder, head, about = confid_net(
        s.name, unit.net, s.data.train, s.data.held_out, as_trained(s.recipe), s.confidence, 0
    )
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
    """Twins of other depths, with one view."""
    s = unit.setting
    copies: dict[str, tuple[int, nn.Module]] = {}
    about = facts["depth"] = {}
    for name, start in DEPTHS[s.name].items():
        what = "twin" if start == unit.start else f"twin of {name}"
        rest, seconds = unit.twin(what, start)
        shares = added_share(unit, rest, start)
        about[name] = {"seconds": seconds, "added_share_of_a_pass": shares, "parameters": _count(rest)}
        if start != unit.start:
            copies[name] = (start, rest)
    unit.room("scores of depths", passes=5)
    own, heads = chances_of(unit, copies, 0)
    for name, chances in heads.items():
        unit.add(record, facts, f"twin of {name}", mixed(chances, own))


PARTS: dict[str, Callable[[Unit, Record, Facts], None]] = {
    "network": fit_network,
    "probe": fit_probe,
    "twin": fit_twin,
    "cost": measure_cost,
    "scores": score,
    "ensemble": ensemble,
    "second": second,
    "without-elastic": without_bending,
    "sub-ensemble": sub_ensemble,
    "confidnet": confidence,
    "depth": depth,
}
"""The parts of a unit, in their order."""
