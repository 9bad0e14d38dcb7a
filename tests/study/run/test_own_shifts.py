"""Shifted sets of the user's own, and built-in shifts of text and tables, in a benchmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from own_plans import measure
from torch import nn

from qipf.metrics import roc_auc
from qipf.study.plan.plan import Plan, PlanError, parse
from qipf.study.shifts import table, text

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(0, 1.2, (3, 6)).astype(np.float32)


def rows(count: int, seed: int, move: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=count)
    return (CENTRES[labels] + rng.normal(move, 1, (count, 6))).astype(np.float32), labels


def nearest() -> nn.Module:
    """A network that knows the centres of the classes."""
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    centres = torch.from_numpy(CENTRES)
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(6))
        net[0].bias.fill_(10.0)  # the ReLU passes everything
        net[2].weight.copy_(centres)
        net[2].bias.copy_(-0.5 * (centres**2).sum(1) - 10 * centres.sum(1))
    return net


class Bag(nn.Module):
    """Counts the tokens below 50."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(100, 4), nn.Linear(4, 2)
        with torch.no_grad():
            self.words.weight.copy_(torch.where(torch.arange(100)[:, None] < 50, 1.0, -1.0) * torch.ones(4))
            self.head.weight.copy_(torch.tensor([[-1.0] * 4, [1.0] * 4]))
            self.head.bias.zero_()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(ids).mean(1))


def plan(folder: Path, model: str, dataset: str, **settings: object) -> Plan:
    pair = {"dataset": dataset, "net": "mine", "model": f"{__name__}:{model}", **settings}
    values = {"name": "own", "calibration_size": 100, "reference_size": 300, "pairs": [pair]}
    methods = {"entropy": {}, "default": {"effort": "quick"}, "knn": {"fit_on": "perturbed"}}
    return parse({**values, "methods": methods}, folder=folder)


def save(path: Path, **arrays: np.ndarray) -> None:
    np.savez(path, **arrays)


def test_own_shifted_sets_of_a_table_are_measured(tmp_path: Path) -> None:
    (x, y), (x_test, y_test) = rows(600, 1), rows(500, 2)
    save(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    for number, move in enumerate((0.5, 1.5), 1):
        moved, labels = rows(300, 3, move)
        save(tmp_path / f"later-{number}.npz", x=moved, y=labels)
    shifted = {"later": ["later-1.npz", "later-2.npz"]}
    made = plan(tmp_path, "nearest", "mine.npz", shifted=shifted, shifts=["missing-values"], severities=[1, 5])
    assert Plan.from_json(made.as_json()) == made
    bench = measure(made, tmp_path / "out", times=True)
    found = {(one.shift, one.severity): one for one in bench.conditions()}
    assert set(found) == {("clean", 0), ("later", 1), ("later", 2), ("missing-values", 1), ("missing-values", 5)}
    for number, move in enumerate((0.5, 1.5), 1):
        moved, labels = rows(300, 3, move)
        logits = nearest()(torch.from_numpy(moved))
        right = (logits.argmax(1) == torch.from_numpy(labels)).numpy()
        entropy = torch.distributions.Categorical(logits=logits).entropy().detach()
        row = next(
            row for row in bench.rows()
            if (row.shift, row.severity, row.method, row.metric) == ("later", number, "entropy", "roc_auc")
        )  # fmt: skip
        assert row.n == 300
        assert row.accuracy == pytest.approx(right.mean())
        assert row.value == pytest.approx(roc_auc(entropy, right), abs=2e-3)
        np.testing.assert_array_equal(bench.images(found["later", number], [0, 7]), moved[[0, 7]])
    accuracy = {key: bench.predictions(one).correct.mean() for key, one in found.items()}
    assert accuracy["later", 2] < accuracy["later", 1] < accuracy["clean", 0]
    assert accuracy["missing-values", 5] < accuracy["clean", 0]
    test = torch.from_numpy(x_test)
    seen = bench.images(found["missing-values", 5], list(range(400)))
    changed = (table.apply(test, "missing-values", 5) != test).float().mean()
    assert seen.shape == (400, 6)
    assert abs(np.mean(~np.isin(seen, x_test)) - float(changed)) < 0.05


def test_built_in_shifts_of_tokens_are_measured(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    ids = rng.integers(1, 100, (900, 11))
    labels = ((ids < 50).sum(1) >= 6).astype(np.int64)
    flipped = np.where(rng.random(900) < 0.1, 1 - labels, labels)
    save(tmp_path / "texts.npz", x=ids, y=flipped)
    made = plan(tmp_path, "Bag", "texts.npz", shifts={"typos": [5], "word-drops": [2]})
    bench = measure(made, tmp_path / "out", times=True)
    by_name = {one.shift: bench.predictions(one).correct.mean() for one in bench.conditions()}
    assert by_name["typos"] < by_name["clean"] - 0.05
    assert by_name["word-drops"] < by_name["clean"]
    for one in bench.conditions():
        if one.shift == "typos":
            here = torch.from_numpy(bench.images(one, list(range(100))))
            assert here.dtype == torch.int64
            assert abs(float((here[:, 1:] == text.apply(here, "typos", 1)[:, 1:]).float().mean()) - 0.98) < 0.02


@pytest.mark.parametrize(
    ("shifted", "words"),
    [
        ({"rotation": "a.npz"}, "shifted.rotation: this name is reserved"),
        ({"ood:x": "a.npz"}, "reserved"),
        ({"later": []}, "expected a list of length >= 1"),
        ({"later": "a.csv"}, r"expected \.npz files"),
        ({"later": "missing.npz"}, "there is no file"),
        (["a.npz"], "shifted: expected a table"),
    ],
)
def test_mistakes_in_a_plan_are_named(tmp_path: Path, shifted: object, words: str) -> None:
    x, y = rows(50, 1)
    save(tmp_path / "a.npz", x=x, y=y)
    with pytest.raises(PlanError, match=words):
        plan(tmp_path, "nearest", "a.npz", shifted=shifted)
