"""The conditions of the twin study: those of the probe study, and two families without any relative in training."""

from __future__ import annotations

import dataclasses
import time
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from probe import networks as probe_networks
from probe.conditions import PAIRS, Condition, conditions, images_of, load
from qipf.study.recipes import Recipe, recipe
from qipf.study.run.study_data import StudyData
from qipf.study.shifts import corruptions, effects
from qipf.training.loop import Split
from twin.confidence import Schedule

EXTRA = "no relative"
GAMMA = (0.7, 0.5, 0.35, 0.25, 0.15)
ENSEMBLE = 10
SECOND = 5
SUB = 5


def all_conditions(pair: str) -> list[Condition]:
    """Those of the probe study, then fog that is not rescaled and, for colour images, gamma."""
    extra = ["fog, not rescaled"] + (["gamma"] if PAIRS[pair][0] == "cifar10" else [])
    return conditions(pair) + [Condition(EXTRA, name, float(severity)) for name in extra for severity in range(1, 6)]


def images_for(pair: str, data: StudyData, condition: Condition, folder: str | None) -> Tensor:
    """The images of a condition."""
    if condition.group != EXTRA:
        return images_of(pair, data, condition, folder)
    images, severity = data.test.inputs, int(condition.intensity)
    if condition.family == "gamma":
        return effects.gamma(images, GAMMA[severity - 1])
    density = corruptions.parameters("fog", severity, images.shape[1], images.shape[-1])[0]
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    scaled = corruptions.apply(images, "fog", severity)
    return (scaled * (brightest + density) / brightest.clamp_min(1e-6)).clamp(0, 1)


class Setting:
    """A pair with its data, conditions and settings; everything is tiny in a smoke test."""

    def __init__(self, pair: str, folder: str, device: str, smoke: bool) -> None:
        self.folder = folder
        self.pair, self.device, self.smoke = pair, device, smoke
        self.dataset, self.name, _ = PAIRS[pair]
        self.digits = self.dataset != "cifar10"
        self.view = "right" if self.digits else "mirror"
        self.data = load(pair, folder, device)
        self.listed = all_conditions(pair)
        self.confidence = Schedule()
        self.ensemble, self.second, self.sub = ENSEMBLE, SECOND, SUB
        if smoke:
            self._shrink()
        self.labels = self.data.test.targets

    @cached_property
    def images(self) -> list[Tensor]:
        """The images of every condition."""
        begin = time.perf_counter()
        found = [images_for(self.pair, self.data, condition, self.folder) for condition in self.listed]
        if self.device == "cuda":
            torch.cuda.synchronize()
        print(f"{self.pair}: {len(found)} conditions in {time.perf_counter() - begin:.1f} s", flush=True)
        return found

    @property
    def recipe(self) -> Recipe:
        """The recipe of the pair's networks."""
        return probe_networks.recipe(self.name, self.dataset)

    def _shrink(self) -> None:
        few = {"train": 500, "held_out": 200, "test": 200}
        if not self.digits:  # slow on a CPU
            few = {"train": 400, "held_out": 40, "test": 40}
        parts: dict[str, Any] = {}
        for part, count in few.items():
            inputs, targets = getattr(self.data, part)
            parts[part] = Split(inputs[:count], targets[:count])
        self.data = self.data._replace(**parts)
        first = {}
        for condition in self.listed:
            first[condition.group, condition.family] = condition  # the strongest
        self.listed = list(first.values())
        self.confidence = Schedule(head_epochs=8, epochs=1)
        self.ensemble, self.second, self.sub = 2, 1, 2
        probe_networks.recipe = lambda *names: dataclasses.replace(recipe(*names), epochs=1)
