"""Networks of a user with several predictions per input, and a run of a plan in this process."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from qipf.study.plan.plan import Plan
from qipf.study.run.read import Bench, open_store
from qipf.study.run.run import run_plan


def pixels(classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, classes, 1))


def one_logit() -> nn.Module:
    return pixels(1)


def tokens() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(20, 12), nn.Linear(12, 20))


class InDict(nn.Module):
    """Tokens whose logits are in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = tokens()

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.inner(ids)}


def labels() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 4))


def measure(plan: Plan, store: Path, *, times: bool = False) -> Bench:
    """Run a plan completely and open its store."""
    report, _ = run_plan(plan, store, engine="serial", device="cpu", quiet=True, times=times)
    bench = open_store(store)
    assert report.complete, bench.failures()
    return bench
